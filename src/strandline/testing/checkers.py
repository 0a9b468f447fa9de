"""Judges recorded histories: each checker returns what is wrong, as sentences. Pure.

    checker                  says
    ----------------------   ------------------------------------------------------------------
    definite_reads           one (shard, as_of) has one answer for ever
    linearizable_appends     successes tile `[0, upper)`, in real-time order; a mismatch reports
                             an upper that there was during the call
    nothing_lost             every read is the sum of what was acknowledged, at each time
    honest_streams           a frontier `{n}` comes after all rows before n, and never moves back
    monotone_frontiers       what anybody was shown never moves back, for anybody
    holds_respected          since stays at or below every hold, upper and epoch never go back
    stored_as_acknowledged   what is stored is what the writers meant, once
    atomic_groups            rows of one transaction are visible in all its shards, or in none
    held_objects_stay        no object is deleted that somebody may still read
    batches_count_once       a batch of an application is stored once, however often it is tried
    terms_last               a reader with a term is listed until the store's clock ends it

They need nothing but the history: no state of the system under test, no search.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from strandline.testing.history import CLOSED, NO_TIME, Append, History, Result, Stream
from strandline.testing.oracle import oracles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.testing.history import Seen, Update
    from strandline.testing.oracle import Oracle


_Rows = tuple[tuple[str, int], ...]


class HistoryError(AssertionError):
    """A history broke a promise; the message lists how."""


def check_history(history: History) -> None:
    """Run every checker; raise if any of them found something."""
    wrong = [f"{check.__name__}: {what}" for check in CHECKERS for what in check(history)]
    if wrong:
        raise HistoryError("\n".join(wrong[:20]))


def definite_reads(history: History) -> list[str]:
    first: dict[tuple[str, int], tuple[str, Counter[str]]] = {}
    wrong = []
    for read in history.reads:
        content = Counter({row: count for row, count in read.content.items() if count})
        who, before = first.setdefault((read.shard, read.as_of), (read.by, content))
        if before != content:
            wrong.append(
                f"{read.shard} as of {read.as_of} was {dict(before - content) or '{}'} more for "
                f"{who} than for {read.by}, and {dict(content - before) or '{}'} less"
            )
    return wrong


def linearizable_appends(history: History) -> list[str]:
    wrong: list[str] = []
    for shard in sorted({each.shard for each in history.appends}):
        calls = [each for each in history.appends if each.shard == shard]
        applied = sorted(
            (each for each in calls if each.result is Result.APPLIED), key=lambda c: c.lower or 0
        )
        wrong += [f"{shard}: {what}" for what in _real_time(applied)]
        if shard in history.tiled:
            unknown = [each for each in calls if each.result is Result.UNKNOWN]
            wrong += [f"{shard}: {what}" for what in _tiling(applied, unknown)]
            wrong += [f"{shard}: {what}" for what in _mismatches(calls, applied, unknown)]
    return wrong


def _real_time(applied: list[Append]) -> Iterable[str]:
    latest = 0
    who = ""
    for call in reversed(applied):
        if latest and call.start > latest:
            yield (
                f"{call.by} appended at {call.lower} after {who} had been told about a later time"
            )
        if not latest or call.end < latest:
            latest, who = call.end, call.by


def _tiling(applied: list[Append], unknown: list[Append]) -> Iterable[str]:
    """Gaps must be filled by appends of unknown fate, each of them once."""
    left = list(unknown)
    edge = 0
    for call in applied:
        lower = call.lower or 0
        if lower < edge:
            yield f"[{lower}, {call.upper}) of {call.by} overlaps what ended at {edge}"
        elif not _fill(edge, lower, left):
            yield f"nobody appended [{edge}, {lower}), and {call.by} appended after it"
        edge = max(edge, call.upper if call.upper is not None else CLOSED)


def _fill(edge: int, end: int, left: list[Append]) -> bool:
    while edge < end:
        fitting = [each for each in left if each.lower == edge] or [
            each for each in left if each.lower is None
        ]
        if not fitting:
            return False
        left.remove(fitting[0])
        upper = fitting[0].upper
        edge = edge + 1 if upper is None else upper
    return edge == end


def _mismatches(calls: list[Append], applied: list[Append], unknown: list[Append]) -> Iterable[str]:
    """An upper exists from the start of the append that made it until the next one's end."""
    begins = {0: 0} | {each.upper: each.start for each in applied if each.upper is not None}
    ends = {each.lower: each.end for each in applied if each.lower is not None}
    doubtful = {each.upper for each in unknown} | {each.lower for each in unknown}
    for call in calls:
        if call.result is not Result.MISMATCH or call.seen is None or None in doubtful:
            continue
        if call.seen in doubtful:
            continue
        if call.seen not in begins:
            yield f"{call.by} was told the upper {call.seen}, which never was"
        elif call.end < begins[call.seen]:
            yield f"{call.by} was told the upper {call.seen} before it was reached"
        elif call.start > ends.get(call.seen, call.start):
            yield f"{call.by} was told the upper {call.seen} after it had been left"
        if call.lower == call.seen:
            yield f"{call.by} was refused at {call.lower} although that was the upper"


