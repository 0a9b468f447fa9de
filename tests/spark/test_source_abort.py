"""Spark aborts a write whose commit failed, although it may have counted."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import strandline
from strandline.parts.chunk import PartTable, chunk_key, encode_chunk
from strandline.shard import command as c
from strandline.spark.source_options import Options
from strandline.spark.source_write import BatchWriter

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
LAYOUT = StructType([StructField("k", LongType()), StructField("v", StringType())])
ROWS = 50_000


def listed_by_another(store, shard) -> None:
    """What upkeep does with many parts: they move into a chunk of its own."""
    state = shard.state()
    parts = [part for batch in state.batches for part in batch.parts]
    with shard.writer() as other:
        key = chunk_key(state.id, other.id, store.env.random.token())
        made = encode_chunk(PartTable.of(parts, state.schema), shard=state.id, key=key)
        if made.stats:
            store.env.blob.put(made.chunk.stats_key, made.stats)
        store.env.blob.put(made.chunk.key, made.listing)
        shard.machine.demand(
            c.Replace(
                other.id,
                remove_parts=frozenset(part.key for part in parts),
                chunks=(made.chunk,),
                since=state.readable_from(),
            )
        )


@pytest.mark.parametrize("moved", [False, True], ids=["listed", "in another's chunk"])
def test_an_abort_after_a_commit_that_counted_deletes_none_of_its_rows(tmp_path, moved):
    folder = str(tmp_path / "lake")
    with strandline.open(folder, upkeep=False) as store:
        shard = store.shard("t", COLUMNS, key=["k"])
        options = Options({"path": f"{folder}/t"})
        writer = BatchWriter(options.write(overwrite=False), LAYOUT)
        rows = pa.table({"k": range(ROWS), "v": [f"row {n}" for n in range(ROWS)]})
        messages = [writer.write(iter(rows.to_batches()))]
        writer.commit(messages)
        assert any(batch.parts for batch in shard.state().batches)
        if moved:
            listed_by_another(store, shard)
        writer.abort(messages)
        assert shard.snapshot().to_arrow().num_rows == ROWS
