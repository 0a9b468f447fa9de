"""Settings from the environment; the only reader of it.

STRANDLINE_LEASE_MS     how long a lease lasts without a heartbeat (default 60000)
STRANDLINE_UPKEEP       "off" leaves compaction and collection to `strandline compact`

Spark's own variables (JAVA_HOME, PYSPARK_PYTHON and what its launchers set) mean here what they
mean to Spark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from strandline.errors import UsageError
from strandline.model.ids import printable


@dataclass(frozen=True, slots=True)
class Config:
    """What the environment says."""

    lease_ms: int | None = None
    upkeep: bool = True


def from_environment() -> Config:
    upkeep = os.environ.get("STRANDLINE_UPKEEP", "on")
    if upkeep not in {"on", "off"}:
        raise UsageError(f"STRANDLINE_UPKEEP is {printable(upkeep)}: set it to on or off")
    return Config(lease_ms=_whole("STRANDLINE_LEASE_MS"), upkeep=upkeep == "on")


def java_home() -> str | None:
    """Where Spark looks for Java first; an empty value is none, as it is to Spark."""
    return os.environ.get("JAVA_HOME") or None


def spark_is_chosen() -> bool:
    """Whether a launcher or the user's environment says already which Spark this program uses."""
    chosen = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_REMOTE")
    return any(os.environ.get(name) for name in chosen)


def name_worker_python(program: str) -> None:
    """Let Spark start its Python workers with this interpreter, unless another one is named.

    Spark would take the first `python3` on the path, which has other packages or none. There is
    no setting that the planners of Python data sources heed too, only this variable.
    """
    os.environ.setdefault("PYSPARK_PYTHON", program)


def _whole(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 100:
        raise UsageError(f"{name} is {printable(text)}: set it to a number of milliseconds >= 100")
    return int(text)
