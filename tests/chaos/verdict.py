"""Judges what the processes of a chaos run wrote down, against what was settled. Pure.

appends     what is settled at each time is one append that somebody meant, and no append is
            there twice; acknowledged ones are there, at their time; refused ones are not;
            together they tile the times, in real-time order
reads       a time has one answer, for everybody and for ever
streams     complete below every frontier, nothing twice, frontiers never move back
frontiers   upper, since and version never move back, whoever looks
errors      nobody met an error that a user would not understand: above all, no missing object
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tests.chaos.content import NOTHING, Digest, Span, digest_of
from tests.chaos.journal import Line
from tests.chaos.truth import Settled

from strandline.testing.checkers import linearizable_appends, monotone_frontiers
from strandline.testing.history import Append, History, Result, Seen

_FOR_EVER = 1 << 62


@dataclass(slots=True)
class Intent:
    """An append that somebody was about to make, and what they were told."""

    by: str
    shard: str
    lower: int | None
    new: Span
    gone: Span
    start: int
    end: int = _FOR_EVER
    result: Result = Result.UNKNOWN
    time: int | None = None
    seen: int | None = None

    @property
    def digest(self) -> Digest:
        return self.new.digest() - self.gone.digest()

    @property
    def updates(self) -> int:
        return self.new.count + self.gone.count

    def append(self) -> Append:
        lower = self.time if self.time is not None else self.lower
        upper = None if lower is None else lower + 1
        return Append(
            self.shard, self.by, self.start, self.end, self.result, lower, upper, seen=self.seen
        )


@dataclass(slots=True)
class Told:
    """One subscription: what it asked for, and what it was told, in order."""

    by: str
    shard: str
    as_of: int
    snapshot: bool
    events: list[int | tuple[list[int], list[int], list[int]]] = field(default_factory=list)


@dataclass(slots=True)
class Accounts:
    """All that the processes wrote down."""

    intents: list[Intent] = field(default_factory=list)
    reads: list[tuple[str, str, int, Digest]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    streams: list[Told] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def account(lives: Iterable[tuple[str, Sequence[Line]]]) -> Accounts:
    """Read the journals of all lives."""
    accounts = Accounts()
    for by, lines in lives:
        _Reading(by, accounts).take(lines)
    return accounts


class _Reading:
    """Reads one journal."""

    def __init__(self, by: str, accounts: Accounts) -> None:
        self._by = by
        self._to = accounts
        self._intents: dict[int, Intent] = {}
        self._stream: Told | None = None

    def take(self, lines: Sequence[Line]) -> None:
        for what, *facts in lines:
            self._to.counts[what] += 1
            if what in {"intent", "ack", "mismatch", "refused"}:
                self._append(what, facts)
            elif what in {"subscribed", "rows", "progress"}:
                self._event(what, facts)
            elif what == "read":
                shard, as_of, count, total = facts
                self._to.reads.append((self._by, shard, as_of, Digest(count, total)))
            elif what == "seen":
                self._saw(facts)
            elif what == "error":
                self._to.errors.append(f"{self._by}: {facts[0]}: {facts[1]}")

    def _append(self, what: str, facts: list) -> None:
        if what == "intent":
            number, shard, lower, first, count, gone_first, gone_count, start = facts
            intent = Intent(
                self._by, shard, lower, Span(first, count), Span(gone_first, gone_count), start
            )
            self._intents[number] = intent
            self._to.intents.append(intent)
            return
        intent = self._intents[facts[0]]
        intent.end = facts[-1]
        if what == "ack":
            intent.result, intent.time = Result.APPLIED, facts[1]
        elif what == "mismatch":
            intent.result, intent.seen = Result.MISMATCH, facts[1]
        else:
            intent.result = Result.REFUSED

    def _event(self, what: str, facts: list) -> None:
        if what == "subscribed":
            self._stream = Told(self._by, *facts)
            self._to.streams.append(self._stream)
        elif self._stream is not None:
            self._stream.events.append(facts[0] if what == "progress" else tuple(facts))

    def _saw(self, facts: list) -> None:
        shard, since, upper, seqno, start, end = facts
        for what, value in (("since", since), ("upper", upper), ("seqno", seqno)):
            self._to.seen.append(Seen(shard, self._by, what, start, end, value))


def judge(accounts: Accounts, settled: Mapping[str, Settled]) -> list[str]:
    """Everything that is wrong, as far as the witness has come.

    The journals must have been read after the witness caught up: an append is meant before it
    is settled. What they say about later times is left to the next judgement.
    """
    wrong = list(accounts.errors)
    for shard, truth in settled.items():
        wrong += stored(shard, [i for i in accounts.intents if i.shard == shard], truth)
    wrong += reads(accounts.reads, settled)
    for stream in accounts.streams:
        wrong += streamed(stream, settled[stream.shard])
    appends = [i.append() for i in accounts.intents if _is_witnessed(i, settled[i.shard])]
    history = History(appends=appends, seen=accounts.seen, tiled=set(settled))
    return [*wrong, *linearizable_appends(history), *monotone_frontiers(history)]


def _is_witnessed(intent: Intent, truth: Settled) -> bool:
    """Whether all that it refers to was settled before the first journal was read."""
    edges = [edge for edge in (intent.time, intent.seen) if edge is not None]
    return all(edge <= truth.frontier for edge in edges)


def stored(shard: str, intents: Sequence[Intent], truth: Settled) -> Iterator[str]:
    """Each settled time holds one append; each append is held at most once."""
    meant: defaultdict[tuple[Digest, int], list[Intent]] = defaultdict(list)
    for intent in intents:
        meant[intent.digest, intent.updates].append(intent)
    held: dict[tuple[Digest, int], int] = {}
    for time in range(truth.frontier):
        what = (truth.at.get(time, NOTHING), truth.updates.get(time, 0))
        calls = meant.get(what)
        if calls is None:
            yield f"{shard}: nobody wrote the {what[1]} updates that are settled at {time}"
            continue
        if what in held:
            yield f"{shard}: the append of {calls[0].by} is at {held[what]} and again at {time}"
        held[what] = time
        yield from _explained(shard, time, calls)
    for what, calls in meant.items():
        if what not in held:
            lost = [c for c in calls if c.time is not None and c.time < truth.frontier]
            yield from (f"{shard}: the append of {c.by} at {c.time} is gone" for c in lost)


def _explained(shard: str, time: int, calls: Sequence[Intent]) -> Iterator[str]:
    """Replicas mean the same append; exactly one of them, or an unanswered one, made it."""
    applied = [call for call in calls if call.result is Result.APPLIED]
    if len(applied) > 1:
        yield f"{shard}: {[call.by for call in applied]} were all told that they wrote {time}"
    if applied and applied[0].time != time:
        yield f"{shard}: {applied[0].by} wrote at {applied[0].time}, and it is at {time}"
    if not applied and not any(call.result is Result.UNKNOWN for call in calls):
        results = sorted({call.result.name for call in calls})
        yield f"{shard}: what {calls[0].by} was told {results} about is settled at {time}"


def reads(
    served: Sequence[tuple[str, str, int, Digest]], settled: Mapping[str, Settled]
) -> Iterator[str]:
    for by, shard, as_of, digest in served:
        expected = settled[shard].as_of(as_of)
        if as_of < settled[shard].frontier and digest != expected:
            yield f"{shard} as of {as_of} was {digest} for {by}, and it is {expected}"


def streamed(told: Told, truth: Settled) -> Iterator[str]:
    """Rows complete below every frontier, none twice."""
    stream = _Stream(told, truth)
    for event in told.events:
        if not isinstance(event, int):
            yield from stream.rows(*event)
        elif event <= truth.frontier:
            yield from stream.progress(event)
        else:
            return


class _Stream:
    """One subscription, followed event by event."""

    def __init__(self, told: Told, truth: Settled) -> None:
        self._name = f"{told.shard} from {told.as_of} for {told.by}"
        self._as_of = told.as_of
        self._truth = truth
        self._frontier = told.as_of
        # All times up to this one were compared.
        self._done = -1 if told.snapshot else told.as_of
        self._pending: defaultdict[int, Digest] = defaultdict(lambda: NOTHING)

    def rows(self, ids: list[int], times: list[int], diffs: list[int]) -> Iterator[str]:
        ids_at, times_at, diffs_at = (np.array(each, np.int64) for each in (ids, times, diffs))
        for time in sorted(set(times)):
            mine = times_at == time
            if time <= self._done:
                yield f"{self._name}: rows at {time} after the frontier {self._frontier}"
            self._pending[time] += digest_of(ids_at[mine], diffs_at[mine])

    def progress(self, frontier: int) -> Iterator[str]:
        if frontier < self._frontier:
            yield f"{self._name}: the frontier moved back from {self._frontier} to {frontier}"
        self._frontier = frontier
        if self._done < self._as_of < frontier:
            yield from self._snapshot()
        for time in range(self._done + 1, frontier):
            if self._pending.pop(time, NOTHING) != self._truth.at.get(time, NOTHING):
                yield f"{self._name}: the rows at {time} are not what is settled"
        self._done = max(self._done, frontier - 1)

    def _snapshot(self) -> Iterator[str]:
        """It comes in pieces, which add up."""
        early = [time for time in self._pending if time <= self._as_of]
        total = sum((self._pending.pop(time) for time in early), NOTHING)
        expected = self._truth.as_of(self._as_of)
        if total != expected:
            yield f"{self._name}: the snapshot is {total}, not {expected}"
        self._done = self._as_of
