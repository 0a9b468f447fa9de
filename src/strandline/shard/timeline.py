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

from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

import msgspec

from strandline.errors import (
    ConflictError,
    FencedError,
    MaybeAppliedError,
    NotAppliedError,
    StrandlineError,
)
from strandline.model.frontier import Frontier, Time
from strandline.model.ids import SeqNo, valid_name
from strandline.parts.envelope import decoded, seal, unseal
from strandline.shard import command as c
from strandline.shard.decide import decide
from strandline.shard.env import PATIENCE
from strandline.shard.machine import raise_refusal
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.shard.env import Env
    from strandline.shard.machine import Machine
    from strandline.shard.state import State

_PAGE = 512
_FIRST = SeqNo(0)
_Record = TypeVar("_Record", "Tick", "Members")
_Listed = tuple[tuple[str, str], ...]

ANY = ""
"""In the place of a member's id, in lists from before they had ids: whatever has the name."""
_NONE = "-"
"""In the place of a member's id: nobody attaches it. An owner that read the list before may have
done so, and the next one must find it to fence it; so the name stays."""


class Tick(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One version of a timeline."""

    upper: int | None
    instant_ms: int
    epoch: int
    token: str
    """Tells the owner whose answer got lost that this record is its own."""


class Members(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The shards that are, or are about to be, attached.

    A name is there once for each attempt that may still attach it, so that one which is refused
    takes back nothing that another one relies on.
    """

    names: tuple[str, ...]
    ids: tuple[str, ...] = ()
    """The id of each: a shard that is created anew under the name is another one."""
    token: str = ""
    """As in a tick."""


def _pairs(members: Members | None) -> _Listed:
    if members is None:
        return ()
    ids = members.ids[: len(members.names)]
    return tuple(zip_longest(members.names, ids, fillvalue=ANY))


def with_member(listed: _Listed, name: str, shard_id: str) -> _Listed:
    """The list with one more attempt."""
    kept = tuple(each for each in listed if each not in ((name, ANY), (name, _NONE)))
    return (*kept, (name, shard_id))


def without_member(listed: _Listed, name: str, shard_id: str) -> _Listed:
    """The list after an attempt was refused."""
    if (name, shard_id) not in listed:
        return listed
    at = listed.index((name, shard_id))
    left = (*listed[:at], *listed[at + 1 :])
    return left if any(each[0] == name for each in left) else (*left, (name, _NONE))


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
        start = self._near(lambda tick: tick.instant_ms <= instant_ms)
        for tick in self._history(start):
            if tick.instant_ms > instant_ms:
                break
            last = Frontier(tick.upper).last()
            found = found if last is None else last
        return found

    def instant_of(self, time: Time) -> int | None:
        following: SeqNo | None = None
        for version in self._scan(self._near(lambda tick: not Frontier(tick.upper).settled(time))):
            tick = self._decode(self._key, version, Tick)
            upper = Frontier(tick.upper)
            if upper.settled(time):
                # One whose predecessor was forgotten, maybe just now, tells of its last time
                # only: that one may have committed the others.
                known = version.seqno in (following, _FIRST) or upper.last() == time
                return tick.instant_ms if known else None
            following = version.seqno.next()
        return None

    def members(self) -> tuple[str, ...]:
        """The names of the shards that are, or are about to be, attached."""
        return tuple(dict.fromkeys(name for name, which in self._listed()[1] if which != _NONE))

    def listed(self) -> dict[str, frozenset[str]]:
        """For each name that may be attached, the ids of the shards that asked for it, or `ANY`."""
        found: dict[str, frozenset[str]] = {}
        for name, shard_id in self._listed()[1]:
            found[name] = found.get(name, frozenset()) | {shard_id}
        return found

    def attach(self, machine: Machine) -> None:
        """Put a shard on this timeline, for good. Its upper becomes the timeline's."""
        state = machine.refresh()
        name, shard_id = machine.name, state.id
        attach = c.Attach(self.name, self.committed(), self._epoch(), shard_id)
        # What is refused anyway is not even listed.
        self._check_attached(name, decide(state, attach), state)
        if state.timeline != self.name or name not in self.members():
            self._change_members(lambda listed: with_member(listed, name, shard_id))
        # An owner attaches what is listed, so from here on it may happen without us.
        with self._doubtful():
            attach = replace(attach, committed=self.committed(), epoch=self._epoch())
            outcome, state = machine.commit(attach)
            try:
                self._check_attached(name, outcome, state)
            except StrandlineError:
                self._change_members(lambda listed: without_member(listed, name, shard_id))
                raise
            # An owner that took over meanwhile did not find this shard attached, so fence for
            # it; one that has found it since, and fenced it higher, is what we want.
            machine.commit(c.Fence(max(self._epoch(), machine.state.epoch)))

    def _check_attached(self, name: str, outcome: c.Outcome, state: State) -> None:
        if not (isinstance(outcome, c.Fenced) and state.timeline == self.name):
            raise_refusal(name, outcome)

    def _listed(self) -> tuple[SeqNo | None, _Listed]:
        seqno, members = self._read(self._members_key, Members)
        return seqno, _pairs(members)

    def _change_members(self, change: Callable[[_Listed], _Listed]) -> None:
        token = self.env.random.token()
        tried: SeqNo | None = None
        rounds = self._rounds()
        while True:
            next(rounds)
            with self._doubtful(tried=tried is not None):
                seqno, listed = self._listed()
                new = change(listed)
                if new == listed or (tried is not None and self._is_listed(token, tried)):
                    return
                names, ids = zip(*new, strict=True)
                if self._write(self._members_key, seqno, Members(names, ids, token)):
                    return
                tried = tried or seqno or _FIRST

    def _is_listed(self, token: str, start: SeqNo) -> bool:
        """Whether a change of the members whose answer got lost was made."""
        key = self._members_key
        versions = self._scan(start, key)
        return any(self._decode(key, version, Members).token == token for version in versions)

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
            with self._doubtful(tried=tried is not None):
                seqno, tick = self.head()
                # A record that got no answer may have counted before the next owner came.
                mine = None if tried is None else self._found(token, tried)
                if mine is not None:
                    return mine
                now = self._check_turn(tick, epoch, lower)
                instant_ms = max(now.instant_ms, self.env.patient(self.env.consensus.now_ms))
                new = Tick(upper.time, instant_ms, epoch, token)
                if self._write(self._key, seqno, new):
                    return new
                tried = tried or seqno

    def check_epoch(self, epoch: int) -> Tick:
        """The newest tick, if it is of this epoch."""
        return self._of_epoch(self.head()[1], epoch)

    def _of_epoch(self, tick: Tick | None, epoch: int) -> Tick:
        if tick is None or tick.epoch != epoch:
            now = 0 if tick is None else tick.epoch
            raise FencedError(f"timeline {self.name}: a newer owner, e{now}, has taken over; stop")
        return tick

    def _check_turn(self, tick: Tick | None, epoch: int, lower: Frontier) -> Tick:
        mine = self._of_epoch(tick, epoch)
        if Frontier(mine.upper) != lower:
            raise ConflictError(
                f"timeline {self.name} is at {Frontier(mine.upper)}, not at {lower}"
            )
        return mine

    def forget_below(self, time: Time) -> None:
        """Forget when times below one were committed; the frontier stays.

        What is kept begins with the end of a commit: the instants of times in the middle of the
        first that is left could not be told.
        """
        kept, reached = _FIRST, Frontier(0)
        for version in self._scan(_FIRST):
            upper = Frontier(self._decode(self._key, version, Tick).upper)
            if upper.settled(time + 1):
                break
            if reached < upper:
                kept, reached = version.seqno, upper
        if kept > _FIRST:
            self.env.patient(lambda: self.env.consensus.truncate(self._key, kept))

    def _rounds(self) -> Iterator[None]:
        """The rounds of a loop: paused from the second on, and ended at the deadline."""
        deadline = self.env.clock.monotonic_ms() + self.env.settings.commit_deadline_ms
        yield
        for pause_ms in PATIENCE.delays(self.env.random):
            if self.env.clock.monotonic_ms() >= deadline:
                raise self._silent()
            self.env.tasks.sleep(pause_ms)
            yield

    @contextmanager
    def _doubtful(self, *, tried: bool = True) -> Iterator[None]:
        """That a look did not happen says nothing of what was tried before it."""
        try:
            yield
        except NotAppliedError as error:
            if not tried:
                raise
            raise self._silent() from error

    def _silent(self) -> MaybeAppliedError:
        return MaybeAppliedError(
            f"timeline {self.name}: the store did not say whether it happened; "
            "look at the timeline before trying again"
        )

    def _found(self, token: str, start: SeqNo) -> Tick | None:
        return next((tick for tick in self._history(start) if tick.token == token), None)

    def _history(self, start: SeqNo = _FIRST) -> Iterator[Tick]:
        for version in self._scan(start):
            yield self._decode(self._key, version, Tick)

    def _near(self, before: Callable[[Tick], bool]) -> SeqNo:
        """Where to look for the first tick that is not `before` others: a page from it at most.

        There may be very many, and upkeep asks in every round.
        """
        head, _ = self.head()
        low, high = 0, 0 if head is None else head.number
        while high - low > _PAGE:
            middle = (low + high) // 2
            # The head is not below, so there is one; it may lie above what was forgotten.
            found = self._page(self._key, SeqNo(middle), 1)[0]
            if before(self._decode(self._key, found, Tick)):
                low = found.seqno.number
            else:
                high = middle
        return SeqNo(low)

    def _scan(self, start: SeqNo, key: str = "") -> Iterator[Versioned]:
        while True:
            page = self._page(key or self._key, start, _PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            start = page[-1].seqno.next()

    def _page(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        return self.env.patient(lambda: self.env.consensus.scan(key, start, limit))

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
