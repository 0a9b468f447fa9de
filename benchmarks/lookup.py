"""How long it takes to find the rows of some keys, cold and warm, beside a join and the limit.

`table.lookup` of 100 to 10,000 random keys in a compacted table, until its rows are here. Cold: no
block of any part is cached, though the operating system may still hold the parts themselves. Warm:
all are, and the keys are new ones each time. Beside it: Spark's broadcast join of the same keys
with the same rows in plain Parquet, in the same session; and as the limit, Polars and DuckDB on
those Parquet files in one process, without Spark.

    make bench NAME=lookup
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import duckdb
import polars as pl
from orders import (
    fresh_cache,
    load,
    median,
    parser,
    read_plain,
    say,
    seconds,
    some_ids,
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

    import pyarrow as pa
    from pyspark.sql import SparkSession

SIZES = (100, 1_000, 10_000)
FILL = 20_000
WAYS = ("warm", "broadcast join", "polars", "duckdb")


@dataclass(frozen=True, slots=True)
class Row:
    """The seconds of one number of keys."""

    size: int
    cold: float
    others: dict[str, float]


class Keys:
    """New keys each time, so that nothing but blocks is remembered."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._seed = 0

    def draw(self, size: int) -> pa.Table:
        self._seed += 1
        return some_ids(self._count, size, self._seed)


def measure(spark: SparkSession, options: argparse.Namespace, folder: Path) -> list[Row]:
    plain = write_orders(spark, options.large, folder / "plain")
    keys = Keys(options.large)
    lake = str(folder / "lake")
    with strandline.open(lake) as store:
        table = load(spark, store, "orders", plain)
        expect(table.lookup_arrow(keys.draw(100), spark=spark), 100)
    cold = {size: cold_seconds(spark, folder, keys, size) for size in SIZES}
    fresh_cache(folder / "cache-warm")
    with strandline.open(lake) as store, store.table("orders") as table:
        fill(spark, table, keys)
        rows = []
        for size in SIZES:
            say(f"{size:,} keys, warm, and beside others")
            ways = others(spark, plain, keys, size)
            ways["warm"] = lambda size=size: expect(
                table.lookup_arrow(keys.draw(size), spark=spark), size
            )
            rows.append(Row(size, cold[size], turns(ways, options.repeat)))
    return rows


def cold_seconds(spark: SparkSession, folder: Path, keys: Keys, size: int) -> float:
    """The first lookup of a table whose cache is empty; Spark itself is warm.

    A store keeps its tables, and a table its cache, so each time has a store that is opened anew.
    """
    times = []
    for number in range(3):
        cache = folder / f"cache-{size}-{number}"
        fresh_cache(cache)
        with strandline.open(str(folder / "lake")) as store, store.table("orders") as table:
            look = partial(table.lookup_arrow, keys.draw(size), spark=spark)
            times.append(seconds(lambda look=look: expect(look(), size)))
        if not any(path.is_file() for path in cache.rglob("*")):
            raise SystemExit("a lookup that was to be cold has found its blocks elsewhere")
    say(f"{size:,} keys, cold: {[f'{each:.3f}' for each in times]}")
    return median(times)


def fill(spark: SparkSession, table: strandline.spark.Table, keys: Keys) -> None:
    """Look up until a lookup finds all blocks cached, or stops getting faster."""
    before = float("inf")
    for _ in range(10):
        taken = seconds(lambda: expect(table.lookup_arrow(keys.draw(FILL), spark=spark), FILL))
        if taken > 0.8 * before:
            return
        before = taken


def others(
    spark: SparkSession, plain: Path, keys: Keys, size: int
) -> dict[str, Callable[[], object]]:
    files = f"{plain}/*.parquet"

    def join() -> None:
        wanted = F.broadcast(spark.createDataFrame(keys.draw(size)))
        expect(read_plain(spark, plain).join(wanted, "id").toArrow(), size)

    def polars() -> None:
        wanted = pl.from_arrow(keys.draw(size))
        expect(pl.scan_parquet(files).join(wanted.lazy(), on="id", how="semi").collect(), size)

    def duck() -> None:
        wanted = keys.draw(size)
        with duckdb.connect() as connection:
            connection.register("wanted", wanted)
            found = connection.sql(
                f"select * from read_parquet('{files}') where id in (select id from wanted)"
            )
            expect(found.to_arrow_table(), size)

    return {"broadcast join": join, "polars": polars, "duckdb": duck}


def expect(found: pa.Table | pl.DataFrame, size: int) -> None:
    count = found.height if isinstance(found, pl.DataFrame) else found.num_rows
    if count != size:
        raise SystemExit(f"{count} rows were found for {size} keys")


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--large", type=int, default=50_000_000)
    options = made.parse_args()
    if options.quick:
        options.large, options.repeat = 200_000, 2
    with workspace() as folder, spark_session(options) as spark:
        rows = measure(spark, options, folder)
    show(
        f"seconds to look keys up in {options.large:,} rows",
        ["keys", "ours, cold", *(f"ours, {w}" if w == "warm" else w for w in WAYS)],
        [
            [f"{row.size:,}", f"{row.cold:.3f}", *(f"{row.others[way]:.3f}" for way in WAYS)]
            for row in rows
        ],
    )
    finish([point for row in rows for point in points(row, options.large)])


def points(row: Row, count: int) -> list[Point]:
    join, warm = row.others["broadcast join"], row.others["warm"]
    limit = min(row.others["polars"], row.others["duckdb"])
    what = f"lookup: {row.size} keys in {count} rows"
    return [
        Point(f"{what}, warm / broadcast join", warm, join, warm / join, "shown", True),
        Point(f"{what}, cold / broadcast join", row.cold, join, row.cold / join, "shown", True),
        Point(f"{what}, warm / one process", warm, limit, warm / limit, "shown", True),
    ]


if __name__ == "__main__":
    main()