def nothing_lost(history: History) -> list[str]:
    wrong = []
    known = oracles(history)
    for read in history.reads:
        reason = known[read.shard].explain(read.content, read.as_of)
        if reason:
            wrong.append(f"{read.shard} as of {read.as_of} for {read.by}: {reason}")
    for oracle in known.values():
        wrong += oracle.contradictions()
    return wrong


def honest_streams(history: History) -> list[str]:
    known = oracles(history)
    return [
        f"{stream.shard} for {stream.by}: {what}"
        for stream in history.streams
        for what in _stream(stream, known[stream.shard])
    ]


def _stream(stream: Stream, oracle: Oracle) -> Iterable[str]:
    pending: list[Update] = []
    frontier = stream.as_of if stream.snapshot else stream.as_of + 1
    done = NO_TIME if stream.snapshot else stream.as_of
    for item in stream.told:
        if not isinstance(item, int):
            early = [update for update in item if update[1] < frontier]
            if early:
                yield f"{early[0]} came after the frontier {frontier}"
            late = [u for u in item if stream.until is not None and u[1] >= stream.until]
            if late:
                yield f"{late[0]} is not before until={stream.until}"
            pending += item
            continue
        if item < frontier:
            yield f"the frontier moved back from {frontier} to {item}"
        if stream.until is not None and stream.until <= stream.as_of:
            continue  # Nothing is asked for, so nothing is missing.
        last = (CLOSED if stream.until is None else stream.until) - 1
        last = last if item == CLOSED else item - 1
        steps = [stream.as_of, last] if done == NO_TIME and last > stream.as_of else [last]
        for upto in steps:
            ready = [update for update in pending if update[1] <= upto]
            pending = [update for update in pending if update[1] > upto]
            yield from _complete(ready, oracle, done, upto)
            done = max(done, upto)
        frontier = max(frontier, item)


def _complete(ready: list[Update], oracle: Oracle, done: int, last: int) -> Iterable[str]:
    """All rows in `(done, last]` are there, each with its own time; the first lot is a sum."""
    sums: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for row, time, diff in ready:
        sums[time][row] += diff
    total: Counter[str] = Counter()
    for content in sums.values():
        total.update(content)
    reason = oracle.explain(total, last, after=done)
    if reason:
        yield f"frontier {last + 1} was reported after {done + 1}: {reason}"
    elif done != NO_TIME:
        edges = [done, *sorted(sums), last]
        for before, time in pairwise(edges):
            reason = oracle.explain(sums.get(time, Counter()), time, after=before)
            if reason and before < time:
                yield f"the rows at {time} are wrong: {reason}"


def monotone_frontiers(history: History) -> list[str]:
    wrong = []
    found: defaultdict[tuple[str, str], list[Seen]] = defaultdict(list)
    for seen in history.seen:
        found[seen.shard, seen.what].append(seen)
    for (shard, what), mine in found.items():
        best: Seen | None = None
        ended = sorted(mine, key=lambda s: s.end)
        at = 0
        for seen in sorted(mine, key=lambda s: s.start):
            while at < len(ended) and ended[at].end < seen.start:
                if best is None or ended[at].value > best.value:
                    best = ended[at]
                at += 1
            if best is not None and seen.value < best.value:
                wrong.append(
                    f"{what} of {shard} was {best.value} for {best.by} and then {seen.value} "
                    f"for {seen.by}"
                )
    return wrong


def holds_respected(history: History) -> list[str]:
    wrong = []
    newest: dict[str, tuple[int, int, int, int]] = {}
    for version in history.versions:
        where = f"{version.shard} v{version.seqno}"
        passed = {name: at for name, at in version.holds.items() if at < version.since}
        if passed:
            wrong.append(f"{where}: since is {version.since}, past the holds {passed}")
        if version.allowed is not None and version.since > version.allowed:
            wrong.append(f"{where}: since is {version.since}, retention keeps {version.allowed}")
        before = newest.get(version.shard)
        if before is not None:
            seqno, upper, since, epoch = before
            if version.seqno != seqno + 1:
                wrong.append(f"{where} follows v{seqno}")
            if version.upper < upper and not version.attached:
                wrong.append(f"{where}: the upper moved back from {upper} to {version.upper}")
            if version.since < since or version.epoch < epoch:
                wrong.append(f"{where}: since or epoch moved back from {since}, e{epoch}")
        newest[version.shard] = (version.seqno, version.upper, version.since, version.epoch)
    return wrong


