"""Every history of a small shard: two writers, a reader, upkeep, expiry, death; no luck needed.

Breadth first over decide and evolve, equal situations visited once. In every situation: the
rules hold, a read at every readable time gives what was appended, nothing that the state or the
reader may fetch is deleted, and an append that was answered is never applied again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from strandline.shard import command as c
from strandline.shard.change import evolve
from strandline.shard.decide import decide
from strandline.shard.state import Retention, check, check_whole
from strandline.testing import toy

DEPTH = 7
UPPER_MAX = 4
PULSES = {toy.W1: "1.0", toy.W2: "2.0", toy.R1: "3.0"}
SECOND_ID = "s" + "1" * 32


@dataclass(frozen=True, slots=True)
class Situation:
    """A version, what the world around it has done, and what must be true of it."""

    state: toy.State
    written: tuple[tuple[int, int], ...] = ()
    """(time, row) of every append that was answered."""
    deleted: frozenset[str] = frozenset()
    fetchable: frozenset[str] = frozenset()
    """What the reader may have listed and not fetched yet."""

    def key(self):
        state = self.state
        return (
            (state.seqno, state.id, state.dropped, state.upper, state.since, state.batches),
            (state.moments, state.total, state.garbage, self.written, self.deleted),
            (frozenset(state.readers.items()), frozenset(state.writers.items()), self.fetchable),
        )


class Explorer:
    """Steps from a situation to all that may follow, and what each must satisfy."""

    def __init__(self):
        self.toy = toy.ToyShard()
        self.met = Counter()

    def part(self, key, updates):
        if key not in self.toy.contents:
            self.toy.put(key, updates)
        assert self.toy.contents[key] == tuple(updates), "a name that means two things"
        return toy.toy_part(key, updates)

    def start(self):
        state = toy.step(None, c.Create(toy.NAME, toy.ID, toy.SCHEMA, 5))
        for writer in (toy.W1, toy.W2):
            state = toy.step(state, c.RegisterWriter(writer, PULSES[writer]))
        return Situation(toy.step(state, c.Retain(Retention(None, 1))))

    def following(self, now):
        state = now.state
        yield from self.appends(now)
        yield from self.leases(now)
        yield from self.upkeep(now)
        yield self.commit(now, c.Drop())
        yield self.commit(now, c.Create(toy.NAME, SECOND_ID, toy.SCHEMA, 5))
        deletable = self.deletable(state)
        if not deletable <= now.deleted:
            self.met["delete"] += 1
            yield replace(now, deleted=now.deleted | deletable)
        yield self.commit(now, c.Forget(now.deleted))

    def appends(self, now):
        upper = now.state.upper.time
        if upper is None:
            late = toy.toy_append(lower=0, upper=1, token="late")
            assert self.commit(now, late) is None, "a tombstone took an append"
        if upper is None or upper >= UPPER_MAX:
            return
        for number, writer in enumerate((toy.W1, toy.W2), start=1):
            for lower in range(max(0, upper - 1), upper + 1):
                # A row and its retraction by turns, so that there is something to cancel.
                updates = [(number, lower, -1 if lower % 2 else 1)]
                key = f"{now.state.id[1]}-{number}-{lower}"
                self.part(key, updates)
                command = toy.toy_append(
                    updates, lower=lower, upper=lower + 1, token=key, writer=writer, key=key
                )
                after = self.commit(now, command)
                if after is not None:
                    assert lower == upper, "an answered append was applied again"
                    assert writer in now.state.writers, "a lost writer's append counted"
                    yield replace(after, written=(*now.written, (lower, number)))

    def leases(self, now):
        state = now.state
        for pulse in PULSES.values():
            yield self.commit(now, c.Expire(frozenset({pulse})))
        since = state.readable_from()
        yield self.commit(now, c.RegisterReader(toy.R1, PULSES[toy.R1], since, ""))
        if toy.R1 in state.readers:
            newest = max(since, (state.upper.last() or 0))
            move = c.Downgrade({toy.R1: (newest, state.seqno.number)})
            after = self.commit(now, move)
            if after is not None:
                yield replace(after, fetchable=keys_of(after.state) | keys_of(state))

    def upkeep(self, now):
        state = now.state
        yield self.commit(now, c.AdvanceSince(10**9))
        if len(state.batches) < 2:
            return
        for batches in (state.batches, state.batches[:2], state.batches[-2:]):
            since = state.readable_from()
            updates = toy.merged([u for b in batches for u in self.toy.updates(b)], since)
            gone = tuple(key for batch in batches for key in batch.object_keys())
            name = f"{'+'.join(gone)}@{since}"
            parts = (self.part(name, updates),) if updates else ()
            yield self.commit(
                now, c.Replace(toy.W2, frozenset(gone), parts=parts, garbage=gone, since=since)
            )

    def commit(self, now, command):
        """The situation after a command, or `None` if it changes nothing."""
        outcome = decide(now.state, command)
        self.met[type(command).__name__, type(outcome).__name__] += 1
        if not isinstance(outcome, c.Changed):
            return None
        after = evolve(now.state, outcome.change)
        check(now.state, after)
        check_whole(after)
        fetchable = frozenset()
        if toy.R1 in after.readers:
            fetchable = now.fetchable | keys_of(after)
        written = () if isinstance(command, (c.Drop, c.Create)) else now.written
        return Situation(after, written, now.deleted, fetchable)

    def deletable(self, state):
        hold = state.seqno_hold()
        return frozenset(k for g in state.garbage if g.seqno <= hold for k in g.keys)

    def judge(self, now):
        state = now.state
        assert not keys_of(state) & now.deleted, "the state names a deleted object"
        assert not now.fetchable & now.deleted, "a reader's object was deleted"
        for reader in state.readers.values():
            for garbage in state.garbage:
                if garbage.seqno > reader.seqno:
                    assert not self.deletable(state) & set(garbage.keys), "held, yet deletable"
        upper = state.upper.time or 0
        for time in range(state.readable_from(), upper):
            expected = Counter()
            for at, row in now.written:
                if at <= time:
                    expected[row] += -1 if at % 2 else 1
            seen = self.toy.read(state, time)
            assert seen == {row: count for row, count in expected.items() if count}


def keys_of(state):
    return frozenset(key for batch in state.batches for key in batch.object_keys())


def test_no_history_of_a_small_shard_breaks_a_promise():
    explorer = Explorer()
    start = explorer.start()
    seen = {start.key()}
    edge = [start]
    for _ in range(DEPTH):
        following = []
        for now in edge:
            for after in explorer.following(now):
                if after is None or after.key() in seen:
                    continue
                seen.add(after.key())
                explorer.judge(after)
                following.append(after)
        edge = following
    assert len(seen) > 40_000, "the scope has become too small to prove anything"
    assert set(explorer.met) >= _MET, _MET - set(explorer.met)


_MET = {
    ("Append", "Changed"),
    ("Append", "Unchanged"),
    ("Append", "UpperMismatch"),
    ("Append", "Lost"),
    ("Append", "Refused"),
    ("Replace", "Changed"),
    ("Replace", "Lost"),
    ("AdvanceSince", "Changed"),
    ("RegisterReader", "Changed"),
    ("RegisterReader", "Refused"),
    ("Downgrade", "Changed"),
    ("Expire", "Changed"),
    ("Forget", "Changed"),
    ("Drop", "Changed"),
    ("Create", "Changed"),
    ("Create", "Unchanged"),
    "delete",
}
