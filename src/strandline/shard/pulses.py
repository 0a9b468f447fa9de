"""Pulses in Consensus: beginning, beating and stopping one, and burying the dead.

Kept free of Arrow, so that the helper process that beats for a Python process starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from strandline.errors import MaybeAppliedError, NotAppliedError
from strandline.model.ids import SeqNo
from strandline.shard import pulse as p
from strandline.store.consensus import CasResult, Versioned
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.model.clock import Clock, Random
    from strandline.model.tasks import Tasks
    from strandline.store.consensus import Consensus

BEATS_PER_LEASE = 4
_TRUNCATE_EVERY = 64
_RETRY = Backoff(first_ms=5, factor=2.0, cap_ms=500)


class Beat(Enum):
    """What came of a heartbeat."""

    ALIVE = "the counter moved"
    LOST = "the pulse ended while its owner was away: its leases are gone"
    UNKNOWN = "the store did not answer: try again before the lease runs out"


def begin_pulse(consensus: Consensus, random: Random, *, lease_ms: int, owner: str) -> p.Pulse:
    """Take a slot whose pulse ended, or a new one; so there are no more slots than processes.

    Many may begin at once (S52): nobody looks twice at a slot that is taken, and whoever lost a
    new one tries the next among ever more of them.
    """
    taken: set[int] = set()
    new_slots = 1
    while True:
        slots = sorted(int(key.removeprefix(p.KEY_PREFIX)) for key in consensus.keys(p.KEY_PREFIX))
        first = int(random.uniform(0, len(slots)))
        new = max(slots, default=-1) + 1 + int(random.uniform(0, new_slots - 1))
        for slot in (*slots[first:], *slots[:first], new):
            if slot in taken:
                continue
            seqno, current = _read(consensus, slot)
            pulse = p.begin(slot, current, lease_ms=lease_ms, owner=owner)
            if pulse is not None and _write(consensus, pulse, seqno):
                return pulse
            taken.add(slot)
        new_slots *= 2


def beat_once(consensus: Consensus, slot: int, incarnation: int) -> Beat:
    """Move the counter. A suspicion in between is overtaken by trying again at once."""
    for _ in range(8):
        try:
            seqno, current = _read(consensus, slot)
            new = None if current is None else p.beat(current, incarnation)
            if new is None:
                return Beat.LOST
            if _write(consensus, new, seqno):
                if seqno is not None and seqno.number % _TRUNCATE_EVERY == 0:
                    consensus.truncate(_key(slot), seqno)
                return Beat.ALIVE
        except (NotAppliedError, MaybeAppliedError):
            return Beat.UNKNOWN
    return Beat.UNKNOWN


def stop_pulse(consensus: Consensus, slot: int, incarnation: int) -> None:
    """Say goodbye, so that nobody has to wait for the lease to run out."""
    for _ in range(8):
        try:
            seqno, current = _read(consensus, slot)
            new = None if current is None else p.stop(current, incarnation)
            if new is None or _write(consensus, new, seqno):
                return
        except (NotAppliedError, MaybeAppliedError):
            continue


def beat_until(
    stop: Callable[[], bool],
    pause: Callable[[int], None],
    beat: Callable[[], Beat],
    *,
    lease_ms: int,
    first_ms: int | None = None,
) -> bool:
    """Beat four times per lease until told to stop; `False` if the pulse was lost.

    An unanswered beat is repeated sooner than the next one is due. The helper process and the
    simulator's task run this same loop. The first beat is due after `first_ms`, by default when
    it has to be; see `first_beat_ms`.
    """
    tick_ms = max(1, lease_ms // BEATS_PER_LEASE)
    pause_ms = tick_ms if first_ms is None else first_ms
    while not stop():
        pause(pause_ms)
        pause_ms = tick_ms
        if stop():
            return True
        outcome = beat()
        while outcome is Beat.UNKNOWN and not stop():
            pause(max(1, tick_ms // 8))
            outcome = beat()
        if outcome is Beat.LOST:
            return False
    return True


def first_beat_ms(random: Random, *, lease_ms: int) -> int:
    """When to beat first, so that processes that began at once do not beat at once (S52)."""
    return int(random.uniform(0, lease_ms // BEATS_PER_LEASE))


@dataclass(slots=True)
class _Watch:
    """What this process saw of somebody else's pulse, by its own clock."""

    counter: int
    incarnation: int
    since_ms: int


