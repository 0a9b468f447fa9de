"""Mutants of leases: pulses, holds and pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.handles import shard
from strandline.reading import lister, snapshot, view
from strandline.shard import command as c, holds, leases, pulse, pulses
from strandline.shard.state import State
from strandline.shard.term import TermHold
from strandline.testing.mutants import Mutant, Planting, mutant
from strandline.upkeep import rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.model.ids import SeqNo
    from strandline.shard.lease import ReadLease
    from strandline.shard.machine import Machine

BANK: list[Mutant] = []


@mutant("a pulse ends only after a suspicion that is a lease old (S51)", "naps", BANK)
def end_without_suspicion(planting: Planting) -> None:
    def may_end(found: pulse.Pulse, now_ms: int, *, leases: int = 1) -> bool:  # noqa: ARG001
        return found.status is pulse.Status.LIVE

    planting.swap(pulse, "may_end", may_end)


@mutant("a beat clears a suspicion (S51)", "naps", BANK)
def beat_keeps_suspicion(planting: Planting) -> None:
    original = pulse.beat

    def beat(found: pulse.Pulse, incarnation: int) -> pulse.Pulse | None:
        new = original(found, incarnation)
        if new is None or found.suspected_counter < 0:
            return new
        counter, since_ms = new.counter, found.suspected_ms
        return msgspec.structs.replace(new, suspected_counter=counter, suspected_ms=since_ms)

    planting.swap(pulse, "beat", beat)


@mutant("the store's clock alone ends nobody (S51)", "clocks", BANK)
def own_clock_is_not_asked(planting: Planting) -> None:
    def look(self: pulses.Undertaker, current: pulse.Pulse, seqno: SeqNo | None) -> bool:
        consensus = self._consensus
        store_now = consensus.now_ms()
        ended = pulse.end(current, store_now)
        if ended is not None:
            return pulses._write(consensus, ended, seqno)  # noqa: SLF001
        suspected = pulse.suspect(current, store_now)
        if suspected is not None:
            pulses._write(consensus, suspected, seqno)  # noqa: SLF001
        return False

    planting.swap(pulses.Undertaker, "_look", look)


@mutant("only those whose pulse is over are buried", "naps", BANK)
def the_living_are_buried(planting: Planting) -> None:
    def bury(self: leases.Leases, machine: Machine) -> None:
        state = machine.refresh()
        named = {reader.pulse for reader in state.readers.values()}
        named |= {writer.pulse for writer in state.writers.values()}
        mine = {heart.pulse_id for heart in self._hearts.values()}
        if named - mine:
            machine.commit(c.Expire(frozenset(named - mine)))

    planting.swap(leases.Leases, "bury", bury)


@mutant("nobody takes a slot whose pulse lives", "naps", BANK)
def slots_are_shared(planting: Planting) -> None:
    def begin(slot: int, previous: pulse.Pulse | None, *, lease_ms: int, owner: str) -> pulse.Pulse:
        incarnation = 0 if previous is None else previous.incarnation + 1
        return pulse.Pulse(slot, incarnation, pulse.Status.LIVE, 0, lease_ms, owner)

    planting.swap(pulse, "begin", begin)


@mutant("what the dead held is given back", "expiry", BANK)
def the_dead_are_not_buried(planting: Planting) -> None:
    planting.swap(leases.Leases, "bury", lambda _self, _machine: None)


@mutant("the durable hold never passes a pin that is out (S40)", "reads", BANK)
def hold_passes_pins(planting: Planting) -> None:
    planting.swap(holds.ReadHolds, "seqno_target", lambda self: self.seen_seqno)


@mutant("pins are counted (S41)", "reads", BANK)
def pins_are_not_counted(planting: Planting) -> None:
    def unpin(self: holds.ReadHolds, seqno: int) -> None:
        self._pins.pop(seqno, None)

    planting.swap(holds.ReadHolds, "unpin", unpin)


@mutant("lease before listing (S42)", "slow", BANK)
def pin_after_listing(planting: Planting) -> None:
    def pinned_view(lease: ReadLease) -> view.View:
        state = lease.machine.refresh()
        lease.holds.observe(lease.machine.refresh().seqno.number)
        return view.View(lease.pin(), state.upper, state)

    planting.swap_all((snapshot, lister), "pinned_view", pinned_view)


@mutant("a hold stays until the bytes are in hand (S11)", "reads", BANK)
def pin_ends_with_the_listing(planting: Planting) -> None:
    original = snapshot.Snapshot.__init__

    def init(self: snapshot.Snapshot, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        self._pin.give_back()

    planting.swap(snapshot.Snapshot, "__init__", init)


@mutant("a compactor pins what it reads", "slow", BANK)
def compaction_does_not_pin(planting: Planting) -> None:
    original = rounds.Rounds.__init__

    def init(self: rounds.Rounds, env: object, given: leases.Leases) -> None:
        original(self, env, given)  # type: ignore[arg-type]
        self._leases = _Careless(given)  # type: ignore[assignment]

    planting.swap(rounds.Rounds, "__init__", init)


@mutant("a term outlives the process that took it (R26)", "terms", BANK)
def terms_die_with_their_planner(planting: Planting) -> None:
    def term_reader(
        self: leases.Leases, machine: Machine, *, since: int | None, term_ms: int, purpose: str = ""
    ) -> TermHold:
        until_ms = self.env.patient(self.env.consensus.now_ms) + term_ms
        lease = self.reader_from(machine, since=since, lease_ms=None, purpose=purpose)
        lease.closed = True
        return TermHold(lease.id, lease.since or 0, lease.holds.applied_seqno, until_ms)

    planting.swap(leases.Leases, "term_reader", term_reader)
    planting.swap(shard.Shard, "end_term", lambda _self, _id: None)


@mutant("a term lasts until its end (R26)", "terms", BANK)
def terms_end_early(planting: Planting) -> None:
    original = leases.Leases._expire  # noqa: SLF001

    def expire(self: leases.Leases, machine: Machine, over: frozenset[str]) -> None:
        original(self, machine, over)
        if machine.state.terms():
            now_ms = self.env.patient(self.env.consensus.now_ms)
            machine.commit(c.Expire(frozenset(), now_ms + 250))

    planting.swap(leases.Leases, "_expire", expire)


@mutant("objects stay while a term holds them (R26)", "terms", BANK)
def terms_hold_no_objects(planting: Planting) -> None:
    def seqno_hold(self: State) -> int:
        leased = [r.seqno for r in self.readers.values() if r.until_ms is None]
        return min(leased, default=self.seqno.number)

    planting.swap(State, "seqno_hold", seqno_hold)


@mutant("history stays while a term holds it (R3, R26)", "terms", BANK)
def terms_hold_no_history(planting: Planting) -> None:
    original = State.since_holds

    def since_holds(self: State) -> Iterator[tuple[str, int]]:
        terms = self.terms()
        return ((name, time) for name, time in original(self) if name not in terms)

    planting.swap(State, "since_holds", since_holds)


@mutant("a term that ended is dropped", "terms", BANK)
def ended_terms_stay(planting: Planting) -> None:
    planting.swap(State, "terms", lambda _self: {})


class _Careless:
    """The leases of a process, whose own readers pin nothing."""

    def __init__(self, inner: leases.Leases, machine: Machine | None = None) -> None:
        self._inner = inner
        self._machine = machine

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def own_reader(self, machine: Machine) -> _Careless:
        return _Careless(self._inner, machine)

    def pin(self) -> _Careless:
        return self

    def state(self) -> object:
        return None if self._machine is None else self._machine.refresh()

    def give_back(self) -> None:
        """Nothing was taken."""
