"""One round of upkeep of one shard.

The steps, in this order; each is safe to leave out, to repeat and to race with others:

    bury       readers and writers whose processes are gone
    since      moves as far as retention and holds allow
    compact    the units that `compaction` finds worth it
    list       many parts go into chunks, old moments into objects
    manifest   when opening the shard has become slow
    instants   a timeline forgets when it committed what is older than its members keep
    collect    what nobody needs any more
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from strandline.errors import NotFoundError
from strandline.model.frontier import TIME_MAX
from strandline.shard import command as c
from strandline.shard.chunks import Chunks
from strandline.shard.frontiers import aged_of
from strandline.shard.machine import raise_refusal
from strandline.shard.moments import encode_moments, moments_key
from strandline.shard.retention import Aged, instants_from, since_allowed
from strandline.shard.state import WEEK_MS
from strandline.shard.timeline import PlainTimeline
from strandline.shard.versions import load, put_manifest
from strandline.upkeep.collect import Collected, Collector
from strandline.upkeep.compact import Work, carry_out, put_together
from strandline.upkeep.compaction import plan
from strandline.upkeep.units import gather, manifest_due, moments_due, policy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.model.frontier import Frontier, Time
    from strandline.parts.chunk import PartTable
    from strandline.parts.part import Batch
    from strandline.shard.cancel import Cancel
    from strandline.shard.env import Env
    from strandline.shard.lease import WriteLease
    from strandline.shard.leases import Leases
    from strandline.shard.machine import Machine
    from strandline.shard.state import State
    from strandline.upkeep.compact import Report
    from strandline.upkeep.units import Unit

_INSTANTS_MS = 6 * 3600 * 1000
"""The instants of a timeline are looked through so often: there may be many."""
_PASSES_MAX = 1000
"""Passes of one compaction that was asked for; each leaves less to do than the one before."""


Carrier: TypeAlias = "Callable[[Work, State, Sequence[Unit]], None]"
"""Carries out the units of one plan, whose state is pinned; see `compact.finish`."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a compaction is to be done."""

    full: bool = False
    report: Report | None = None
    cancel: Cancel | None = None
    begun: State | None = None
    """If given, only what was there in this state is merged."""
    carrier: Carrier | None = None
    """Carries units out elsewhere; by default they are carried out here, one by one."""
    slots: int = 0
    """How many tasks the carrier has at once."""

    @property
    def is_regular(self) -> bool:
        """Whether nobody asked for it: what is due, whenever it came."""
        return self.begun is None and not self.full


