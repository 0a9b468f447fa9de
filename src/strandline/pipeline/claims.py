"""A sink's claim in Consensus: looked for, taken, renewed, and everything its owner records.

    own watch of an unmoved counter    suspicion on record        then
    -------------------------------    -----------------------    -------------------
    less than half a lease             any                        look again later
    half a lease or more               none of this counter       suspect, on record
    half a lease or more               a lease old or more        take it

Both clocks must agree, as with pulses: the store's, which all share, and our own, which does not
run while the machine sleeps. With the lease of 4 s a dead owner is replaced within 10 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import MaybeAppliedError, SinkFencedError
from strandline.model.ids import SeqNo, valid_key
from strandline.pipeline import claim as c
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.pipeline.delivery import Mark
    from strandline.shard.env import Env

RENEWALS_PER_LEASE = 4
_KEEP_EVERY = 64


class Claims:
    """One publisher's side of the claim on one sink. May be used by several of its tasks."""

    def __init__(self, env: Env, pipeline: str, sink: str, *, name: str, lease_ms: int) -> None:
        self.key = _key(pipeline, sink)
        self.me = c.Me(env.random.token(), name, lease_ms)
        self._env = env
        self._watch = c.Watch()
        self._lease_ms = lease_ms

    def read(self) -> c.Claim:
        """The record as it is in the store."""
        claim = self._read()[1]
        self._watch.unmoved_ms(claim, self._env.clock.monotonic_ms())
        self._lease_ms = max(self.me.lease_ms, claim.lease_ms)
        return claim

    def rests(self) -> bool:
        """Whether nobody has it who lives, by what was read so far: it was not seen to move for a
        lease, ours or its owner's. Good enough to wait no longer, and not to take it."""
        return self._env.clock.monotonic_ms() - self._watch.since_ms >= self._lease_ms

    def take(self) -> c.Claim | None:
        """The claim, if it is ours now; else it comes one step closer."""
        seqno, claim = self._read()
        free = claim.owner in {c.NOBODY, self.me.owner}
        unmoved_ms = self._watch.unmoved_ms(claim, self._env.clock.monotonic_ms())
        if not free and unmoved_ms < claim.lease_ms // 2:
            return None
        now_ms = self._env.patient(self._env.consensus.now_ms)
        taken = c.take(claim, self.me, now_ms)
        if taken is not None:
            return taken if taken == claim or self._write(taken, seqno) else None
        suspected = c.suspect(claim, now_ms)
        if suspected is not None:
            self._write(suspected, seqno)
        return None

    def check(self) -> c.Claim:
        """The record, if it is still ours; `SinkFencedError` if it is not."""
        claim = self.read()
        if claim.owner != self.me.owner:
            raise _lost(self.key, claim)
        return claim

    def record(self, lineage: str, change: Callable[[Mark | None], Mark | None]) -> Mark | None:
        """Renew, and put on record what becomes of a lineage's mark, if the claim is still ours."""
        after = self._change(
            lambda claim: c.marked(claim, self.me.owner, lineage, change(claim.marks.get(lineage)))
        )
        return after.marks.get(lineage)

    def release(self) -> None:
        """Let go, if there is anything to let go of."""
        try:
            self._change(lambda claim: c.release(claim, self.me.owner))
        except SinkFencedError:
            return

    def _change(self, change: Callable[[c.Claim], c.Claim | None]) -> c.Claim:
        """Tasks of this process race for the record as well: whoever lost reads it again."""
        while True:
            seqno, claim = self._read()
            after = change(claim) if claim.owner == self.me.owner else None
            if after is None:
                raise _lost(self.key, claim)
            if self._write(after, seqno):
                return after

    def _read(self) -> tuple[SeqNo | None, c.Claim]:
        return _found(self._env, self.key)

    def _write(self, claim: c.Claim, after: SeqNo | None) -> bool:
        """Whether it counts; an answer that never came is looked up."""
        seqno = SeqNo(0) if after is None else after.next()
        version = Versioned(seqno, c.encode_claim(claim, self.key, seqno))
        consensus = self._env.consensus
        try:
            result = self._env.insistent(lambda: consensus.compare_and_set(self.key, version))
        except MaybeAppliedError:
            # Every version has a counter of its own, so an equal one is this one.
            return self._env.patient(lambda: consensus.head(self.key)) == version
        if seqno.number % _KEEP_EVERY == 0 and after is not None:
            self._env.patient(lambda: consensus.truncate(self.key, seqno))
        return result is CasResult.COMMITTED


def claim_of(env: Env, pipeline: str, sink: str) -> c.Claim:
    """The record of a sink, for whoever only looks."""
    return _found(env, _key(pipeline, sink))[1]


def _key(pipeline: str, sink: str) -> str:
    return valid_key(f"{c.KEY_PREFIX}{pipeline}/{sink}")


def _found(env: Env, key: str) -> tuple[SeqNo | None, c.Claim]:
    head = env.patient(lambda: env.consensus.head(key))
    if head is None:
        return None, c.Claim()
    return head.seqno, c.decode_claim(key, head.seqno, head.data)


def _lost(key: str, claim: c.Claim) -> SinkFencedError:
    who = f"{claim.name or 'another publisher'} has it" if claim.owner else "it was let go"
    return SinkFencedError(f"the claim {key} is no longer ours: {who} now")
