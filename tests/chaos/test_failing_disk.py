"""Fails single calls of the disk under a real process, and checks that nobody was lied to (G17)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.chaos.crew import ROOT, WORKER
from tests.chaos.journal import JournalReader
from tests.chaos.truth import Witness
from tests.chaos.verdict import account, judge

from strandline.upkeep.fsck import fsck

STRACE = shutil.which("strace")

# The call, the error, and which calls of each thread fail (`5+3`: the 5th and every third after).
FAULTS = [
    pytest.param("fdatasync", "EIO", "5", marks=pytest.mark.slow),
    ("fdatasync", "EIO", "7+4"),
    ("fsync", "EIO", "4+5"),
    ("pwrite64", "ENOSPC", "20+31"),
    pytest.param("pwrite64", "ENOSPC", "20+9", marks=pytest.mark.slow),
    ("renameat", "EIO", "2+2"),
]


def _can_trace() -> bool:
    """Whether strace is there and may trace here."""
    if STRACE is None:
        return False
    return subprocess.run([STRACE, "-o", os.devnull, "true"], check=False).returncode == 0


@pytest.mark.chaos
@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("call", "error", "when"), FAULTS)
def test_a_failing_disk_loses_nothing(tmp_path: Path, call: str, error: str, when: str) -> None:
    if not _can_trace():
        pytest.skip("strace is not installed, or may not trace")
    store, path = str(tmp_path / "store"), tmp_path / "clerk.journal"
    witness = Witness(store)
    try:
        inject = f"inject={call}:error={error}:when={when}"
        trace = [str(STRACE), "-f", "--seccomp-bpf", "-qq", "-o", os.devnull]
        clerk = [*WORKER, "clerk", store, str(path), "1", "1"]
        traced = [*trace, "-e", f"trace={call}", "-e", inject, *clerk]
        subprocess.run(traced, cwd=ROOT, check=False)
        lines = JournalReader(path).read()
        witness.catch_up()
        assert ["closed"] in [line[:1] for line in lines], lines[-1]
        assert judge(account([("clerk", lines)]), witness.settled) == []
        assert witness.wrong == []
        report = fsck(witness.store.env, witness.store.leases, deep=True)
        assert report.sound, report.findings
    finally:
        witness.close()
        witness.store.close()