class Rounds:
    """What one process does for its shards, one at a time."""

    def __init__(self, env: Env, leases: Leases) -> None:
        self._env = env
        self._leases = leases
        self._policy = policy_of(env.settings)
        self.collector = Collector(env, leases)
        self._chunks: dict[str, Chunks] = {}
        self._rested: dict[str, tuple[tuple[Batch, ...], int, Frontier | None]] = {}
        """For each shard, what was found to need no compaction."""
        self._looked_ms: dict[str, int] = {}
        """For each timeline, when its instants were last looked through."""

    def run_once(self, machine: Machine) -> bool:
        """One round; whether anything was done."""
        self._leases.bury(machine)
        state = machine.refresh()
        busy = False
        if not state.dropped:
            committed = self._committed(state)
            busy |= self._advance(machine, committed)
            busy |= self._compact(machine, committed, Wish())
            busy |= self._index(machine, committed)
            busy |= self._write_manifest(machine)
            self._forget_instants(state.timeline)
        return bool(self.collector.collect(machine)) or busy

    def compact(self, machine: Machine, wish: Wish) -> Collected:
        """Merge all that is due now, or all there is, and delete what that frees.

        What is appended meanwhile is left to the next one, so that this one ends.
        """
        self._leases.bury(machine)
        state = machine.refresh()
        if state.dropped:
            raise NotFoundError(f"shard {machine.name} was dropped")
        committed = self._committed(state)
        self._advance(machine, committed)
        wish = replace(wish, begun=machine.state)
        for _ in range(_PASSES_MAX):
            if not self._compact(machine, committed, wish):
                break
        self._index(machine, committed)
        self._write_manifest(machine)
        self._forget_instants(state.timeline, at_once=True)
        return self.collector.collect(machine)

    def _committed(self, state: State) -> Frontier | None:
        if state.timeline is None:
            return None
        return self._env.timelines(state.timeline).committed()

    # Since.

    def _advance(self, machine: Machine, committed: Frontier | None) -> bool:
        state = machine.state
        now_ms = self._env.patient(self._env.consensus.now_ms, shard=machine.name)
        # Rows are committed after they are staged, so age can only make it less: it is looked up
        # if it would be more than it is without.
        ageless = Aged(state.retention.duration_ms or 0, TIME_MAX)
        allowed = since_allowed(state, now_ms=now_ms, committed=committed, aged=ageless)
        if allowed <= state.readable_from():
            return False
        aged = aged_of(self._env, state, now_ms)
        outcome, _ = machine.commit(c.AdvanceSince(now_ms, committed, aged))
        return isinstance(outcome, c.Changed)

    # Compaction.

    def _compact(self, machine: Machine, committed: Frontier | None, wish: Wish) -> bool:
        """Carry out a plan; nothing is leased as long as there is nothing to do."""
        state = machine.state
        if wish.is_regular and self._is_at_rest(state, committed):
            return False
        idle = not _has_chunks(state) and gather(state, self._policy, committed) is None
        if idle and not self._wanted(state, committed, wish):
            return False
        pin = self._leases.own_reader(machine).pin()
        try:
            state = pin.state()
            units = self._wanted(state, committed, wish)
            gathered = gather(state, self._policy, committed)
            if not units and gathered is None:
                return False
            with Writing(self._leases, machine) as writer:
                work = self._work(machine, writer, wish)
                done = self._carry_out(work, state, units, wish.carrier)
                if gathered is not None:
                    done |= put_together(work, gathered) and wish.is_regular
                return done
        finally:
            pin.give_back()

    def _carry_out(
        self, work: Work, state: State, units: Sequence[Unit], carrier: Carrier | None
    ) -> bool:
        """`True` if anything has changed, by us or by whoever was faster."""
        if carrier is not None:
            carrier(work, state, units)
            return bool(units)
        # Whoever else has the same plan is likely to begin with another unit.
        first = int(self._env.random.uniform(0, len(units))) if units else 0
        for unit in (*units[first:], *units[:first]):
            carry_out(work, state, unit)
        return bool(units)

    def _work(self, machine: Machine, writer: WriteLease, wish: Wish) -> Work:
        chunks = self._chunks_of(machine.name)
        return Work(machine, writer, chunks, self._policy, wish.report, wish.cancel)

    def _wanted(self, state: State, committed: Frontier | None, wish: Wish) -> list[Unit]:
        units = plan(
            state,
            self._lists(state),
            replace(self._policy, slots=wish.slots),
            committed,
            full=wish.full,
            begun=wish.begun,
        )
        if wish.is_regular and not units and gather(state, self._policy, committed) is None:
            self._rested[state.name] = (state.batches, state.readable_from(), committed)
        return units

    def _is_at_rest(self, state: State, committed: Frontier | None) -> bool:
        rested = self._rested.get(state.name)
        if rested is None or rested[0] is not state.batches:
            return False
        return rested[1:] == (state.readable_from(), committed)

    def _lists(self, state: State) -> dict[str, PartTable]:
        chunks = self._chunks_of(state.name)
        return {
            chunk.key: chunks.table(chunk, shard_id=state.id, stats=False)
            for batch in state.batches
            for chunk in batch.chunks
        }

    def _chunks_of(self, name: str) -> Chunks:
        return self._chunks.setdefault(name, Chunks(self._env, name))

    # Lists and manifests.

    def _index(self, machine: Machine, committed: Frontier | None) -> bool:
        """Move the older half of many moments into an object."""
        count = moments_due(machine.state, loose=self._env.settings.moments_loose)
        if not count or not _is_settled(machine.state, count, committed):
            return False
        with Writing(self._leases, machine) as writer:
            state = machine.state
            key = moments_key(state.id, writer.id, self._env.random.token())
            chunk, encoded = encode_moments(state.moments[:count], shard=state.id, key=key)
            self._env.patient(lambda: self._env.blob.put(key, encoded), shard=state.name)
            outcome, _ = machine.commit(c.IndexMoments(writer.id, chunk, committed))
        if isinstance(outcome, c.Stale):
            return False
        raise_refusal(machine.name, outcome)
        return True

    def _write_manifest(self, machine: Machine) -> bool:
        state = machine.state
        if not manifest_due(state, every=self._env.settings.manifest_every):
            return False
        outcome, _ = machine.commit(c.AddManifest(put_manifest(self._env, state)))
        return isinstance(outcome, c.Changed)

    def _forget_instants(self, name: str | None, *, at_once: bool = False) -> None:
        """Now and then, forget when a timeline committed what is older than its members keep."""
        timeline = None if name is None else self._env.timelines(name)
        if not isinstance(timeline, PlainTimeline):
            return
        now_ms = self._env.patient(self._env.consensus.now_ms)
        since_ms = now_ms - self._looked_ms.setdefault(timeline.name, now_ms)
        if since_ms < _INSTANTS_MS and not at_once:
            return
        self._looked_ms[timeline.name] = now_ms
        oldest = self._instants_from(timeline, now_ms)
        if oldest:
            timeline.forget_below(oldest)

    def _instants_from(self, timeline: PlainTimeline, now_ms: int) -> Time | None:
        """The first time whose instant a member still needs, a week ago at the latest."""
        committed = timeline.committed()
        oldest = timeline.time_at(now_ms - WEEK_MS)
        if oldest is None:
            return None
        for member in timeline.listed():
            state = load(self._env, member)
            if state is None or state.dropped or state.timeline != timeline.name:
                continue
            aged = aged_of(self._env, state, now_ms)
            oldest = min(oldest, instants_from(state, committed=committed, aged=aged))
        return oldest


class Writing:
    """A writer that is registered for a while; what it puts and does not count is swept."""

    def __init__(self, leases: Leases, machine: Machine) -> None:
        self._leases = leases
        self._machine = machine

    def __enter__(self) -> WriteLease:
        self._lease = self._leases.writer(self._machine, purpose="upkeep")
        return self._lease

    def __exit__(self, *_: object) -> None:
        self._lease.close()


def _is_settled(state: State, count: int, committed: Frontier | None) -> bool:
    """Whether so many moments are all of times that nobody can withdraw."""
    if state.timeline is None:
        return True
    return committed is not None and committed.settled(state.moments[count - 1].time)


def _has_chunks(state: State) -> bool:
    return any(batch.chunks for batch in state.batches)
