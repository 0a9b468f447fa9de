"""Keeps a process's leases alive from a process of its own, out of the GIL's reach (S39).

    this process                        the helper
    ------------                        ----------
    begins the pulse, starts helper ──► reads what to do from its standard input
    works, or is stuck in native code   beats four times per lease
    says goodbye through the pipe   ──► ends the pulse, exits
    dies                            ──► sees the pipe close or its parent change: the same
    asks `lost`                     ◄── writes one line when the pulse ended without it

What the helper is told comes through the pipe and never stands on a command line. It imports
no Arrow, so that it starts in a fraction of a second.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from strandline.errors import NotAppliedError
from strandline.shard.pulse import slot_of
from strandline.shard.pulses import (
    Beat,
    beat_once,
    beat_until,
    begin_pulse,
    first_beat_ms,
    stop_pulse,
)
from strandline.store.locate import open_consensus

if TYPE_CHECKING:
    from strandline.model.clock import Random
    from strandline.store.consensus import Consensus

_log = logging.getLogger(__name__)

_GOODBYE_S = 10


class OutsideHeart:
    """One pulse of this process, kept beating by a helper process."""

    def __init__(
        self, consensus: Consensus, random: Random, *, url: str, lease_ms: int, owner: str
    ) -> None:
        self._consensus = consensus
        self._url = url
        self._pid = os.getpid()
        self._lost = False
        self._stopped = False
        pulse = begin_pulse(consensus, random, lease_ms=lease_ms, owner=owner)
        self.pulse_id = pulse.id
        self.lease_ms = lease_ms
        try:
            self._helper = self._start(first_beat_ms(random, lease_ms=lease_ms))
        except OSError as error:
            slot, incarnation = slot_of(pulse.id)
            stop_pulse(consensus, slot, incarnation)
            raise NotAppliedError(
                f"the process that keeps leases alive can't be started: {error}"
            ) from error

    @property
    def lost(self) -> bool:
        """Whether the pulse ended without us. Asked in a forked child, it is: leases stay here."""
        if os.getpid() != self._pid:
            return True
        if not self._lost and not self._stopped:
            self._listen()
        return self._lost

    @property
    def beater_pid(self) -> int:
        return self._helper.pid

    def tend(self) -> None:
        """Called at every tick: a helper that died is replaced before the lease runs out.

        Until there is one again, each call is a beat.
        """
        if os.getpid() == self._pid and not self._stopped and self._helper.poll() is not None:
            if not self.lost:
                slot, incarnation = slot_of(self.pulse_id)
                self._lost = beat_once(self._consensus, slot, incarnation) is Beat.LOST
            if not self._lost:
                _close_pipes(self._helper)
                self._replace()

    def stop(self) -> None:
        if self._stopped or os.getpid() != self._pid:
            return
        self._stopped = True
        if self._helper.stdin is not None and not self._helper.stdin.closed:
            # A word, because the pipe is not closed while a forked child has it, too.
            with suppress(OSError):
                self._helper.stdin.write(b"\n")
                self._helper.stdin.close()
        try:
            self._helper.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._helper.kill()
            self._helper.wait()
        _close_pipes(self._helper)
        slot, incarnation = slot_of(self.pulse_id)
        stop_pulse(self._consensus, slot, incarnation)

    def _replace(self) -> None:
        try:
            self._helper = self._start(0)
        except OSError as error:
            _log.warning("the process that keeps leases alive can't be started: %s", error)

    def _start(self, first_ms: int) -> subprocess.Popen[bytes]:
        order = {
            "url": self._url,
            "pulse": self.pulse_id,
            "lease_ms": self.lease_ms,
            "first_ms": first_ms,
            "parent": self._pid,
        }
        helper = subprocess.Popen(
            [sys.executable, "-m", "strandline.heart"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if helper.stdin is not None:
            # One that dies before it reads is replaced at the next tick, like any other.
            with suppress(BrokenPipeError):
                helper.stdin.write(json.dumps(order).encode() + b"\n")
                helper.stdin.flush()
        return helper

    def _listen(self) -> None:
        output = self._helper.stdout
        if output is None or output.closed:
            return
        if _readable(output.fileno(), 0) and os.read(output.fileno(), 16).startswith(b"lost"):
            self._lost = True


def _readable(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read; `poll`, because `select` ends at descriptor 1024."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _close_pipes(helper: subprocess.Popen[bytes]) -> None:
    for pipe in (helper.stdin, helper.stdout):
        if pipe is not None:
            # What was not read by a helper that died can't be flushed any more.
            with suppress(OSError):
                pipe.close()


def main() -> int:
    """The helper: beat until the parent is gone, then end its pulse."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as told:
        # Without a buffer, so that what comes after this line is still in the pipe.
        order = json.loads(told.readline())
    consensus = open_consensus(order["url"])
    slot, incarnation = slot_of(order["pulse"])
    pipe = sys.stdin.buffer.fileno()
    gone = False

    def parent_gone() -> bool:
        # Told, not asked for: a parent that died at once is not our parent any more.
        return gone or os.getppid() != order["parent"]

    def pause(duration_ms: int) -> None:
        """Wait, in steps of a second, so that a parent whose pipe lives on in a fork is seen."""
        nonlocal gone
        left = duration_ms / 1000
        while left > 0 and not parent_gone():
            gone = _readable(pipe, min(left, 1.0))
            left -= 1.0

    alive = beat_until(
        parent_gone,
        pause,
        lambda: beat_once(consensus, slot, incarnation),
        lease_ms=order["lease_ms"],
        first_ms=order["first_ms"],
    )
    if not alive:
        sys.stdout.write("lost\n")
        sys.stdout.flush()
        return 0
    stop_pulse(consensus, slot, incarnation)
    return 0


if __name__ == "__main__":
    sys.exit(main())
