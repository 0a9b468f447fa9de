"""Random commands against a state, beside a plain dictionary of what was written when.

After every step: rules R1 to R8 hold, a read at every readable time gives what the dictionary
says (so upkeep changes nothing), everything that a reader's version refers to still exists, and
the records written so far lead to the same state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.shard import command as c
from strandline.shard.change import evolve
from strandline.shard.codec import (
    Record,
    decode_manifest,
    decode_record,
    encode_manifest,
    encode_record,
)
from strandline.shard.decide import decide
from strandline.shard.state import Manifest, MomentChunk, Retention, check, check_whole
from strandline.shard.txn import Txn
from strandline.testing import toy

LINE = "line"
few = st.integers(0, 3)
rows = st.lists(st.tuples(st.integers(1, 4), few, st.sampled_from([1, 1, -1])), max_size=4)


class AnyHistory(RuleBasedStateMachine):
    """The fields with an underscore are the model."""

    def __init__(self):
        super().__init__()
        self.toy = toy.ToyShard()
        self.state = None
        self.replayed = None
        self.versions = {}
        self._written = {}
        self._committed = 0
        self._now = 1000
        self._fresh = 0
        self._last = None
        self._batch = 0
        self.commit(c.Create(toy.NAME, toy.ID, toy.SCHEMA, 5))
        self.commit(c.RegisterWriter(self.writer_id(0), "6.0"))
        self.commit(c.Retain(Retention(None, 2)))

    def commit(self, command, expected=c.Changed):
        outcome = decide(self.state, command)
        assert type(outcome) is expected, (command, outcome)
        if expected is not c.Changed:
            return
        after = evolve(self.state, outcome.change)
        if self.state is not None:
            check(self.state, after, getattr(command, "committed", None))
        check_whole(after)
        self.replay(Record(outcome.change, after.manifest), after.seqno)
        self.state = after
        self.versions[after.seqno.number] = after

    def replay(self, record, seqno):
        data = encode_record(toy.NAME, seqno, record)
        self.replayed = evolve(self.replayed, decode_record(toy.NAME, seqno, data).change)

    def attempt(self, command):
        """Commit it if it changes something."""
        if isinstance(decide(self.state, command), c.Changed):
            self.commit(command)

    def writer_id(self, number):
        return f"w{number:032x}"

    def fresh(self, prefix):
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    @property
    def visible(self):
        """The first time that nobody may read yet."""
        if self.state.timeline is not None:
            return self._committed
        upper = self.state.upper.time
        return max(self._written, default=-1) + 1 if upper is None else upper

    def expected(self, as_of):
        seen = Counter()
        for time, updates in self._written.items():
            if time <= as_of:
                for row, diff in updates:
                    seen[row] += diff
        return {row: count for row, count in seen.items() if count}

    # Writing.

    @precondition(lambda self: not self.state.dropped)
    @rule(number=few, pulse=few)
    def register_writer(self, number, pulse):
        self.attempt(c.RegisterWriter(self.writer_id(number), f"{pulse}.0"))

    @precondition(lambda self: self.state.writers and not self.state.upper.is_closed)
    @rule(given=rows, width=st.integers(1, 4), inline=st.booleans(), close=st.integers(0, 30))
    def append(self, given, width, inline, close):
        self.append_rows(given, width, inline=inline, close=close == 30)

    def append_rows(self, given, width, *, inline, close):
        self._now += width * 100
        attached = self.state.timeline is not None
        lower = max(self.state.upper.time, self._committed if attached else 0)
        updates = [(row, lower + at, diff) for row, at, diff in given if at < width]
        upper = None if close and not attached else lower + width
        key = "" if inline or not updates else self.fresh("p")
        if key:
            self.toy.put(key, updates)
        made = toy.toy_append(
            updates,
            lower=lower,
            upper=upper,
            token=self.fresh("t"),
            writer=min(self.state.writers),
            key=key,
        )
        self._batch += 1
        command = replace(
            made,
            now_ms=self._now,
            epoch=self.state.epoch,
            timeline=self.state.timeline,
            txn=None if attached else Txn("query", self._batch),
        )
        self.commit(command)
        self._last = command
        for row, time, diff in updates:
            self._written.setdefault(time, []).append((row, diff))

    @precondition(lambda self: self.state.writers and not self.state.upper.is_closed)
    @rule(many=st.lists(rows, min_size=2, max_size=5), inline=st.booleans())
    def append_many(self, many, inline):
        for given in many:
            self.append_rows(given, 2, inline=inline, close=False)

    @precondition(lambda self: self._last is not None and not self.state.dropped)
    @rule()
    def append_again(self):
        """A duplicate of the last append never counts, whatever has happened since."""
        assert not isinstance(decide(self.state, self._last), c.Changed)

    @precondition(lambda self: self.state.writers and self.state.txns)
    @rule(back=few, row=st.integers(5, 6))
    def batch_again(self, back, row):
        """A batch of an application never counts twice, whoever brings it and wherever to."""
        newest = self.state.txns["query"].batch
        made = toy.toy_append(
            [(row, 99, 1)], lower=99, upper=100, token="again", writer=min(self.state.writers)
        )
        command = replace(made, txn=Txn("query", newest - back))
        expected = c.Diverged if back == 0 else c.Repeated
        self.commit(command, expected)

    @precondition(lambda self: self.state.writers)
    @rule(off=st.integers(1, 3))
    def append_elsewhere(self, off):
        upper = self.state.upper.time
        if upper is None or self.state.timeline is not None:
            return
        for lower in (upper + off, upper - off):
            if lower >= 0:
                made = toy.toy_append(
                    lower=lower, upper=lower + 9, token="x", writer=min(self.state.writers)
                )
                self.commit(replace(made, epoch=self.state.epoch), c.UpperMismatch)

    # The timeline.

    @precondition(lambda self: self.state.timeline is None and not self.state.dropped)
    @rule(ahead=few)
    def attach(self, ahead):
        if self.state.upper.is_closed:
            return
        self._committed = self.state.upper.time + ahead
        self.commit(c.Attach(LINE, Frontier(self._committed), self.state.epoch))

    @precondition(lambda self: self.state.timeline is not None)
    @rule(ahead=few)
    def settle(self, ahead):
        self._committed = max(self._committed, self.state.upper.time or 0) + ahead

    @precondition(lambda self: self.state.timeline is not None and not self.state.dropped)
    @rule(raised=st.integers(0, 1))
    def withdraw(self, raised):
        lower = self._committed
        command = c.Withdraw(lower, self.state.epoch + raised, Frontier(lower))
        outcome = decide(self.state, command)
        if isinstance(outcome, c.Refused):
            assert "straddles" in outcome.reason
            return
        self.attempt(command)
        self._written = {t: updates for t, updates in self._written.items() if t < lower}
        self._last = None

    # Readers and holds.

    @precondition(lambda self: not self.state.dropped)
    @rule(number=few, pulse=few, ahead=st.none() | few)
    def register_reader(self, number, pulse, ahead):
        since = None if ahead is None else self.state.readable_from() + ahead
        self.attempt(c.RegisterReader(f"r{number}", f"{pulse}.0", since))

    @precondition(lambda self: self.state.readers)
    @rule(ahead=st.none() | few, back=few)
    def downgrade(self, ahead, back):
        name = min(self.state.readers)
        since = None if ahead is None else self.state.readable_from() + ahead
        seqno = max(0, self.state.seqno.number - back)
        self.attempt(c.Downgrade({name: (since, seqno)}))

    @precondition(lambda self: not self.state.dropped)
    @rule(number=few, ahead=st.none() | few, term_ms=st.integers(1, 2_000))
    def take_a_term(self, number, ahead, term_ms):
        since = None if ahead is None else self.state.readable_from() + ahead
        self.attempt(c.RegisterTerm(f"t{number}", since, self._now, term_ms))

    @rule(pulse=st.integers(0, 6), passed_ms=st.sampled_from([0, 0, 100, 1_000]))
    def expire(self, pulse, passed_ms):
        """Terms end by the clock and by nothing else."""
        self._now += passed_ms
        before = self.state.terms()
        self.attempt(c.Expire(frozenset({f"{pulse}.0"}), self._now))
        kept = {name: until_ms for name, until_ms in before.items() if until_ms > self._now}
        assert self.state.terms() == kept

    @precondition(lambda self: not self.state.dropped)
    @rule(ahead=few, epoch=few, on=st.booleans())
    def hold(self, ahead, epoch, on):
        since = self.state.readable_from() + ahead
        self.attempt(c.Hold("h", since, epoch) if on else c.Unhold("h", epoch))

    # Upkeep.

    @precondition(lambda self: self.state.writers and self.state.batches)
    @rule(first=few, width=st.integers(1, 4), cut=few)
    def compact(self, first, width, cut):
        start = first % len(self.state.batches)
        batches = self.state.batches[start : start + width]
        attached = self.state.timeline is not None
        if not batches or (attached and batches[-1].upper > self._committed):
            return
        since = self.state.readable_from()
        updates = toy.merged([u for b in batches for u in self.toy.updates(b)], since)
        pieces = [updates[:cut], updates[cut:]]
        parts = tuple(self.toy.put(self.fresh("p"), piece) for piece in pieces if piece)
        removed = [chunk for batch in batches for chunk in batch.chunks]
        garbage = [key for batch in batches for key in self.toy.part_keys(batch)]
        command = c.Replace(
            max(self.state.writers),
            frozenset(part.key for batch in batches for part in batch.parts),
            frozenset(chunk.key for chunk in removed),
            frozenset(batch.lower for batch in batches if batch.inline is not None),
            parts,
            (),
            (*garbage, *(chunk.key for chunk in removed)),
            since,
        )
        self.commit(command)
        assert decide(self.state, command) == (c.Unchanged() if parts else c.Stale())

    @precondition(lambda self: self.state.writers and self.state.batches)
    @rule(at=few)
    def pack(self, at):
        batch = self.state.batches[at % len(self.state.batches)]
        if not batch.parts or batch.inline is not None:
            return
        chunk = self.toy.put_chunk(self.fresh("k"), batch.parts)
        keys = frozenset(part.key for part in batch.parts)
        since = self.state.readable_from()
        self.commit(c.Replace(min(self.state.writers), keys, chunks=(chunk,), since=since))

    @precondition(lambda self: not self.state.dropped)
    @rule(count=st.integers(1, 4), duration=st.none() | st.integers(0, 600))
    def retain(self, count, duration):
        self.attempt(c.Retain(Retention(duration, count)))

    @precondition(lambda self: not self.state.dropped)
    @rule()
    def advance_since(self):
        self.attempt(c.AdvanceSince(self._now, Frontier(self._committed)))

    @precondition(lambda self: self.state.writers and len(self.state.moments) > 1)
    @rule(count=st.integers(1, 3))
    def index_moments(self, count):
        listed = self.state.moments[:count]
        total = Digest.ZERO
        for moment in listed:
            total = total + moment.total
        key = self.fresh("m")
        self.toy.contents[key] = ()
        first, last = listed[0], listed[-1]
        times = (first.time, last.time, first.instant_ms, last.instant_ms)
        chunk = MomentChunk(key, 1, 1, len(listed), *times, total.pack())
        writer = min(self.state.writers)
        self.attempt(c.IndexMoments(writer, chunk, Frontier(self._committed)))

    @precondition(lambda self: self.state.seqno.number % 4 == 3)
    @rule()
    def add_manifest(self):
        data = encode_manifest(self.state)
        assert decode_manifest(toy.NAME, self.state.seqno, data, "key") == self.state
        key = self.fresh("v")
        self.toy.contents[key] = ()
        self.attempt(c.AddManifest(Manifest(self.state.seqno.number, key, len(data), 1)))

    @rule()
    def collect(self):
        hold = self.state.seqno_hold()
        gone = set()
        for garbage in self.state.garbage:
            if garbage.seqno <= hold:
                for chunk in garbage.chunks:
                    gone.update(self.toy.listed[chunk])
                gone.update(garbage.keys)
        for key in gone:
            self.toy.contents.pop(key, None)
        self.attempt(c.Forget(frozenset(gone)))

    # Life and death.

    @precondition(lambda self: self.state.seqno.number > 20)
    @rule(sure=few)
    def drop_and_create(self, sure):
        if sure and not self.state.dropped:
            return
        if not self.state.dropped:
            self.commit(c.Drop(self.state.epoch))
        else:
            self.commit(c.Create(toy.NAME, self.fresh("s"), toy.SCHEMA, 5))
        self._written, self._committed, self._last = {}, 0, None

    # What always holds.

    @invariant()
    def reads_are_definite(self):
        if not self.state.dropped:
            for time in range(self.state.readable_from(), self.visible):
                assert self.toy.read(self.state, time) == self.expected(time), time

    @invariant()
    def what_a_reader_may_fetch_is_there(self):
        for name, reader in self.state.readers.items():
            for number in range(reader.seqno, self.state.seqno.number + 1):
                for batch in self.versions[number].batches:
                    missing = set(self.toy.part_keys(batch)) - set(self.toy.contents)
                    assert not missing, (name, number, missing)

    @invariant()
    def what_the_state_names_is_there(self):
        named = [key for batch in self.state.batches for key in batch.object_keys()]
        named += [chunk.key for chunk in self.state.moment_chunks]
        if self.state.manifest is not None:
            named.append(self.state.manifest.key)
        assert set(named) <= set(self.toy.contents)

    @invariant()
    def the_records_lead_to_the_same_state(self):
        assert self.replayed == self.state
        assert self.state.seqno == SeqNo(len(self.versions) - 1)


AnyHistory.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestAnyHistory = AnyHistory.TestCase