def stored_as_acknowledged(history: History) -> list[str]:
    """Every append that counted was stored exactly once, as it was meant, and no other."""
    stored: defaultdict[tuple[str, _Rows], list[int]] = defaultdict(list)
    for commit in history.committed:
        if not commit.gone:
            stored[commit.shard, _signature(commit.updates)].append(commit.lower)
    meant: defaultdict[tuple[str, _Rows], list[Append]] = defaultdict(list)
    for call in history.appends:
        if call.updates:
            meant[call.shard, _signature(call.updates)].append(call)
    wrong: list[str] = []
    for what, calls in meant.items():
        wrong += _stored(calls, stored.pop(what, []))
    recorded = {call.shard for call in history.appends}
    for (shard, rows), lowers in stored.items():
        if shard in recorded:
            wrong.append(f"{shard}: nobody appended what is stored at {lowers}: {rows[:3]}")
    return wrong


def _stored(calls: list[Append], lowers: list[int]) -> Iterable[str]:
    """Replicas append the same rows, so there may be several calls for what is stored once."""
    applied = [call for call in calls if call.result is Result.APPLIED]
    unknown = [call for call in calls if call.result is Result.UNKNOWN]
    first = (applied or unknown or calls)[0]
    told = f"{first.shard}: the append of {first.by} at {first.lower} ({first.result.value})"
    if len(lowers) < len(applied):
        yield f"{told} is not stored as it was given"
    elif len(lowers) > len(applied) + len(unknown):
        yield f"{told} is stored {len(lowers)} times, at {lowers}"
    else:
        for call in applied:
            if call.lower not in (None, *lowers):
                yield f"{told} is stored at {lowers} instead"


def _signature(updates: Iterable[Update]) -> _Rows:
    """Rows and diffs; their times were not known yet when an independent writer gave them."""
    sums: Counter[str] = Counter()
    for row, _, diff in updates:
        sums[row] += diff
    return tuple(sorted((row, count) for row, count in sums.items() if count))


def atomic_groups(history: History) -> list[str]:
    known = oracles(history)
    for read in history.reads:
        known[read.shard].explain(read.content, read.as_of)
    groups = {each.group for each in history.appends if each.group}
    wrong: list[str] = []
    for group in sorted(groups):
        results = {each.result for each in history.appends if each.group == group}
        if len(results) > 1:
            wrong.append(f"transaction {group} ended as {sorted(r.name for r in results)}")
        shards = {each.shard for each in history.appends if each.group == group}
        presence = {shard: known[shard].presence(group) for shard in shards}
        if {True, False} <= set().union(*presence.values()):
            wrong.append(f"transaction {group} is in some of its shards only: {presence}")
    return wrong


def held_objects_stay(history: History) -> list[str]:
    return [
        f"{each.key} was deleted at {each.at} although {', '.join(each.held_by)}"
        for each in history.deleted
        if each.held_by
    ]


def batches_count_once(history: History) -> list[str]:
    stored: defaultdict[tuple[str, _Rows], int] = defaultdict(int)
    for commit in history.committed:
        if not commit.gone:
            stored[commit.shard, _signature(commit.updates)] += 1
    tried: defaultdict[tuple[str, str], list[Append]] = defaultdict(list)
    for call in history.appends:
        if call.batch:
            tried[call.shard, call.batch].append(call)
    return [
        f"{shard}: {batch} {what}"
        for (shard, batch), calls in tried.items()
        for what in _once(calls, stored[shard, _signature(calls[0].updates)])
    ]


def _once(calls: list[Append], times: int) -> Iterable[str]:
    counted = [call for call in calls if call.result is Result.APPLIED]
    known = [call for call in calls if call.result is Result.REPEATED]
    if times > 1 or len(counted) > 1:
        yield f"is stored {times} times, and {len(counted)} were told that theirs counted"
    if known and not times:
        yield f"had counted before, {known[0].by} was told, and is not stored"


def terms_last(history: History) -> list[str]:
    return [
        f"the term {term.reader} of {term.shard} ended at {term.ended_ms}, not at {term.until_ms}"
        for term in history.terms.values()
        if term.ended_ms is not None and term.ended_ms < term.until_ms and not term.given_back
    ]


CHECKERS: tuple[Callable[[History], list[str]], ...] = (
    definite_reads,
    linearizable_appends,
    nothing_lost,
    honest_streams,
    monotone_frontiers,
    holds_respected,
    stored_as_acknowledged,
    atomic_groups,
    held_objects_stay,
    batches_count_once,
    terms_last,
)
