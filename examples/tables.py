"""Tables without a pipeline: millions of rows that Spark upserts in fractions of a second.

    python examples/tables.py --rows 3000000

Everything happens in a temporary folder. Each claim is checked when it is made; the first one
that does not hold ends the demonstration with an error.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import TYPE_CHECKING

import duckdb
from pyspark.sql import functions as sql
from rich.console import Console
from rich.table import Table as Grid

import strandline
import strandline.spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark import Landed, Table

COLUMNS = "id BIGINT NOT NULL, customer BIGINT, amount DECIMAL(12,2), status STRING, seq BIGINT"
SIZES = (100, 1_000, 10_000)

screen = Console(highlight=False)


class BrokenPromiseError(Exception):
    """Something that Strandline promises did not hold."""


def chapter(number: int, title: str, text: str) -> None:
    screen.print(f"\n[bold cyan]{number}  {title}[/]")
    screen.print(text, style="dim")


def promise(text: str, *, holds: bool) -> None:
    if not holds:
        screen.print(f"   [bold red]✗ {text}[/]")
        raise BrokenPromiseError(text)
    screen.print(f"   [green]✓[/] {text}")


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def orders(ids: DataFrame, status: str, seq: int) -> DataFrame:
    """Rows of the table for these ids, with amounts that can be computed again."""
    return ids.select(
        "id",
        (sql.col("id") % 977).alias("customer"),
        ((sql.col("id") % 10_000) / 100).cast("decimal(12,2)").alias("amount"),
        sql.lit(status).alias("status"),
        sql.lit(seq).cast("bigint").alias("seq"),
    )


def load(spark: SparkSession, table: Table, rows: int) -> None:
    chapter(1, "A table of millions of rows", f"{rows:,} orders, written by Spark in one job.")
    done = table.append(orders(spark.range(rows), "placed", 0))
    screen.print(f"   {done.rows:,} rows in {done.parts} parts, {megabytes(done.bytes)}")
    promise("all of them are there", holds=table.df(spark).count() == rows)


def upserts(spark: SparkSession, table: Table, rows: int) -> None:
    chapter(
        2,
        "Upserts that cost what they change",
        "Random keys, each with a new status; those divisible by 13 are deleted. A copy-on-write "
        "table would write every file again that holds one of them: here, all of them.",
    )
    whole = sum(part.size for part in table.shard.snapshot().parts())
    grid = Grid("keys", "seconds", "Spark jobs", "written", "copy on write", box=None)
    table.upsert(changed(spark, rows, 10, seq=1), deleteWhen="id % 13 = 0")  # Warms the cache.
    for number, size in enumerate(SIZES, start=2):
        done = table.upsert(
            changed(spark, rows, size, seq=number), sequenceBy="seq", deleteWhen="id % 13 = 0"
        )
        grid.add_row(*told(size, done), megabytes(whole))
    screen.print(grid)
    count = table.df(spark).where("seq > 0").count()
    promise(f"{count:,} orders have a new status", holds=count > 0.8 * max(SIZES))


def changed(spark: SparkSession, rows: int, count: int, seq: int) -> DataFrame:
    step = max(1, rows // count)
    ids = spark.range(0, rows, step, numPartitions=2).select((sql.col("id") + seq).alias("id"))
    return orders(ids, f"status {seq}", seq)


def told(size: int, done: Landed) -> tuple[str, ...]:
    written = megabytes(done.bytes) if done.bytes else "in the metadata"
    return f"{size:,}", f"{done.seconds:.2f}", str(done.jobs), written


def travel(spark: SparkSession, table: Table, rows: int) -> None:
    chapter(3, "Time travel", "Every upsert was a time; each can be read as it was.")
    newest = table.shard.upper.last() or 0
    grid = Grid("as of", "orders", "with a new status", box=None)
    for as_of in range(newest + 1):
        df = table.df(spark, as_of)
        fresh = df.where("seq > 0").count()
        grid.add_row(str(as_of), f"{df.count():,}", f"{fresh:,}")
    screen.print(grid)
    promise("the first version is untouched", holds=table.df(spark, 0).count() == rows)


def feed(spark: SparkSession, folder: str) -> None:
    chapter(4, "A change feed", 'spark.read.format("strandline").option("readChangeFeed", "true")')
    changes = (
        spark.read.format("strandline")
        .option("readChangeFeed", "true")
        .option("startingVersion", 2)
        .load(f"{folder}/orders")
    )
    kinds = changes.groupBy("_commit_version", "_change_type").count()
    grid = Grid("version", "change", "rows", box=None)
    found = sorted((row[0], row[1], row[2]) for row in kinds.collect())
    for version, kind, count in found:
        grid.add_row(str(version), kind, f"{count:,}")
    screen.print(grid)
    before = sum(count for _, kind, count in found if kind == "update_preimage")
    after = sum(count for _, kind, count in found if kind == "update_postimage")
    promise("every update has an image before and one after", holds=before == after > 0)


def elsewhere(spark: SparkSession, table: Table) -> None:
    chapter(5, "The same table without Spark", "DuckDB reads the same rows, as of the same time.")
    connection = duckdb.connect()
    table.shard.snapshot(columns=["id", "status", "amount"]).to_duckdb(connection, "orders")
    query = "select count(*), sum(amount) from orders where status <> 'placed'"
    ours = connection.execute(query).fetchone()
    theirs = table.df(spark).where("status <> 'placed'").agg(sql.count("*"), sql.sum("amount"))
    promise(f"both say {ours[0]:,} orders, {ours[1]} in all", holds=ours == tuple(theirs.first()))


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    rows = parser.parse_args().rows
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="strandline-tables-") as scratch:
        folder = f"{scratch}/lake"
        screen.print("Starting Spark …", style="dim")
        spark = strandline.spark.session("tables")
        try:
            with strandline.open(folder) as store:
                table = store.table("orders", COLUMNS, key=["id"])
                load(spark, table, rows)
                upserts(spark, table, rows)
                travel(spark, table, rows)
                feed(spark, folder)
                elsewhere(spark, table)
        finally:
            spark.stop()
    seconds = time.perf_counter() - begin
    screen.print(f"\n[bold green]Everything held.[/] {seconds:.0f} seconds, with Spark's start.")


if __name__ == "__main__":
    main()
