"""How fast a table reads as a DataFrame, beside Spark's own scan of the same rows in plain Parquet.

`table.df(spark)` of a compacted table, whole rows and the sum of one column; then again with a tail
of small upserts that nothing has compacted yet. `format("strandline")` stands beside it: Python
sources can't prune columns, so one column of it is asked for by an option.

    make bench NAME=scan
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orders import (
    Changes,
    load,
    parser,
    read_plain,
    say,
    spark_session,
    turns,
    workspace,
    write_orders,
)
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from report import Point, finish, show

import strandline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark import Table

PLAIN, OURS, SOURCE = "spark.read.parquet", "table.df(spark)", 'format("strandline")'
WHOLE, COLUMN = "whole rows", "one column"
BATCHES, BATCH_ROWS = 20, 100
Seconds = dict[str, dict[str, float]]


def whole(frame: DataFrame) -> None:
    """Every column of every row, read and thrown away."""
    frame.write.format("noop").mode("overwrite").save()


def column(frame: DataFrame) -> None:
    frame.agg(F.sum("amount")).collect()


def measure(
    spark: SparkSession, options: argparse.Namespace, folder: Path
) -> tuple[Seconds, Seconds]:
    """Seconds by question and reader: compacted, and with a tail."""
    plain = write_orders(spark, options.rows, folder / "plain")
    changes = Changes(folder / "changes", options.rows)
    with strandline.open(str(folder / "lake")) as store:
        table = load(spark, store, "orders", plain)
        expect(table.df(spark), options.rows)
        compacted = both(spark, table, folder, plain, options.repeat)
        table.close()
    # Upkeep is off, so that the tail is still one when it is read.
    os.environ["STRANDLINE_UPKEEP"] = "off"
    with strandline.open(str(folder / "lake")) as store, store.table("orders") as table:
        say(f"writing a tail of {BATCHES} upserts of {BATCH_ROWS} rows")
        for _ in range(BATCHES):
            table.upsert(read_plain(spark, changes.write(BATCH_ROWS)))
        expect(table.df(spark), options.rows + BATCHES * (BATCH_ROWS // 10))
        tailed = both(spark, table, folder, plain, options.repeat)
        if len(table.shard.state().batches) < BATCHES:
            raise SystemExit("the tail was compacted while it was read")
    return compacted, tailed


def both(spark: SparkSession, table: Table, folder: Path, plain: Path, repeat: int) -> Seconds:
    def source(columns: str | None) -> DataFrame:
        reader = spark.read.format("strandline").option("table", "orders")
        if columns is not None:
            reader = reader.option("columns", columns)
        return reader.load(str(folder / "lake"))

    found = {}
    for name, use, asked in ((WHOLE, whole, None), (COLUMN, column, "amount")):
        calls: dict[str, Callable[[], object]] = {
            PLAIN: lambda use=use: use(read_plain(spark, plain)),
            OURS: lambda use=use: use(table.df(spark)),
            SOURCE: lambda use=use, asked=asked: use(source(asked)),
        }
        found[name] = turns(calls, repeat)
        say(f"{name}: {found[name]}")
    return found


def expect(frame: DataFrame, rows: int) -> None:
    counted = frame.count()
    if counted != rows:
        raise SystemExit(f"{counted} of {rows} rows were read")


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--rows", type=int, default=10_000_000)
    options = made.parse_args()
    if options.quick:
        options.rows, options.repeat = 200_000, 2
    with workspace() as folder, spark_session(options) as spark:
        compacted, tailed = measure(spark, options, folder)
    tail = f"with a tail of {BATCHES} batches"
    made_points = []
    for title, found, goal in (("compacted", compacted, 1.15), (tail, tailed, 1.5)):
        show(
            f"seconds to scan {options.rows:,} rows, {title}",
            ["", PLAIN, OURS, SOURCE],
            [
                [name, *(f"{times[reader]:.3f}" for reader in (PLAIN, OURS, SOURCE))]
                for name, times in found.items()
            ],
        )
        for name, times in found.items():
            ratio = times[OURS] / times[PLAIN]
            made_points.append(
                Point(
                    f"scan: {name}, {title}, ours / plain Parquet",
                    times[OURS],
                    times[PLAIN],
                    ratio,
                    f"<= {goal}",
                    ratio <= goal,
                )
            )
    finish(made_points)


if __name__ == "__main__":
    main()
