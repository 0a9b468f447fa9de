"""The settings of a session: what pins its meaning, and what was measured to matter. Pure.

Settings that changed nothing are left to Spark; docs/decisions/0008 has the measurements, and those
that were tried and dropped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    Settings = Mapping[str, str | int | bool]

_SINGLE_TASK_SINCE = (4, 3)
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
ALONE = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    # Others on this machine reach loopback, too. Spark draws the secret itself, and keeps it.
    "spark.authenticate": "true",
}
"""What a local session has and one of a cluster must not inherit."""
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:, *\d+)?\])?")


def is_local(master: str) -> bool:
    """Whether a master URL means this process, which `local-cluster[…]` does not.

    >>> is_local("local"), is_local("local[*]"), is_local("local-cluster[2,1,1024]")
    (True, True, False)
    """
    return _LOCAL.fullmatch(master) is not None


def cores_of(master: str, here: int | None) -> int | None:
    """How many tasks a local master runs at once; `here` is what its machine has, if known.

    >>> cores_of("local", 8), cores_of("local[2]", 8), cores_of("local[*]", 8)
    (1, 2, 8)
    >>> cores_of("spark://host:7077", 8) is None
    True
    """
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    cores = found.group(1) or "1"
    return here if cores == "*" else int(cores)


def at_start(master: str | None, *, terminal: bool, log_config: str) -> dict[str, str]:
    """What only a new session can be given: a Spark that is quiet, and alone on a machine.

    `terminal` says whether somebody is watching: then stages of more than half a second show how
    far they are. A master that is not local decides for itself where it listens, and has to be
    told a secret there (docs/clusters.md).
    """
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": spelled(terminal),
        "spark.python.unix.domain.socket.enabled": "true",
        _JAVA_OPTIONS: f'"-Dlog4j2.configurationFile={log_config}"',
    }
    if master is not None and is_local(master):
        settings |= ALONE
    return settings


def at_any_time(release: tuple[int, int], cores: int | None) -> dict[str, str]:
    """What a running session can be given too, one of Spark Connect included."""
    settings = {
        # Meaning: the same rows whatever the machine's time zone and its administrator's defaults.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # Up to so many files the driver lists them itself, which beats starting a job for it.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    }
    if release >= _SINGLE_TASK_SINCE:
        settings["spark.sql.optimizer.singleTaskExecution.enabled"] = "true"
    if cores is not None:
        # Two a core balance uneven ranges; a cluster keeps its own number, and adaptive execution.
        settings["spark.sql.shuffle.partitions"] = str(2 * cores)
    return settings


def merged(ours: Mapping[str, str], theirs: Settings) -> dict[str, str]:
    """Both, where the user's choice wins; options for Java are passed on together."""
    both = {**ours, **{name: spelled(value) for name, value in theirs.items()}}
    if _JAVA_OPTIONS in ours and _JAVA_OPTIONS in theirs:
        both[_JAVA_OPTIONS] = f"{ours[_JAVA_OPTIONS]} {theirs[_JAVA_OPTIONS]}"
    return both


def is_given(name: str, value: str, known: str) -> bool:
    """Whether a session with the value `known` has what is asked for; ours and Spark's go before.

    >>> is_given("spark.driver.memory", "1g", "1g"), is_given("spark.driver.memory", "1g", "11g")
    (True, False)
    >>> is_given(_JAVA_OPTIONS, "-Xs", '"-Dours" -Xs'), is_given(_JAVA_OPTIONS, "-X", "-Xs")
    (True, False)
    """
    if name == _JAVA_OPTIONS:
        return f" {value} " in f" {known} "
    return value == known


def spelled(value: str | int | bool) -> str:  # noqa: FBT001 - the value of a setting
    """A value as Spark writes it.

    >>> spelled(True), spelled(4), spelled("UTC")
    ('true', '4', 'UTC')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
