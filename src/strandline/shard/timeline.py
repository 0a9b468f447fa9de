"""A plain, durable timeline: several shards that move together by one record.

The order in which an owner touches durable things; every crash point is safe:

    1  own      raise the timeline's epoch            crash: nothing else changed
    2  fence    every member takes the new epoch and  crash: the next owner does it again
                loses what was never committed
    3  stage    append to each shard at t             crash: invisible; the next owner's step 2
    4  commit   one record moves the frontier past t  visible in all shards at once

A member that is not fenced could still take an old owner's append at t, which step 4 would then
show although its owner never committed it; so step 2 comes before anything is staged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from strandline.errors import ConflictError, FencedError, MaybeAppliedError
from strandline.model.frontier import Frontier, Time
from strandline.model.ids import SeqNo, valid_name
from strandline.parts.envelope import decoded, seal, unseal
from strandline.shard import command as c
from strandline.shard.env import PATIENCE
from strandline.shard.machine import raise_refusal
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.shard.env import Env
    from strandline.shard.machine import Machine

_PAGE = 512
_FIRST = SeqNo(0)
_Record = TypeVar("_Record", "Tick", "Members")


class Tick(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One version of a timeline."""

    upper: int | None
    instant_ms: int
    epoch: int
    token: str
    """Tells the owner whose answer got lost that this record is its own."""


