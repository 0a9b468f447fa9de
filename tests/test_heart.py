"""Tests of the helper process that keeps leases alive."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline.errors import NotAppliedError
from strandline.heart import OutsideHeart
from strandline.shard.pulse import Pulse, Status, decode_pulse
from strandline.store.consensus import Consensus
from strandline.store.locate import open_folder
from strandline.system import SystemClock, SystemRandom, SystemTasks

pytestmark = pytest.mark.process

LEASE = 1_000


@pytest.fixture
def consensus(tmp_path: Path) -> Iterator[Consensus]:
    _, opened = open_folder(str(tmp_path / "lake"), create=True)
    yield opened
    opened.close()


def _heart(consensus: Consensus, tmp_path: Path) -> OutsideHeart:
    return OutsideHeart(
        consensus, SystemRandom(), url=str(tmp_path / "lake"), lease_ms=LEASE, owner="a test"
    )


def _read(consensus: Consensus, slot: int = 0) -> Pulse:
    head = consensus.head(f"pulse/{slot}")
    assert head is not None
    return decode_pulse(slot, head.seqno, head.data)


def _until(true: Callable[[], bool], within_ms: int = 15_000) -> None:
    clock, tasks = SystemClock(), SystemTasks()
    deadline = clock.monotonic_ms() + within_ms
    while not true():
        assert clock.monotonic_ms() < deadline, "not within the deadline"
        tasks.sleep(5)


def test_the_helper_beats_and_ends_the_pulse_with_us(consensus: Consensus, tmp_path: Path) -> None:
    heart = _heart(consensus, tmp_path)
    _until(lambda: _read(consensus).counter >= 2)
    assert not heart.lost
    heart.stop()
    assert _read(consensus).status is Status.ENDED


def test_s39_a_call_that_holds_the_gil_does_not_cost_the_lease(
    consensus: Consensus, tmp_path: Path
) -> None:
    heart = _heart(consensus, tmp_path)
    _until(lambda: _read(consensus).counter >= 1)
    before = _read(consensus).counter
    # PyDLL keeps the GIL during the call: no thread of this process runs for three leases.
    ctypes.PyDLL(None).usleep(3 * LEASE * 1000)
    assert _read(consensus).counter >= before + 4
    assert not heart.lost
    heart.stop()


def test_s39_a_busy_python_loop_does_not_cost_the_lease(
    consensus: Consensus, tmp_path: Path
) -> None:
    heart = _heart(consensus, tmp_path)
    clock = SystemClock()
    _until(lambda: _read(consensus).counter >= 1)
    before = _read(consensus).counter
    deadline = clock.monotonic_ms() + 3 * LEASE
    while clock.monotonic_ms() < deadline:
        sum(range(1_000))
    assert _read(consensus).counter >= before + 4
    heart.stop()


def test_a_killed_helper_is_replaced(consensus: Consensus, tmp_path: Path) -> None:
    heart = _heart(consensus, tmp_path)
    _until(lambda: _read(consensus).counter >= 1)
    first = heart.beater_pid
    os.kill(first, signal.SIGKILL)

    def replaced() -> bool:
        heart.tend()
        return heart.beater_pid != first

    _until(replaced)
    before = _read(consensus).counter
    _until(lambda: _read(consensus).counter > before + 1)
    assert not heart.lost
    heart.stop()


def test_a_goodbye_is_heard_although_a_forked_child_has_the_pipe(
    consensus: Consensus, tmp_path: Path
) -> None:
    heart = _heart(consensus, tmp_path)
    assert heart._helper.stdin is not None
    # What a child that was forked meanwhile has, too.
    inherited = os.dup(heart._helper.stdin.fileno())
    _until(lambda: _read(consensus).counter >= 2)
    helper = heart._helper
    heart.stop()
    os.close(inherited)
    assert helper.returncode == 0  # It ended by itself, and was not killed in the end.


def test_a_pulse_that_others_ended_is_reported_lost(consensus: Consensus, tmp_path: Path) -> None:
    heart = _heart(consensus, tmp_path)
    from strandline.shard.pulses import stop_pulse

    stop_pulse(consensus, 0, 0)
    _until(lambda: heart.lost)
    heart.stop()


_DYING = """
import os, sys
from strandline.heart import OutsideHeart
from strandline.store.locate import open_folder
from strandline.system import SystemRandom
_, consensus = open_folder(sys.argv[1], create=False)
heart = OutsideHeart(consensus, SystemRandom(), url=sys.argv[1], lease_ms=60_000, owner="x")
print("ready", flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    sys.stdin.read()  # a child that inherits the pipe and lives on
sys.stdin.read()
"""


@pytest.mark.parametrize("way", ["alone", "fork"])
def test_a_killed_process_is_gone_long_before_its_lease(
    consensus: Consensus, tmp_path: Path, way: str
) -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", _DYING, str(tmp_path / "lake"), way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert victim.stdout is not None
    assert victim.stdin is not None
    assert victim.stdout.readline() == b"ready\n"
    victim.kill()
    victim.wait()
    _until(lambda: _read(consensus).status is Status.ENDED)
    victim.stdin.close()
    victim.stdout.close()


def test_a_helper_that_cannot_be_replaced_costs_no_lease(
    consensus: Consensus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heart = _heart(consensus, tmp_path)
    os.kill(heart.beater_pid, signal.SIGKILL)
    _until(lambda: heart._helper.poll() is not None)
    before = _read(consensus).counter
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", str(tmp_path / "no such interpreter"))
        for _ in range(3):
            heart.tend()
    assert _read(consensus).counter >= before + 3
    heart.tend()
    _until(lambda: _read(consensus).counter >= before + 6)
    assert not heart.lost
    heart.stop()


def test_a_helper_that_dies_before_it_reads_is_replaced(
    consensus: Consensus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/bin/false")
        heart = _heart(consensus, tmp_path)
        _until(lambda: heart._helper.poll() is not None)
        heart.tend()
        _until(lambda: heart._helper.poll() is not None)
    heart.tend()
    _until(lambda: _read(consensus).counter >= 4)
    assert not heart.lost
    heart.stop()


def test_without_a_helper_there_is_no_lease(
    consensus: Consensus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no such interpreter"))
    with pytest.raises(NotAppliedError, match="can't be started"):
        _heart(consensus, tmp_path)
    assert _read(consensus).status is Status.ENDED
