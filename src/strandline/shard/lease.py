"""One lease, as its holder has it: a reader with its pins, or a writer.

    pin      before listing; the objects of the state then loaded stay until it is given back
    since    moved lazily by `downgrade`, at once by `downgrade(durable=True)`
    lost     the state no longer lists the reader, or the pulse ended: `LeaseLostError` for ever

A handle never has to be called to stay alive, and one that is forgotten is noticed: its
finaliser leaves a note for the background task of `leases`, and takes no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from strandline.errors import HandleClosedError, LeaseLostError, NotFoundError, UsageError
from strandline.shard import command as c

if TYPE_CHECKING:
    from strandline.shard.holds import ReadHolds
    from strandline.shard.leases import Leases
    from strandline.shard.machine import Machine
    from strandline.shard.state import State


class Heart(Protocol):
    """Keeps one pulse of this process beating."""

    @property
    def pulse_id(self) -> str: ...

    @property
    def lease_ms(self) -> int: ...

    @property
    def lost(self) -> bool: ...

    def tend(self) -> None:
        """Called at every tick: mend what keeps it beating."""
        ...

    def stop(self) -> None: ...


class Pin:
    """Keeps the objects of one version, and of all later ones, until it is given back."""

    def __init__(self, lease: ReadLease, seqno: int) -> None:
        self.seqno = seqno
        self._lease = lease
        self._out = True

    def state(self) -> State:
        """A version at or after the pinned one: what it refers to stays."""
        return self._lease.state_from(self.seqno)

    def share(self) -> Pin:
        """A second pin on the same version, to be given back by itself."""
        return self._lease.pin_again(self.seqno)

    def give_back(self) -> None:
        if self._out:
            self._out = False
            self._lease.unpin(self.seqno)

    def __del__(self) -> None:
        # Dropped rather than given back: the background task settles it at its next tick.
        if self._out:
            self._lease.holds.forget(self.seqno)


class ReadLease:
    """One leased reader of this process."""

    def __init__(
        self, leases: Leases, machine: Machine, heart: Heart, reader_id: str, holds: ReadHolds
    ) -> None:
        self.id = reader_id
        self.shard_id = machine.state.id
        self.machine = machine
        self.heart = heart
        self.holds = holds
        self.lost = ""
        self.closed = False
        self._leases = leases

    @property
    def since(self) -> int | None:
        return self.holds.wanted_since

    def pin(self) -> Pin:
        """Lease before listing: take this first, then look at `pin.state()`."""
        self.check()
        with self._leases.changed:
            return Pin(self, self.holds.pin())

    def pin_again(self, seqno: int) -> Pin:
        with self._leases.changed:
            self.holds.pin_again(seqno)
        return Pin(self, seqno)

    def unpin(self, seqno: int) -> None:
        if self.machine.env.home.is_here():
            with self._leases.changed:
                self.holds.unpin(seqno)

    def state_from(self, seqno: int) -> State:
        """The newest version; never one from before the pin, which may name deleted objects."""
        state = self.machine.refresh()
        while state.seqno.number < seqno:
            state = self.machine.refresh()
        if state.id != self.shard_id:
            raise NotFoundError(
                f"shard {self.machine.name} was dropped and created anew: open it again"
            )
        if self.id not in state.readers:
            self.mark_lost("the shard no longer lists it")
        self.check()
        return state

    def downgrade(self, since: int, *, durable: bool = False) -> None:
        """Give up telling times before `since` apart. Never undone; later calls win."""
        self.check()
        with self._leases.changed:
            held = self.holds.wanted_since
            if held is None:
                raise UsageError(f"shard {self.machine.name}: reader {self.id} holds no times")
            if since < held:
                raise UsageError(
                    f"shard {self.machine.name}: cannot move since back from {held} to {since}"
                )
            self.holds.downgrade(since)
        if durable:
            self._leases.sync(self.machine)
            self.check()

    def check(self) -> None:
        """Raise if this lease is closed or known to be lost."""
        if self.closed:
            raise HandleClosedError(f"shard {self.machine.name}: this reader was closed")
        self.machine.env.home.check()
        if self.heart.lost and not self.lost:
            self.mark_lost("its process did not renew it in time")
        if self.lost:
            raise LeaseLostError(
                f"shard {self.machine.name}: the lease of reader {self.id} was lost, {self.lost}; "
                "open a new reader"
            )

    def mark_lost(self, reason: str) -> None:
        if not self.lost and not self.closed:
            self.lost = reason
            self.machine.env.metrics.add("leases_lost", self.machine.name)

    def clone(self, purpose: str = "") -> ReadLease:
        """A reader of its own, holding what this one holds (S53)."""
        self.check()
        return self._leases.reader(
            self.machine, since=self.holds.applied_since, purpose=purpose, heart=self.heart
        )

    def close(self) -> None:
        """Give the lease back; returns once the shard no longer lists it."""
        if not self.closed:
            self.closed = True
            self._leases.release(self)

    def __del__(self) -> None:
        # Forgotten rather than closed: the background task gives it back at its next tick.
        if not self.closed:
            self._leases.forgotten.append((self.machine, c.Release(readers=(self.id,))))


class WriteLease:
    """One leased writer of this process: while it is listed, its parts stay."""

    def __init__(self, leases: Leases, machine: Machine, heart: Heart, writer_id: str) -> None:
        self.id = writer_id
        self.machine = machine
        self.heart = heart
        self.closed = False
        self._leases = leases

    def check(self) -> None:
        if self.closed:
            raise HandleClosedError(f"shard {self.machine.name}: this writer was closed")
        self.machine.env.home.check()
        if self.heart.lost:
            raise LeaseLostError(
                f"shard {self.machine.name}: the lease of writer {self.id} was lost, its process "
                "did not renew it in time; open a new writer"
            )

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._leases.release_writer(self)

    def __del__(self) -> None:
        if not self.closed:
            self._leases.forgotten.append((self.machine, c.Release(writers=(self.id,))))