class Members(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The shards that are, or are about to be, attached."""

    names: tuple[str, ...]


class PlainTimeline:
    """A timeline in Consensus. Anybody may read it; one owner at a time moves it."""

    def __init__(self, env: Env, name: str) -> None:
        self.name = valid_name(name, "timeline")
        self.env = env
        self._key = f"timeline/{name}"
        self._members_key = f"timeline-members/{name}"

    def committed(self) -> Frontier:
        _, tick = self.head()
        return Frontier(0) if tick is None else Frontier(tick.upper)

    def time_at(self, instant_ms: int) -> Time | None:
        found: Time | None = None
        for tick in self._history():
            if tick.instant_ms > instant_ms:
                break
            last = Frontier(tick.upper).last()
            found = found if last is None else last
        return found

    def instant_of(self, time: Time) -> int | None:
        for tick in self._history():
            if Frontier(tick.upper).settled(time):
                return tick.instant_ms
        return None

    def members(self) -> tuple[str, ...]:
        _, members = self._read(self._members_key, Members)
        return () if members is None else members.names

    def attach(self, machine: Machine) -> None:
        """Put a shard on this timeline, for good. Its upper becomes the timeline's."""
        rounds = self._rounds()
        while machine.name not in self.members():
            next(rounds)
            seqno, members = self._read(self._members_key, Members)
            names = () if members is None else members.names
            self._write(self._members_key, seqno, Members((*names, machine.name)))
        outcome, state = machine.commit(c.Attach(self.name, self.committed(), self._epoch()))
        if not (isinstance(outcome, c.Fenced) and state.timeline == self.name):
            raise_refusal(machine.name, outcome)
        # An owner that took over meanwhile did not find this shard attached, so fence for it;
        # one that has found it since, and fenced it higher, is what we want.
        machine.commit(c.Fence(max(self._epoch(), machine.state.epoch)))

    def raise_epoch(self) -> Tick:
        """The first step of a takeover: from now on no older owner can commit."""
        token = self.env.random.token()
        rounds = self._rounds()
        while True:
            next(rounds)
            seqno, tick = self.head()
            base = tick or Tick(0, 0, 0, "")
            mine = Tick(base.upper, base.instant_ms, base.epoch + 1, token)
            if base.token == token or self._write(self._key, seqno, mine):
                break
        _, tick = self.head()
        if tick is None or tick.token != token:
            raise FencedError(f"timeline {self.name}: another owner took over at once; stop")
        return tick

    def head(self) -> tuple[SeqNo | None, Tick | None]:
        return self._read(self._key, Tick)

    def _epoch(self) -> int:
        _, tick = self.head()
        return 0 if tick is None else tick.epoch

    def commit(self, epoch: int, lower: Frontier, upper: Frontier) -> Tick:
        """Move from `lower` to `upper` in the name of an epoch; visible everywhere at once."""
        token = self.env.random.token()
        tried: SeqNo | None = None
        rounds = self._rounds()
        while True:
            next(rounds)
            seqno, tick = self.head()
            # A record that got no answer may have counted before the next owner came.
            mine = None if tried is None else self._found(token, tried)
            if mine is not None:
                return mine
            if tick is None or tick.epoch != epoch:
                now = 0 if tick is None else tick.epoch
                raise FencedError(
                    f"timeline {self.name}: a newer owner, e{now}, has taken over; stop"
                )
            if Frontier(tick.upper) != lower:
                raise ConflictError(
                    f"timeline {self.name} is at {Frontier(tick.upper)}, not at {lower}"
                )
            instant_ms = max(tick.instant_ms, self.env.patient(self.env.consensus.now_ms))
            new = Tick(upper.time, instant_ms, epoch, token)
            if self._write(self._key, seqno, new):
                return new
            tried = tried or seqno

    def forget_before(self, instant_ms: int) -> None:
        """Forget when times before an instant were committed; the frontier stays."""
        start = SeqNo(0)
        for version in self._scan(start):
            tick = self._decode(self._key, version, Tick)
            if tick.instant_ms >= instant_ms:
                self.env.patient(
                    lambda before=version.seqno: self.env.consensus.truncate(  # type: ignore[misc]
                        self._key, before
                    )
                )
                return

    def _rounds(self) -> Iterator[None]:
        """The rounds of a loop: paused from the second on, and ended at the deadline."""
        deadline = self.env.clock.monotonic_ms() + self.env.settings.commit_deadline_ms
        yield
        for pause_ms in PATIENCE.delays(self.env.random):
            if self.env.clock.monotonic_ms() >= deadline:
                raise MaybeAppliedError(
                    f"timeline {self.name}: the store did not say whether it happened; "
                    "look at the timeline before trying again"
                )
            self.env.tasks.sleep(pause_ms)
            yield

    def _found(self, token: str, start: SeqNo) -> Tick | None:
        return next((tick for tick in self._history(start) if tick.token == token), None)

    def _history(self, start: SeqNo = _FIRST) -> Iterator[Tick]:
        for version in self._scan(start):
            yield self._decode(self._key, version, Tick)

    def _scan(self, start: SeqNo) -> Iterator[Versioned]:
        while True:
            page = self.env.patient(
                lambda start=start: self.env.consensus.scan(  # type: ignore[misc]
                    self._key, start, _PAGE
                )
            )
            yield from page
            if len(page) < _PAGE:
                return
            start = page[-1].seqno.next()

    def _read(self, key: str, kind: type[_Record]) -> tuple[SeqNo | None, _Record | None]:
        head = self.env.patient(lambda: self.env.consensus.head(key))
        if head is None:
            return None, None
        return head.seqno, self._decode(key, head, kind)

    def _decode(self, key: str, version: Versioned, kind: type[_Record]) -> _Record:
        what = f"version {version.seqno} of {key}"
        _, body = unseal(
            version.data, kind=kind.__name__, owner=key, at=str(version.seqno), what=what
        )
        return decoded(msgspec.msgpack.Decoder(kind), body, what)

    def _write(self, key: str, after: SeqNo | None, record: Tick | Members) -> bool:
        """Compare-and-set; with no answer, what is there now decides."""
        seqno = SeqNo(0) if after is None else after.next()
        body = msgspec.msgpack.encode(record)
        version = Versioned(seqno, seal(type(record).__name__, key, str(seqno), body))
        try:
            result = self.env.insistent(lambda: self.env.consensus.compare_and_set(key, version))
        except MaybeAppliedError:
            return False
        return result is CasResult.COMMITTED
