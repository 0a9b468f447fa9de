"""What is worth rewriting: bounds on runs, on units and on what a row costs, by simulation."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts import ranges
from strandline.parts.chunk import PartTable
from strandline.parts.part import PLACE_MAX, Batch, Chunk, Inline, Part
from strandline.shard.state import State
from strandline.upkeep.compaction import plan
from strandline.upkeep.units import BOTTOM, MIB, Policy, Unit, foldable

ZERO = Digest.ZERO.pack()
KEYED = Schema.create(pa.schema([("k", pa.int64())]), ("k",))
UNKEYED = Schema.create(pa.schema([("k", pa.int64())]))
POLICY = Policy()


def part(key, *, size=MIB, t=(0, 0), place=(0, PLACE_MAX), base=False, level=0, inserts=False):
    facts = (key, size, 0, 1, ZERO, t[0], t[1], base, level, *place, 1)
    return Part(*facts, inserts=base or inserts)


class Model:
    """A shard whose parts have sizes and no rows; `keep` is what a fold leaves of its deltas.

    `inserts` is the share of insertions in what is appended. Merges divide them from the rest,
    unless there are none.
    """

    def __init__(self, schema=KEYED, policy=POLICY, keep=1.0, inserts=0.0):
        self.inserts = inserts
        self.shares = {}
        self.state = State(name="s", id="s0", schema=schema)
        self.policy = policy
        self.keep = keep
        self.written = 0
        self.given = 0
        self.biggest = 0
        self.time = 0
        self.made = 0

    def append(self, size, *, since=None, cuts=1):
        t = self.time
        edges = [2**64 * n // cuts for n in range(cuts + 1)]
        parts = tuple(
            part(
                f"a{t}.{n}",
                size=size // cuts,
                t=(t, t),
                place=(edges[n], edges[n + 1] - 1),
                inserts=self.inserts == 1.0,
            )
            for n in range(cuts)
        )
        self.shares.update((each.key, self.inserts) for each in parts)
        self.state = replace(
            self.state,
            batches=(*self.state.batches, Batch(t, t + 1, parts)),
            upper=Frontier(t + 1),
            since=self.state.since if since is None else Frontier(since),
        )
        self.time += 1
        self.given += size
        self.written += size

    def settle(self, *, full=False):
        """Carry out plans until there is nothing left to do; it must come to an end."""
        for round_ in range(400):
            units = plan(self.state, {}, self.policy, full=full)
            if not units:
                return round_
            for unit in units:
                self.carry_out(unit)
        raise AssertionError(f"no end: {units}")

    def carry_out(self, unit: Unit):
        keys = {p.key for p in unit.parts}
        total = sum(p.size for p in unit.parts)
        self.biggest = max(self.biggest, total)
        since = self.state.readable_from()
        share = sum(p.size * foldable(p, since) for p in unit.parts)
        old = sum(p.size for p in unit.parts if p.base)
        rest = total - share - old
        outputs = []
        if unit.base:
            outputs += self.cut(unit, old + share * self.keep, base=True, t=(since, since))
            if rest >= 1:
                first = max(since + 1, min(p.t_min for p in unit.parts))
                t = (first, max(p.t_max for p in unit.parts))
                outputs += self.divided(unit, rest, t=t)
        else:
            t = (min(p.t_min for p in unit.parts), max(p.t_max for p in unit.parts))
            t = (max(t[0], min(since, t[1])), t[1])
            outputs += self.divided(unit, total, t=t)
        self.written += sum(p.size for p in outputs)
        homes = [n for n, b in enumerate(self.state.batches) if any(p.key in keys for p in b.parts)]
        first, last = min(homes), max(homes) + 1
        stretch = self.state.batches[first:last]
        kept = [p for b in stretch for p in b.parts if p.key not in keys]
        fused = Batch(stretch[0].lower, stretch[-1].upper, (*kept, *outputs))
        self.state = replace(
            self.state, batches=(*self.state.batches[:first], fused, *self.state.batches[last:])
        )

    def divided(self, unit, size, *, t):
        deltas = [each for each in unit.parts if not each.base]
        inserted = sum(each.size * self.shares[each.key] for each in deltas)
        share = inserted / sum(each.size for each in deltas)
        made = self.cut(unit, size * share, t=t, level=unit.level, inserts=True)
        rest = self.cut(unit, size * (1 - share), t=t, level=unit.level)
        self.shares.update((each.key, 1.0) for each in made)
        self.shares.update((each.key, 0.0) for each in rest)
        return made + rest

    def cut(self, unit, size, *, base=False, t, level=0, inserts=False):
        lo, hi = ranges.span(unit.parts)
        starts = [lo, *ranges.borders(ranges.hull(lo, hi), unit.halvings)]
        starts = [s for s in starts if lo <= s <= hi]
        ends = [*(s - 1 for s in starts[1:]), hi]
        found = []
        for start, end in zip(starts, ends, strict=True):
            self.made += 1
            piece = int(size * ((end - start + 1) / (hi - lo + 1)))
            if piece:
                found.append(
                    part(
                        f"m{self.made}",
                        size=piece,
                        t=t,
                        place=(start, end),
                        base=base,
                        level=BOTTOM if base else level,
                        inserts=inserts,
                    )
                )
        return found

    @property
    def parts(self):
        return [p for b in self.state.batches for p in b.parts]

    @property
    def depth(self):
        """How many runs there are: insertions and what was divided from them are one."""
        return max(
            ranges.deepest(
                [(p.place_lo, p.place_hi) for p in self.parts if p.base or p.inserts == inserts]
            )[1]
            for inserts in (True, False)
        )

    @property
    def amplification(self):
        return self.written / self.given


@pytest.mark.parametrize("size", [50_000, 3 * MIB])
@pytest.mark.parametrize("inserts", [0.0, 0.5, 0.9, 1.0])
def test_a_thousand_batches_are_rewritten_a_few_times_each_while_no_time_may_merge(size, inserts):
    model = Model(inserts=inserts)
    for _ in range(1000):
        model.append(size)
        model.settle()
        assert model.depth <= 8
    assert model.amplification <= 20
    assert model.biggest <= POLICY.unit_bytes


@pytest.mark.parametrize("size", [50_000, pytest.param(3 * MIB, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lag", [0, 20, 300])
@pytest.mark.parametrize("inserts", [0.0, 0.5])
def test_a_thousand_batches_of_retractions_and_insertions_cost_less_than_twenty_times(
    size, lag, inserts
):
    model = Model(keep=0.0, inserts=inserts)
    model.append(20 * size, since=0)
    for t in range(1000):
        model.append(size, since=max(0, t - lag))
        model.settle()
        assert model.depth <= 8
    assert model.amplification <= 20
    assert model.biggest <= POLICY.unit_bytes


def test_insertions_alone_grow_bases_of_the_right_size():
    model = Model()
    for t in range(120):
        model.append(64 * MIB, since=t)
        model.settle()
        assert model.depth <= 8
    model.settle(full=True)
    sizes = [p.size for p in model.parts if p.base]
    assert sum(sizes) > 7 * 1024 * MIB
    assert all(100 * MIB <= size <= 256 * MIB for size in sizes)
    assert model.biggest <= POLICY.unit_bytes
    assert model.amplification <= 20


def test_a_large_shard_takes_small_batches_without_rewriting_its_bases():
    model = Model()
    for t in range(60):
        model.append(100 * MIB, since=t, cuts=4)
        model.settle()
    bases = {p.key for p in model.parts if p.base}
    before = model.written
    for t in range(60, 160):
        model.append(MIB, since=t)
        model.settle()
        assert model.depth <= 8
    assert bases <= {p.key for p in model.parts}
    assert model.written - before <= 20 * 100 * MIB


@pytest.mark.parametrize("inserts", [0.0, 0.4, 1.0])
def test_a_backlog_of_many_batches_comes_to_an_end_within_the_limits(inserts):
    model = Model(inserts=inserts)
    for _ in range(2000):
        model.append(MIB)
    model.settle()
    assert model.depth <= 8
    assert model.biggest <= POLICY.unit_bytes


def test_a_full_compaction_leaves_bases_alone_and_is_then_at_rest():
    model = Model(keep=0.5)
    for t in range(30):
        model.append(40 * MIB, since=t)
    model.settle(full=True)
    assert all(p.base for p in model.parts)
    assert plan(model.state, {}, POLICY, full=True) == []
    assert plan(model.state, {}, POLICY) == []


@pytest.mark.parametrize("slots", [1, 2, 8, 100])
@pytest.mark.parametrize("total", [60, 200, 335, 700, 3000])
@pytest.mark.parametrize("inserts", [0.0, 1.0])
def test_a_full_merge_that_tasks_share_leaves_nothing_for_the_next_round(slots, total, inserts):
    policy = replace(POLICY, slots=slots)
    model = Model(policy=policy, inserts=inserts)
    for t in range(10):
        model.append(total * MIB // 10, since=t)
    model.settle(full=True)
    sizes = [each.size for each in model.parts]
    assert all(each.base for each in model.parts)
    assert len(sizes) == 1 or min(sizes) >= 60 * MIB
    # Whoever comes next has no tasks, and finds the same parts good.
    assert plan(model.state, {}, POLICY) == []
    assert plan(model.state, {}, policy, full=True) == []


def test_more_units_are_planned_where_more_tasks_wait_for_them():
    bases = [
        part(f"b{n}", size=200 * MIB, place=(n << 58, ((n + 1) << 58) - 1), base=True, level=BOTTOM)
        for n in range(64)
    ]
    tops = [
        part(f"p{n}", size=90 * MIB, t=(1, 1), place=(n << 58, ((n + 1) << 58) - 1))
        for n in range(64)
    ]
    batches = (Batch(0, 1, tuple(bases)), Batch(1, 2, tuple(tops)))
    facts = {"name": "s", "id": "s0", "schema": KEYED, "upper": Frontier(2), "since": Frontier(1)}
    state = State(batches=batches, **facts)
    counts = {
        slots: len(plan(state, {}, replace(POLICY, slots=slots), full=True))
        for slots in (0, 2, 8, 100)
    }
    assert counts == {0: 8, 2: 8, 8: 16, 100: 64}


def test_a_shard_without_a_key_is_merged_into_parts_of_full_size_and_left_there():
    model = Model(schema=UNKEYED)
    for t in range(300):
        model.append(10 * MIB, since=t)
        model.settle()
    small = [p for p in model.parts if p.size < POLICY.part_bytes]
    assert len(small) <= 8
    assert model.biggest <= POLICY.unit_bytes
    assert model.amplification <= 20
    model.settle(full=True)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300 * MIB), min_size=1, max_size=60),
    lag=st.integers(0, 30),
    keyed=st.booleans(),
    keep=st.sampled_from([0.0, 0.5, 1.0]),
    inserts=st.lists(st.sampled_from([0.0, 0.02, 0.5, 1.0]), min_size=1, max_size=5),
)
def test_whatever_is_appended_the_plan_ends_within_its_limits(sizes, lag, keyed, keep, inserts):
    model = Model(schema=KEYED if keyed else UNKEYED, keep=keep)
    for t, size in enumerate(sizes):
        model.inserts = inserts[t % len(inserts)]
        model.append(size, since=max(0, t - lag), cuts=1 + size // (128 * MIB))
        model.settle()
        assert model.biggest <= POLICY.unit_bytes
        if keyed:
            assert model.depth <= 8
    model.settle(full=True)
    assert model.biggest <= POLICY.unit_bytes


def test_parts_in_chunks_are_planned_like_parts_that_the_state_lists():
    bases = [
        part(f"b{n}", size=200 * MIB, place=(n << 53, ((n + 1) << 53) - 1), base=True, level=BOTTOM)
        for n in range(2048)
    ]
    loose = [Batch(n, n + 1, (part(f"p{n}", size=3 * MIB, t=(n, n)),)) for n in range(1, 30)]
    facts = {"name": "s", "id": "s0", "schema": KEYED, "upper": Frontier(30), "since": Frontier(9)}
    listed = State(batches=(Batch(0, 1, tuple(bases)), *loose), **facts)
    chunk = Chunk("c", 1, 0, 2048, 2048, 1, ZERO, 0, 0, 0, PLACE_MAX)
    chunked = State(batches=(Batch(0, 1, (), (chunk,)), *loose), **facts)
    units = plan(listed, {}, POLICY)
    assert units
    assert plan(chunked, {"c": PartTable.of(bases, KEYED)}, POLICY) == units


def test_many_parts_of_one_row_each_are_merged_although_they_share_no_place():
    parts = [part(f"p{n}", size=1000, t=(n, n), place=(n << 50, n << 50)) for n in range(1000)]
    batches = tuple(Batch(n, n + 1, (each,)) for n, each in enumerate(parts))
    state = State(name="s", id="s0", schema=KEYED, batches=batches, upper=Frontier(1000))
    [unit] = [unit for unit in plan(state, {}, POLICY) if unit.reason == "merge"][:1]
    assert len(unit.parts) >= 500


def test_inline_rows_between_two_inputs_take_part():
    inline = Inline(1, b"x", ZERO, 1, 1, 1)
    batches = [Batch(n, n + 1, (part(f"p{n}", t=(n, n)),)) for n in range(12)]
    batches[5] = Batch(5, 6, inline=inline)
    state = State(name="s", id="s0", schema=KEYED, batches=tuple(batches), upper=Frontier(12))
    for unit in plan(state, {}, POLICY):
        homes = [int(each.key[1:]) for each in unit.parts]
        assert (5 in unit.inline) == (min(homes) < 5 < max(homes))


def test_what_a_timeline_has_not_committed_is_left_alone():
    batches = tuple(Batch(n, n + 1, (part(f"p{n}", t=(n, n)),)) for n in range(40))
    state = State(name="s", id="s0", schema=KEYED, batches=batches, timeline="shop")
    units = plan(state, {}, POLICY, Frontier(20))
    assert units
    assert max(each.t_max for unit in units for each in unit.parts) < 20
    assert plan(state, {}, POLICY, None) == []
