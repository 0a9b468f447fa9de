"""The numbers of upkeep, and when its smaller jobs are due."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.model.schema import Schema
from strandline.parts.part import PLACE_MAX, Batch, Inline, Part
from strandline.shard.settings import Settings
from strandline.shard.state import Manifest, Moment, State
from strandline.upkeep.units import (
    RESIDUE,
    Policy,
    foldable,
    gather,
    manifest_due,
    moments_due,
    policy_of,
    rows_pile_up,
    settled_batches,
)

SCHEMA = Schema.create(pa.schema([("k", pa.int64())]), ("k",))


def part(key="p", *, t=(0, 0), base=False, level=0):
    return Part(key, 10, 0, 1, b"", t[0], t[1], base, level, 0, PLACE_MAX, 1)


def state(**facts):
    return State(name="s", id="s0", schema=SCHEMA, **facts)


@pytest.mark.parametrize(
    ("what", "since", "share"),
    [
        (part(t=(0, 9)), 4, 0.5),
        (part(t=(0, 9)), 9, 1.0),
        (part(t=(0, 9)), 99, 1.0),
        (part(t=(5, 9)), 4, 0.0),
        (part(t=(3, 3)), 3, 1.0),
        (part(t=(3, 3), base=True), 9, 0.0),
        (part(t=(3, 3), level=RESIDUE), 9, 0.0),
        (part(t=(3, 7), level=RESIDUE), 3, 0.0),
        (part(t=(3, 7), level=RESIDUE), 5, 0.5),
    ],
)
def test_the_share_that_since_has_passed(what, since, share):
    assert foldable(what, since) == share


def test_a_manifest_is_due_after_so_many_versions():
    assert not manifest_due(state(seqno=SeqNo(3)), every=5)
    assert manifest_due(state(seqno=SeqNo(4)), every=5)
    known = Manifest(4, "m", 1, 0)
    assert not manifest_due(state(seqno=SeqNo(8), manifest=known), every=5)
    assert manifest_due(state(seqno=SeqNo(9), manifest=known), every=5)


def test_the_older_half_of_many_moments_is_due():
    moments = tuple(Moment(n, n, b"") for n in range(9))
    assert moments_due(state(moments=moments), loose=9) == 0
    assert moments_due(state(moments=moments), loose=8) == 4


def test_only_what_a_timeline_has_committed_is_settled():
    batches = (Batch(0, 1), Batch(1, 2))
    assert settled_batches(state(batches=batches), None) == batches
    attached = state(batches=batches, timeline="shop")
    assert settled_batches(attached, None) == ()
    assert settled_batches(attached, Frontier(1)) == batches[:1]
    assert settled_batches(attached, Frontier.closed()) == batches


def test_parts_beyond_a_limit_are_gathered_unless_inline_rows_are_in_the_way():
    policy = Policy(direct_parts=8)
    batches = [Batch(n, n + 1, (part(f"p{n}"),)) for n in range(9)]
    assert gather(state(batches=tuple(batches[:8])), policy) is None
    found = gather(state(batches=tuple(batches)), policy)
    assert found is not None
    assert len(found.parts) == 7
    batches.insert(4, Batch(4, 5, inline=Inline(1, b"", b"", 4, 4, 1)))
    assert gather(state(batches=tuple(batches)), policy) is None


def test_the_policy_follows_the_settings():
    policy = policy_of(Settings(part_target_bytes=10, unit_max_bytes=99, fanout=3))
    assert (policy.range_max, policy.unit_bytes, policy.runs_max) == (20, 99, 3)
    assert policy.row_bytes == 1
    assert policy_of(Settings()).row_bytes * 4_000_000 <= policy_of(Settings()).range_max


def test_what_a_timeline_has_not_committed_is_not_gathered():
    policy = Policy(direct_parts=8)
    settled = Batch(0, 1, tuple(part(f"p{n}") for n in range(9)))
    staged = Batch(1, 2, tuple(part(f"q{n}") for n in range(9)))
    attached = state(batches=(settled, staged), timeline="shop")
    assert gather(attached, policy, None) is None
    found = gather(attached, policy, Frontier(1))
    assert found is not None
    assert {moved.key[0] for moved in found.parts} == {"p"}
    assert gather(attached, Policy(direct_parts=9), Frontier(1)) is None


def test_rows_pile_up_by_bytes_or_by_batches():
    def with_inline(count):
        inline = Inline(1, b"x" * 10, b"", 0, 0, 1)
        batches = tuple(Batch(t, t + 1, inline=inline) for t in range(count))
        return State("orders", "s1", SCHEMA, batches=batches)

    few = Settings(inline_flush_bytes=100, inline_flush_batches=3)
    assert not rows_pile_up(with_inline(2), few)
    assert rows_pile_up(with_inline(3), few)
    assert rows_pile_up(with_inline(2), Settings(inline_flush_bytes=20))
    only_parts = State("orders", "s1", SCHEMA, batches=(Batch(0, 1, parts=(part(),)),) * 3)
    assert not rows_pile_up(only_parts, few)
