"""What tests of task code stand on: a ground and objects in memory, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.rows import check_rows
from strandline.spark.blocks import Blocks
from strandline.spark.cache import BlockCache
from strandline.spark.instruction import make_ground
from strandline.spark.put import Bench
from strandline.store.memory import MemoryBlob
from strandline.system import SystemRandom

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.parts.part import Part
    from strandline.store.blob import Blob

SHARD, WRITER = "s" + "a" * 32, "w" + "b" * 32
SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",))


def bench(blob: Blob | None = None, schema: Schema = SCHEMA, *, part_rows: int = 10**6) -> Bench:
    ground = make_ground(
        schema, shard=("t", SHARD), writer=WRITER, limits=(32 * 1024, part_rows, 2**27)
    )
    return Bench(ground, blob or MemoryBlob(), SystemRandom(), lambda _: None)


def blocks(made: Bench, folder: Path) -> Blocks:
    return Blocks(made.blob, BlockCache(folder, 10**8))


def rows(*pairs: tuple[int, str | None]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([k for k, _ in pairs], pa.int64()),
            "v": pa.array([v for _, v in pairs], pa.string()),
        }
    )


def stored(made: Bench, *batches: pa.Table) -> list[Part]:
    """Parts of batches of rows, each at its own time: 0, 1, 2 and so on."""
    parts = []
    for time, batch in enumerate(batches):
        checked = check_rows(batch, SCHEMA, lower=time, upper=Frontier(time + 1))
        parts += made.put_updates(checked.updates, untimed=False)
    return parts
