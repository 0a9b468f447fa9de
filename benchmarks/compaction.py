"""What sharing a full compaction among tasks gives: range by range, beside one task, and no Spark.

A keyed table of ten appends and some upserts is compacted down to its base, each time from a copy
of the same store: by Spark in as many tasks as it has a use for, by Spark in one task, and in
one process without Spark. All three must give the same rows and the same digest.

    make bench NAME=compaction
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from orders import (
    SCHEMA,
    Changes,
    median,
    parser,
    read_plain,
    say,
    seconds,
    spark_session,
    workspace,
    write_orders,
)
from report import Point, finish, show

import strandline
from strandline.model.digest import Digest
from strandline.spark.compacts import Carrier
from strandline.spark.jobs import Jobs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline import Store


def build(spark: SparkSession, folder: Path, options: argparse.Namespace) -> Path:
    plain = write_orders(spark, options.rows, folder / "plain", 10)
    changes = Changes(folder / "changes", options.rows)
    lake = folder / "lake"
    with strandline.open(str(lake), upkeep=False) as store:
        shard = store.shard("orders", schema=SCHEMA, key=["id"])
        shard.retain("1 version")
        with store.table("orders") as table:
            for file in sorted(plain.glob("*.parquet")):
                table.append(read_plain(spark, file))
            for _ in range(5):
                table.upsert(read_plain(spark, changes.write(options.rows // 100)))
    return lake


def by_tasks(store: Store, spark: SparkSession) -> None:
    store.table("orders").compact(spark, full=True)


def by_one_task(store: Store, spark: SparkSession) -> None:
    """As if there was one slot to plan for, and no task more than there are units."""
    table = store.table("orders")
    jobs = Jobs(spark, table.shard.id, slots=0)
    table._desk.compact(full=True, carrier=Carrier(table._desk, jobs))  # noqa: SLF001


def by_nobody(store: Store, spark: SparkSession) -> None:
    del spark
    store.shard("orders", schema=SCHEMA, key=["id"]).compact(full=True)


WAYS: dict[str, Callable[[Store, SparkSession], None]] = {
    "Spark, by range": by_tasks,
    "Spark, one task": by_one_task,
    "one process, no Spark": by_nobody,
}


def run(
    way: str, spark: SparkSession, lake: Path, copy: Path
) -> tuple[float, tuple[Digest, int, int]]:
    """Seconds, and what the table is then: its digest, its rows and its parts."""
    shutil.copytree(lake, copy)
    with strandline.open(str(copy), upkeep=False) as store:
        taken = seconds(lambda: WAYS[way](store, spark))
        state = store.shard("orders", schema=SCHEMA, key=["id"]).state()
        parts = [part for batch in state.batches for part in batch.parts]
        total = sum((part.total for part in parts), Digest.ZERO)
        found = (total, sum(part.rows for part in parts), len(parts))
    shutil.rmtree(copy)
    say(f"{way}: {taken:.2f} s, {found[1]:,} rows in {found[2]} parts")
    return taken, found


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--rows", type=int, default=8_000_000)
    options = made.parse_args()
    if options.quick:
        options.rows, options.repeat = 500_000, 1
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    found: dict[str, tuple[Digest, int, int]] = {}
    with workspace() as folder, spark_session(options) as spark:
        lake = build(spark, folder, options)
        for _ in range(options.repeat):
            for way in WAYS:
                taken, found[way] = run(way, spark, lake, folder / "copy")
                times[way].append(taken)
    if len({each[:2] for each in found.values()}) != 1:
        raise SystemExit(f"the ways do not agree: {found}")
    medians = {way: median(taken) for way, taken in times.items()}
    show(
        f"a full compaction of {options.rows:,} rows, {options.cores} tasks at once",
        ["", "seconds", "parts"],
        [[way, f"{medians[way]:.2f}", str(found[way][2])] for way in WAYS],
    )
    ours, one, none = medians.values()
    finish(
        [
            Point("compaction by range beside one task", ours, one, one / ours, "> 1", one > ours),
            Point("compaction by range beside no Spark", ours, none, none / ours, "shown", True),
        ]
    )


if __name__ == "__main__":
    main()
