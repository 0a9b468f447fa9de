"""Who publishes to a sink, and how far it was: one record, so that one excludes the other. Pure.

    owner    command                 then
    -----    --------------------    -----------------------------------------------------------
    nobody   take(me)                mine, in the next term
    me       renew, intend, done     the counter moves; a suspicion is forgotten
    me       release                 nobody's
    other    suspect(now)            remember (counter, now), unless this counter is suspected
    other    take(me, now)           mine, if the suspicion is of this very counter and at least
                                     one lease old by the store's clock; else nothing
    other    renew, intend, done     None: the claim was lost, and nothing is written

Suspicion and taking are compare-and-sets on the same key as everything the owner writes, as with
pulses: an owner that renews in between makes them fail, and one that was replaced can't put an
intent on record. So *check the claim* and *intend* are one step. No owner's clock is ever asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.sink import NOTHING_YET
from strandline.parts.envelope import decoded, seal, unseal
from strandline.pipeline.delivery import Mark

if TYPE_CHECKING:
    from strandline.model.ids import SeqNo

KEY_PREFIX = "claims/"
LINEAGES_KEPT = 16
NOBODY = ""
_replace = msgspec.structs.replace


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """The durable record of one sink."""

    owner: str = NOBODY
    """The token of one publisher's handle: a process that comes back has another."""
    name: str = ""
    """The replica, for people."""
    term: int = 0
    """How often it was taken."""
    counter: int = 0
    lease_ms: int = 0
    suspected_counter: int = -1
    suspected_ms: int = 0
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)
    """By lineage, the newest last: whoever goes back to an older program goes on there."""


_decoder = msgspec.msgpack.Decoder(Claim)


@dataclass(frozen=True, slots=True)
class Me:
    """Who asks for a claim."""

    owner: str
    name: str = ""
    lease_ms: int = 4_000


@dataclass(slots=True)
class Watch:
    """What a process has seen of another one's claim, by its own clock."""

    counter: int = -1
    term: int = -1
    since_ms: int = field(default=0)

    def unmoved_ms(self, claim: Claim, now_ms: int) -> int:
        """For how long it was not seen to move."""
        if (claim.counter, claim.term) != (self.counter, self.term):
            self.counter, self.term, self.since_ms = claim.counter, claim.term, now_ms
        return now_ms - self.since_ms


def take(claim: Claim, me: Me, now_ms: int) -> Claim | None:
    """The claim as mine, or `None` if it is another one's who may be alive."""
    if claim.owner == me.owner:
        return claim
    if claim.owner != NOBODY and not _may_end(claim, now_ms):
        return None
    return _replace(
        claim,
        owner=me.owner,
        name=me.name,
        term=claim.term + 1,
        counter=claim.counter + 1,
        lease_ms=me.lease_ms,
        suspected_counter=-1,
        suspected_ms=0,
    )


def suspect(claim: Claim, now_ms: int) -> Claim | None:
    """Remember that nobody has seen it move; `None` if there is nothing to remember.

    A suspicion from the future was made before the clock was set back; it is made anew.
    """
    if claim.owner == NOBODY:
        return None
    if claim.suspected_counter == claim.counter and claim.suspected_ms <= now_ms:
        return None
    return _replace(claim, suspected_counter=claim.counter, suspected_ms=now_ms)


def renew(claim: Claim, owner: str) -> Claim | None:
    """The owner is alive; `None` means that it lost the claim."""
    if claim.owner != owner:
        return None
    return _replace(claim, counter=claim.counter + 1, suspected_counter=-1, suspected_ms=0)


def release(claim: Claim, owner: str) -> Claim | None:
    """The owner lets go, so that nobody has to wait for the lease to run out."""
    if claim.owner != owner:
        return None
    return _replace(claim, owner=NOBODY, name="", counter=claim.counter + 1)


def marked(claim: Claim, owner: str, lineage: str, mark: Mark | None) -> Claim | None:
    """What the owner puts on record about a lineage; `None` means that it lost the claim."""
    mine = renew(claim, owner)
    if mine is None or mark is None:
        return mine
    marks = {name: each for name, each in claim.marks.items() if name != lineage}
    kept = dict(list(marks.items())[-(LINEAGES_KEPT - 1) :])
    return _replace(mine, marks={**kept, lineage: mark})


def older_lineages(claim: Claim, lineage: str) -> tuple[str, ...]:
    """The others of which something was delivered, or may have been; the last that was, last."""
    return tuple(
        name for name, mark in claim.marks.items() if name != lineage and mark.intent > NOTHING_YET
    )


def newer_lineages(claim: Claim, lineage: str) -> tuple[str, ...]:
    """Those that were published since this one was, by their epochs: it goes back."""
    mine = claim.marks.get(lineage)
    older = older_lineages(claim, lineage)
    return tuple(each for each in older if mine and claim.marks[each].epoch > mine.epoch)


def _may_end(claim: Claim, now_ms: int) -> bool:
    return (
        claim.suspected_counter == claim.counter and now_ms - claim.suspected_ms >= claim.lease_ms
    )


def encode_claim(claim: Claim, key: str, seqno: SeqNo) -> bytes:
    return seal("claim", key, str(seqno), msgspec.msgpack.encode(claim))


def decode_claim(key: str, seqno: SeqNo, data: bytes) -> Claim:
    what = f"{key} at {seqno}"
    _, body = unseal(data, kind="claim", owner=key, at=str(seqno), what=what)
    return decoded(_decoder, body, what)
