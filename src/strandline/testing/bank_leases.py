"""Mutants of leases: pulses, holds and pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.reading import lister, snapshot, view
from strandline.shard import command as c, holds, leases, pulse, pulses
from strandline.testing.mutants import Mutant, Planting, mutant
from strandline.upkeep import rounds

if TYPE_CHECKING:
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
