"""What a measurement means for a store, and what to do about it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from strandline.cli.render import number, size, span
from strandline.model.ids import printable

_REMOTE = ("nfs", "cifs", "smb", "fuse.", "9p", "afs", "ceph", "gluster", "lustre")
_FEW_FILES = 1024
_LITTLE_SPACE = 1_000_000_000
_NO_SPACE = 50_000_000
_LITTLE_MEMORY = 2_000_000_000
_SLOW_SYNC_MS = 30
_SKEW_MS = 2_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `strandline doctor`."""

    status: Literal["ok", "warn", "fail"]
    what: str
    found: str
    advice: str = ""

    def document(self) -> dict[str, object]:
        return {
            "status": self.status,
            "what": self.what,
            "found": self.found,
            "advice": self.advice or None,
        }


def package_finding(name: str, installed: str | None) -> Finding:
    if installed is None:
        return Finding("fail", name, "not installed", f"pip install {name}")
    return Finding("ok", name, installed)


def optional_finding(what: str, found: str, trouble: str | None) -> Finding:
    """What only those need who use Spark: its absence is worth a word, and no failure."""
    if trouble is None:
        return Finding("ok", what, found)
    return Finding("warn", what, found, f"to use Spark: {trouble}")


def spark_finding(defaults: str | None) -> Finding:
    """Whether Spark's own traffic is authenticated, by the settings of its launchers (X9)."""
    settings = {}
    for line in (defaults or "").splitlines():
        name, _, value = line.strip().replace("=", " ", 1).replace("\t", " ").partition(" ")
        settings[name] = value.strip()
    master = settings.get("spark.master", "local")
    if re.fullmatch(r"local(\[.*\])?", master):
        return Finding("ok", "spark's traffic", "this machine: loopback, with a secret of its own")
    if settings.get("spark.authenticate") == "true":
        return Finding("ok", "spark's traffic", f"authenticated, to {printable(master)}")
    return Finding(
        "warn", "spark's traffic", f"anybody may speak to {printable(master)} and its workers",
        "set spark.authenticate and spark.authenticate.secret there, see docs/clusters.md",
    )  # fmt: skip


def files_finding(soft: int, hard: int) -> Finding:
    if soft < 0 or soft >= _FEW_FILES:
        return Finding("ok", "open files", "no limit" if soft < 0 else f"up to {number(soft)}")
    more = "no limit" if hard < 0 else number(hard)
    return Finding(
        "warn", "open files", f"up to {number(soft)}", f"raise it: ulimit -n (max {more})"
    )


def memory_finding(total: int | None, limit: int | None) -> Finding:
    """What Spark and its Python workers share: the machine's memory, or a container's limit."""
    known = [each for each in (total, limit) if each is not None]
    if not known:
        return Finding("ok", "memory", "not known")
    least = min(known)
    found = f"{size(least)}{', a limit of this container' if least == limit else ''}"
    if least < _LITTLE_MEMORY:
        advice = "to run pipelines with Spark, give it 2 GB or more"
        return Finding("warn", "memory", found, advice)
    return Finding("ok", "memory", found)


def meminfo_total(text: str) -> int | None:
    """The bytes of memory that Linux says the machine has.

    >>> meminfo_total("MemTotal:        2048 kB"), meminfo_total("")
    (2097152, None)
    """
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal" and rest.split():
            return int(rest.split()[0]) * 1024
    return None


def space_finding(free: int) -> Finding:
    found = f"{size(free)} free"
    if free < _NO_SPACE:
        return Finding("fail", "space", found, "free some space: appends are about to fail")
    if free < _LITTLE_SPACE:
        return Finding("warn", "space", found, "free some space, or shorten retention")
    return Finding("ok", "space", found)


def disk_finding(sync_ms: float) -> Finding:
    found = f"{sync_ms:.1f} ms to write and sync 4 kB"
    if sync_ms > _SLOW_SYNC_MS:
        return Finding("warn", "disk", found, "every append waits for this: use a faster disk")
    return Finding("ok", "disk", found)


def mount_of(path: str, mounts: str) -> str:
    """The kind of file system that a path lies on, by the longest mount point above it."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def filesystem_finding(kind: str) -> Finding:
    if not kind:
        return Finding("ok", "file system", "not known")
    if kind.startswith(_REMOTE):
        advice = "keep the store on a local disk: SQLite's locks are not safe over a network"
        return Finding("warn", "file system", kind, advice)
    if kind == "tmpfs":
        return Finding("warn", "file system", kind, "it is gone after a restart: use a disk")
    return Finding("ok", "file system", kind)


def sqlite_finding(version: str, journal_mode: str) -> Finding:
    found = f"{version}, journal {journal_mode}"
    if journal_mode.lower() != "wal":
        advice = "another program changed it: open the store once with strandline.open()"
        return Finding("warn", "sqlite", found, advice)
    return Finding("ok", "sqlite", found)


def clock_finding(store_ms: int, file_ms: int, newest_ms: int | None) -> Finding:
    """The store's clock beside that of the file system, and beside the newest instant there is."""
    advice = "set the clock (timedatectl): until then, instants stand still and leases end late"
    if newest_ms is not None and store_ms < newest_ms - _SKEW_MS:
        found = f"{span((newest_ms - store_ms) / 1000)} behind the newest instant of a shard"
        return Finding("warn", "clock", found, advice)
    skew_ms = store_ms - file_ms
    if abs(skew_ms) <= _SKEW_MS:
        return Finding("ok", "clock", f"within {span(_SKEW_MS / 1000)} of the file system's")
    way = "ahead of" if skew_ms > 0 else "behind"
    found = f"{span(abs(skew_ms) / 1000)} {way} the file system's"
    return Finding("warn", "clock", found, advice)
