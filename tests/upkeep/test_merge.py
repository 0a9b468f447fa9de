"""Merging a unit needs the store's objects alone, and gives parts that add up to its inputs."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import strandline
from strandline.model.digest import Digest
from strandline.shard.settings import Settings
from strandline.upkeep.compaction import plan
from strandline.upkeep.merge import merge, output_bytes
from strandline.upkeep.spans import spans
from strandline.upkeep.units import Policy, policy_of

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.mark.parametrize("key", [(), ("id",)])
def test_outputs_add_up_to_the_inputs_and_report_progress(key):
    settings = Settings(inline_max_bytes=0)
    with strandline.open("memory://", upkeep=False, settings=settings) as store:
        shard = store.shard("t", schema=COLUMNS, key=key)
        with shard.writer() as writer:
            for first in range(4):
                ids = list(range(first * 10, first * 10 + 50))
                writer.append(pa.table({"id": ids, "name": ["x"] * 50}))
            state = shard.state()
            (unit,) = plan(state, {}, Policy(), full=True)
            seen: list[int] = []
            made = merge(
                store.env,
                state,
                unit,
                writer=writer.id,
                bytes_max=output_bytes(Policy()),
                watch=seen.append,
            )
            expected = Digest.ZERO
            for part in unit.parts:
                expected += part.total
            assert made.total == expected
            assert all(part.key.startswith(f"{state.id}/{writer.id}/") for part in made.parts)
            assert seen[-1] == 200


def facts(parts):
    return [
        (each.rows, each.digest, each.place_lo, each.place_hi, each.base, each.level)
        for each in parts
    ]


@pytest.mark.parametrize("slots", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("inline_max", [0, 10_000])
def test_the_spans_of_a_unit_give_the_same_parts_as_one_merge_of_it(slots, inline_max):
    """Splits included; with rows inline, and with retractions that a part before them explains."""
    settings = Settings(inline_max_bytes=inline_max, part_target_rows=1000)
    policy = replace(policy_of(settings), slots=8)
    with strandline.open("memory://", upkeep=False, settings=settings) as store:
        shard = store.shard("t", schema=COLUMNS, key=["id"])
        with shard.writer() as writer:
            ids = list(range(6000))
            writer.append(pa.table({"id": ids, "name": ["x"] * 6000}))
            gone = pa.table({"id": ids[::7], "name": ["x"] * 858, "_diff": [-1] * 858})
            writer.append(gone)
            writer.append(pa.table({"id": [9001, 9002], "name": ["y", "z"]}))
            state = shard.state()
            unit = next(unit for unit in plan(state, {}, policy, full=True) if unit.parts)
            assert unit.halvings == 4
            pieces = [replace(unit, span=span) for span in spans(unit, slots, 1)]
            assert len(pieces) == max(1, 2 * slots)
            limit = output_bytes(policy)
            whole = merge(store.env, state, unit, writer=writer.id, bytes_max=limit)
            made = [
                part
                for piece in pieces
                for part in merge(store.env, state, piece, writer=writer.id, bytes_max=limit).parts
            ]
            assert facts(made) == facts(whole.parts)


def test_whoever_watches_can_end_it():
    settings = Settings(inline_max_bytes=0)
    with strandline.open("memory://", upkeep=False, settings=settings) as store:
        shard = store.shard("t", schema=COLUMNS, key=["id"])
        with shard.writer() as writer:
            for first in range(2):
                writer.append(pa.table({"id": [first], "name": ["x"]}))
            state = shard.state()
            (unit,) = plan(state, {}, Policy(), full=True)

            def stop(_: int) -> None:
                raise strandline.CancelledError("enough")

            with pytest.raises(strandline.CancelledError):
                merge(store.env, state, unit, writer=writer.id, bytes_max=10**9, watch=stop)
