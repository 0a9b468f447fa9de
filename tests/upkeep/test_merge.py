"""Merging a unit needs the store's objects alone, and gives parts that add up to its inputs."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.model.digest import Digest
from strandline.shard.settings import Settings
from strandline.upkeep.compaction import plan
from strandline.upkeep.merge import merge, output_bytes
from strandline.upkeep.units import Policy

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
