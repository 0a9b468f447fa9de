"""A process's heartbeat, and how it ends: the counter that keeps all of its leases alive.

Every leased reader and writer of a process refers to one pulse, a key of its own in Consensus,
so that a process renews all of its leases on all shards with one commit. The rules, as a table
(a *beat* is the owner's; anybody may *suspect* and *end*):

    status   command               then
    ------   -------               ---------------------------------------------------------
    none     begin                 LIVE at incarnation 0
    LIVE     beat(incarnation)     counter + 1; a suspicion is forgotten
    LIVE     suspect(now)          remember (counter, now), unless this counter is suspected
                                   already, at an instant that is not in the future
    LIVE     end(counter, now)     ENDED, if the suspicion is of this very counter and is at
                                   least one lease old by the store's clock; else nothing
    LIVE     stop(incarnation)     ENDED: its owner says so
    ENDED    beat                  Lost: a new incarnation, never a resurrection
    ENDED    begin                 LIVE at the next incarnation: the slot is used again

Suspicion and end are two compare-and-sets on the same key as the beat, so they can't race with
it: an owner that beats in between makes `end` fail, and an owner whose pulse ended finds out by
its next beat. A clock that jumps can shorten the wait but can't end a pulse that still beats,
because the suspicion has to be *of the counter as it is*.

Shards refer to a pulse as `slot.incarnation`. It is over once the slot's incarnation is higher
or the slot is ENDED; that never changes back, so dropping its readers and writers is safe.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from strandline.parts.envelope import decoded, seal, unseal

if TYPE_CHECKING:
    from strandline.model.ids import SeqNo

KEY_PREFIX = "pulse/"


class Status(Enum):
    """Whether the owner may count on its leases."""

    LIVE = "live"
    ENDED = "ended"


class Pulse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The durable heartbeat of one process."""

    slot: int
    incarnation: int
    status: Status
    counter: int
    lease_ms: int
    owner: str
    """Host, process id and purpose, for people."""
    suspected_counter: int = -1
    suspected_ms: int = 0

    @property
    def id(self) -> str:
        return f"{self.slot}.{self.incarnation}"


_decoder = msgspec.msgpack.Decoder(Pulse)


def begin(slot: int, previous: Pulse | None, *, lease_ms: int, owner: str) -> Pulse | None:
    """A new pulse in a slot, or `None` if the slot is taken."""
    if previous is not None and previous.status is Status.LIVE:
        return None
    incarnation = 0 if previous is None else previous.incarnation + 1
    return Pulse(slot, incarnation, Status.LIVE, 0, lease_ms, owner)


def beat(pulse: Pulse, incarnation: int) -> Pulse | None:
    """The owner is alive; `None` means that it lost its leases."""
    if pulse.incarnation != incarnation or pulse.status is not Status.LIVE:
        return None
    return msgspec.structs.replace(
        pulse, counter=pulse.counter + 1, suspected_counter=-1, suspected_ms=0
    )


def suspect(pulse: Pulse, now_ms: int) -> Pulse | None:
    """Remember that nobody has seen it move since; `None` if there is nothing to remember.

    A suspicion from the future was made before the clock was set back. It is made anew, or the
    dead would stay for as long as the clock was ahead.
    """
    if pulse.status is not Status.LIVE:
        return None
    if pulse.suspected_counter == pulse.counter and pulse.suspected_ms <= now_ms:
        return None
    return msgspec.structs.replace(pulse, suspected_counter=pulse.counter, suspected_ms=now_ms)


def may_end(pulse: Pulse, now_ms: int, *, leases: int = 1) -> bool:
    """Whether a suspicion has stood for `leases` leases by the store's clock."""
    return (
        pulse.status is Status.LIVE
        and pulse.suspected_counter == pulse.counter
        and now_ms - pulse.suspected_ms >= leases * pulse.lease_ms
    )


def end(pulse: Pulse, now_ms: int) -> Pulse | None:
    """Declare the owner gone, if `may_end`."""
    if not may_end(pulse, now_ms):
        return None
    return msgspec.structs.replace(pulse, status=Status.ENDED)


def stop(pulse: Pulse, incarnation: int) -> Pulse | None:
    """The owner says goodbye."""
    if pulse.incarnation != incarnation or pulse.status is not Status.LIVE:
        return None
    return msgspec.structs.replace(pulse, status=Status.ENDED)


def slot_of(pulse_id: str) -> tuple[int, int]:
    slot, _, incarnation = pulse_id.partition(".")
    return int(slot), int(incarnation)


def is_over(pulse_id: str, current: Pulse | None) -> bool:
    """Whether the pulse a shard refers to is gone for good."""
    _, incarnation = slot_of(pulse_id)
    if current is None:
        return True
    return current.incarnation > incarnation or (
        current.incarnation == incarnation and current.status is Status.ENDED
    )


def encode_pulse(pulse: Pulse, seqno: SeqNo) -> bytes:
    return seal("pulse", str(pulse.slot), str(seqno), msgspec.msgpack.encode(pulse))


def decode_pulse(slot: int, seqno: SeqNo, data: bytes) -> Pulse:
    what = f"pulse {slot} at {seqno}"
    _, body = unseal(data, kind="pulse", owner=str(slot), at=str(seqno), what=what)
    return decoded(_decoder, body, what)