class Undertaker:
    """Finds out which pulses are over, and ends those whose owners are gone.

        own watch of an unmoved counter    suspicion on record       then
        -------------------------------    ---------------------     -------------------
        less than half a lease             any                       look again later
        half a lease or more               none of this counter      suspect, on record
        half a lease or more               younger than a lease      look again later
        half a lease or more               a lease old or more       end it

    Both clocks must agree: the store's, which all share, and our own, which does not run while
    the machine sleeps. So a jumped clock or a resumed laptop ends nobody who still beats.
    """

    def __init__(self, consensus: Consensus, clock: Clock) -> None:
        self._consensus = consensus
        self._clock = clock
        self._watched: dict[int, _Watch] = {}

    def over(self, pulses: Iterable[str]) -> frozenset[str]:
        """Which of these pulses are over for good; moves the others one step closer to it."""
        gone: set[str] = set()
        for pulse_id in sorted(pulses):
            slot, _ = p.slot_of(pulse_id)
            try:
                seqno, current = _read(self._consensus, slot)
                over = p.is_over(pulse_id, current)
                if over or (current is not None and self._look(current, seqno)):
                    gone.add(pulse_id)
            except (NotAppliedError, MaybeAppliedError):
                continue
        return frozenset(gone)

    def living(self) -> set[str]:
        """All pulses that are not over, whether or not anything depends on them."""
        found: set[str] = set()
        for key in self._consensus.keys(p.KEY_PREFIX):
            _, current = _read(self._consensus, int(key.removeprefix(p.KEY_PREFIX)))
            if current is not None and current.status is p.Status.LIVE:
                found.add(current.id)
        return found

    def _look(self, current: p.Pulse, seqno: SeqNo | None) -> bool:
        """Take one step with a pulse that is not over; `True` if that ended it."""
        now = self._clock.monotonic_ms()
        watch = self._watched.get(current.slot)
        moved = (
            watch is None
            or watch.counter != current.counter
            or watch.incarnation != current.incarnation
        )
        if watch is None or moved:
            self._watched[current.slot] = _Watch(current.counter, current.incarnation, now)
            return False
        if now - watch.since_ms < current.lease_ms // 2:
            return False
        store_now = self._consensus.now_ms()
        ended = p.end(current, store_now)
        if ended is not None:
            return _write(self._consensus, ended, seqno)
        suspected = p.suspect(current, store_now)
        if suspected is not None:
            _write(self._consensus, suspected, seqno)
        return False


class TaskHeart:
    """Beats from a task of this process: for the simulator and for stores in memory."""

    def __init__(
        self, consensus: Consensus, tasks: Tasks, random: Random, *, lease_ms: int, owner: str
    ) -> None:
        pulse = begin_pulse(consensus, random, lease_ms=lease_ms, owner=owner)
        self.pulse_id = pulse.id
        self.lease_ms = lease_ms
        self.lost = False
        self._consensus = consensus
        self._pulse = pulse
        self._first_ms = first_beat_ms(random, lease_ms=lease_ms)
        self._stop = tasks.event()
        self._on_beat: Callable[[], None] | None = None
        self._task = tasks.start(f"heart {pulse.id}", self._run)

    def on_beat(self, call: Callable[[], None]) -> None:
        """Call this after every beat that counted."""
        self._on_beat = call

    def tend(self) -> None:
        """A task of this process needs no mending."""

    def stop(self) -> None:
        self._stop.set()
        self._task.join()
        stop_pulse(self._consensus, self._pulse.slot, self._pulse.incarnation)

    def _run(self) -> None:
        alive = beat_until(
            self._stop.is_set,
            lambda ms: void(self._stop.wait(ms)),
            self._beat,
            lease_ms=self.lease_ms,
            first_ms=self._first_ms,
        )
        self.lost = not alive

    def _beat(self) -> Beat:
        outcome = beat_once(self._consensus, self._pulse.slot, self._pulse.incarnation)
        if outcome is Beat.ALIVE and self._on_beat is not None:
            self._on_beat()
        return outcome


def void(_: object) -> None:
    """Drop a value where a callable must return nothing."""


def _key(slot: int) -> str:
    return f"{p.KEY_PREFIX}{slot}"


def _read(consensus: Consensus, slot: int) -> tuple[SeqNo | None, p.Pulse | None]:
    head = consensus.head(_key(slot))
    if head is None:
        return None, None
    return head.seqno, p.decode_pulse(slot, head.seqno, head.data)


def _write(consensus: Consensus, pulse: p.Pulse, after: SeqNo | None) -> bool:
    """Commit a pulse; an answer that never came is looked up."""
    seqno = SeqNo(0) if after is None else after.next()
    version = Versioned(seqno, p.encode_pulse(pulse, seqno))
    try:
        result = consensus.compare_and_set(_key(pulse.slot), version)
    except MaybeAppliedError:
        return consensus.head(_key(pulse.slot)) == version
    return result is CasResult.COMMITTED
