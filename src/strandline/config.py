"""Settings from the environment; the only reader of it.

STRANDLINE_LEASE_MS     how long a lease lasts without a heartbeat (default 60000)
STRANDLINE_UPKEEP       "off" leaves compaction and collection to `strandline compact`
STRANDLINE_ALLOW_HOSTS  hosts that programs may reach, and no other; see `connectors.addresses`
                        (default: any but metadata services; when served, none)
STRANDLINE_TOKEN        what `strandline serve` wants to be shown (default: drawn at every start)
STRANDLINE_CACHE_DIR    where Spark's workers keep blocks of parts (default: Spark's local folder)
STRANDLINE_CACHE_BYTES  how many bytes of them on a machine (default 8589934592; 0 keeps none)

Spark's own variables (JAVA_HOME, PYSPARK_PYTHON and what its launchers set) mean here what they
mean to Spark.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from strandline.connectors.addresses import VARIABLE, Listed, listed_hosts
from strandline.connectors.secret import resolver
from strandline.errors import UsageError
from strandline.model.ids import printable

CACHE_BYTES = 8 * 1024**3

_named_here: list[str] = []
"""Interpreters that `name_worker_python` named, and not the user."""


@dataclass(frozen=True, slots=True)
class Config:
    """What the environment says."""

    lease_ms: int | None = None
    upkeep: bool = True
    cache_dir: str | None = None
    cache_bytes: int = CACHE_BYTES
    hosts: tuple[Listed, ...] | None = None
    """Those that programs may reach; `None` if nothing is said, and empty if there are none."""


def from_environment() -> Config:
    upkeep = os.environ.get("STRANDLINE_UPKEEP", "on")
    if upkeep not in {"on", "off"}:
        raise UsageError(f"STRANDLINE_UPKEEP is {printable(upkeep)}: set it to on or off")
    cache_bytes = _whole("STRANDLINE_CACHE_BYTES", "bytes", least=0)
    hosts = os.environ.get(VARIABLE)
    return Config(
        lease_ms=_whole("STRANDLINE_LEASE_MS", "milliseconds", least=100),
        upkeep=upkeep == "on",
        cache_dir=os.environ.get("STRANDLINE_CACHE_DIR") or None,
        cache_bytes=CACHE_BYTES if cache_bytes is None else cache_bytes,
        hosts=None if hosts is None else listed_hosts(hosts),
    )


def cache_folder(cache_dir: str | None) -> Path:
    """The folder of this user's blocks: below `cache_dir`, or on a disk that Spark may fill.

    `cache_dir` is the driver's setting and comes with the work; the rest is asked of the machine
    that does the work.
    """
    base = Path(cache_dir).absolute() if cache_dir else _local_folder()
    return base / f"strandline-cache-{os.getuid()}"


def _local_folder() -> Path:
    """Spark tells its workers the folder of one executor; the one above is for all of them."""
    first = Path(os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0])
    if not first.is_absolute():
        return Path(tempfile.gettempdir())
    return first.parent if first.name.startswith("blockmgr-") else first


def served_token() -> str | None:
    """The token of `strandline serve`, where it is in the environment."""
    return os.environ.get("STRANDLINE_TOKEN") or None


def java_home() -> str | None:
    """Where Spark looks for Java first; an empty value is none, as it is to Spark."""
    return os.environ.get("JAVA_HOME") or None


def spark_is_chosen() -> bool:
    """Whether a launcher or the user's environment says already which Spark this program uses."""
    chosen = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_REMOTE")
    return any(os.environ.get(name) for name in chosen)


def spark_defaults() -> str | None:
    """The settings that Spark's launchers read, if there is a file of them."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if folder is None:
        return None
    path = Path(folder, "spark-defaults.conf")
    return path.read_text("utf-8", "replace") if path.is_file() else None


def name_worker_python(program: str) -> None:
    """Let Spark start its Python workers with this interpreter, unless another one is named.

    Spark would take the first `python3` on the path, which has other packages or none. There is
    no setting that the planners of Python data sources heed too, only this variable.
    """
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = program
        _named_here.append(program)


def prefer_python_of(program: str) -> None:
    """Let `python3` be this interpreter for what Spark starts on this machine.

    Executors elsewhere look `python3` up themselves, so that no path can be named: they have
    another one. What an earlier session of this machine alone was told is taken back; nothing
    changes where the user has named an interpreter.
    """
    if os.environ.get("PYSPARK_PYTHON") in _named_here:
        del os.environ["PYSPARK_PYTHON"]
    folder, path = str(Path(program).parent), os.environ.get("PATH", "")
    is_first = path.split(os.pathsep)[0] == folder
    if "PYSPARK_PYTHON" in os.environ or is_first or not Path(folder, "python3").exists():
        return
    os.environ["PATH"] = os.pathsep.join(filter(None, [folder, path]))


def resolve_secret(value: str) -> str:
    """The value that a reference in an option stands for; anything else is its own value."""
    return resolver(os.environ.get, _content)(value)


def _content(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _whole(name: str, unit: str, *, least: int) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UsageError(f"{name} is {printable(text)}: set it to a number of {unit} >= {least}")
    return int(text)
