"""Whether this machine and a store's folder are fit for work; each finding says what to do.

It changes nothing: what it writes to measure the disk is deleted again, and the lease that it
takes to see the helper beat is given back.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sqlite3
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.assembly import open_store
from strandline.cli.checkup import (
    Finding,
    clock_finding,
    disk_finding,
    files_finding,
    filesystem_finding,
    meminfo_total,
    memory_finding,
    mount_of,
    optional_finding,
    package_finding,
    space_finding,
    spark_finding,
    sqlite_finding,
)
from strandline.cli.render import Column, shown, table
from strandline.config import spark_defaults
from strandline.errors import StrandlineError
from strandline.heart import OutsideHeart
from strandline.shard.pulse import KEY_PREFIX, decode_pulse, slot_of
from strandline.spark.java import find_java
from strandline.spark.runtime import java_trouble, java_version, pyspark_trouble
from strandline.store.locate import CONSENSUS_FILE, Kind, locate
from strandline.store.sqlite import SqliteConsensus
from strandline.system import SystemClock, SystemRandom, SystemTasks

if TYPE_CHECKING:
    from strandline.cli.facts import Document
    from strandline.cli.output import Output

_PACKAGES = ("pyarrow", "polars", "numpy", "msgspec")
_SYNCS = 20
_LEASE_MS = 400
_PATIENCE_MS = 10_000
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def examine(url: str | None, out: Output) -> bool:
    """Print one line for each finding; `True` if one of them has to be fixed."""
    findings = [_python(), *_packages(), *_spark(), _memory(), _open_files()]
    with tempfile.TemporaryDirectory(prefix="strandline-doctor-") as scratch:
        findings += _folder(url) if url is not None else []
        findings.append(_heartbeat(url, Path(scratch), findings))
    rows = [
        (shown(each.status, _STYLES[each.status]), each.what, each.found, each.advice)
        for each in findings
    ]
    columns = [Column(""), Column("what"), Column("found", fold=True), Column("to do", fold=True)]
    document: Document = {
        "store": None if url is None else str(locate(url)),
        "well": not any(each.status == "fail" for each in findings),
        "findings": [each.document() for each in findings],
    }
    out.answer(document, table(columns, rows))
    return not document["well"]


def _python() -> Finding:
    enough = sys.version_info >= (3, 11)
    advice = "" if enough else "install Python 3.11 or newer"
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("ok" if enough else "fail", "python", found, advice)


def _packages() -> list[Finding]:
    return [package_finding(name, _installed(name)) for name in _PACKAGES]


def _spark() -> list[Finding]:
    """The pyspark that is installed, and the Java that it would start."""
    pyspark, java = _installed("pyspark"), find_java()
    java_found = "none" if java.program is None else java.program
    if java_is := java_version(java.said):
        java_found = f"{java_is}, {java.program}"
    return [
        optional_finding("pyspark", pyspark or "not installed", pyspark_trouble(pyspark)),
        optional_finding("java", java_found, java_trouble(java)),
        spark_finding(spark_defaults()),
    ]


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return files_finding(soft, hard)


def _memory() -> Finding:
    meminfo, limits = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    total = meminfo_total(meminfo.read_text("utf-8")) if meminfo.exists() else None
    text = limits.read_text("utf-8").strip() if limits.exists() else ""
    return memory_finding(total, int(text) if text.isdecimal() else None)


def _folder(url: str) -> list[Finding]:
    """What can be said of the place where the store is."""
    location = locate(url)
    if location.kind is Kind.MEMORY:
        return [Finding("ok", "store", "in memory: nothing to check")]
    folder = Path(location.path)
    database = folder / CONSENSUS_FILE
    if not database.exists():
        advice = "give the folder that was passed to strandline.open()"
        return [Finding("fail", "store", f"none in {folder}", advice)]
    mounts = Path("/proc/mounts")
    kind = mount_of(str(folder), mounts.read_text("utf-8")) if mounts.exists() else ""
    written, file_ms = _writable(folder)
    findings = [
        Finding("ok", "store", str(folder)),
        space_finding(shutil.disk_usage(folder).free),
        filesystem_finding(kind),
        *written,
        *_database(database),
    ]
    well = all(each.status != "fail" for each in findings)
    return [*findings, *_contents(url, file_ms)] if well else findings


def _writable(folder: Path) -> tuple[list[Finding], int]:
    """Write and sync a small file as the store would, a few times; and when it says it was."""
    clock = SystemClock()
    probe = folder / f".doctor-{SystemRandom().token()}"
    try:
        start = clock.monotonic_ms()
        for _ in range(_SYNCS):
            with probe.open("wb") as file:
                file.write(b"x" * 4096)
                file.flush()
                os.fsync(file.fileno())
        took_ms = (clock.monotonic_ms() - start) / _SYNCS
        file_ms = probe.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        advice = "give this user the right to write there, or free some space"
        return [Finding("fail", "writable", f"no: {error.strerror}", advice)], 0
    finally:
        probe.unlink(missing_ok=True)
    return [Finding("ok", "writable", "yes"), disk_finding(took_ms)], file_ms


def _database(path: Path) -> list[Finding]:
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        advice = "run strandline fsck, and keep a copy of the folder"
        return [Finding("fail", "sqlite", f"can't be read: {error}", advice)]
    return [sqlite_finding(sqlite3.sqlite_version, str(mode))]


def _contents(url: str, file_ms: int) -> list[Finding]:
    """Whether every shard can be opened, and the store's clock beside what they recorded."""
    try:
        with open_store(url, create=False, upkeep=False) as store:
            states = [store.machine(name).refresh() for name in store.shards()]
            now_ms = store.env.consensus.now_ms()
    except StrandlineError as error:
        return [Finding("fail", "shards", str(error), "run strandline fsck, and keep a copy")]
    newest = max((state.instant_ms for state in states), default=None)
    opened = Finding("ok", "shards", f"all {len(states)} can be opened")
    return [opened, clock_finding(now_ms, file_ms, newest)]


def _heartbeat(url: str | None, scratch: Path, findings: list[Finding]) -> Finding:
    """Start the process that keeps leases alive, and see it beat once."""
    place = str(scratch)
    if url is not None and all(each.status != "fail" for each in findings):
        location = locate(url)
        place = location.path if location.kind is Kind.FOLDER else place
    consensus = SqliteConsensus(Path(place) / CONSENSUS_FILE)
    clock, tasks = SystemClock(), SystemTasks()
    start = clock.monotonic_ms()
    try:
        heart = OutsideHeart(
            consensus,
            SystemRandom(),
            url=place,
            lease_ms=_LEASE_MS,
            owner=f"{platform.node()} {os.getpid()}",
        )
        try:
            slot, _ = slot_of(heart.pulse_id)
            while clock.monotonic_ms() - start < _PATIENCE_MS:
                head = consensus.head(f"{KEY_PREFIX}{slot}")
                if head is not None and decode_pulse(slot, head.seqno, head.data).counter > 0:
                    took = clock.monotonic_ms() - start
                    return Finding("ok", "lease helper", f"beats, after {took} ms")
                tasks.sleep(10)
        finally:
            heart.stop()
    except (OSError, StrandlineError) as error:
        return Finding("fail", "lease helper", f"does not start: {error}", "see the reason")
    finally:
        consensus.close()
    advice = f"run {Path(sys.executable).name} -m strandline.heart, and see what it says"
    return Finding("fail", "lease helper", f"no beat within {_PATIENCE_MS // 1000} s", advice)
