"""Whether a lookup costs what its keys cost in a table that one very large append has made.

Appends orders by Spark in one call, then looks 100, 1,000 and 10,000 random keys up: each number in
a process of its own, with a session of its own and a cache that is empty, cold once and then warm.
Every row that is found is compared with what it must be. What a cold lookup reads is counted by
doing the same without Spark, with another empty cache. Run by hand: it takes as long as its rows.

    make bench NAME=huge ARGS="--rows 500000000 --dir /data/huge"
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orders import SCHEMA, fresh_cache, median, parser, say, seconds, some_ids, spark_session
from report import Point, finish, show

import strandline
from strandline.parts.lookup import Keys, key_columns
from strandline.parts.parquet import Owner
from strandline.spark.blocks import Blocks
from strandline.spark.cache import BlockCache
from strandline.spark.plan import Gathered

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from strandline import Store
    from strandline.spark import Landed

SIZES = (100, 1_000, 10_000)
CACHE_BYTES = 64 * 1024**3
_TASK_ROWS = 1_250_000
_COLUMNS = (
    "id",
    "pmod(xxhash64(id, 1), 100000) as customer",
    "pmod(xxhash64(id, 2), 100000000) / 100000.0D as amount",
    "concat('c', pmod(xxhash64(id, 1), 5000)) as name",
    "pmod(xxhash64(id, 3), 1099511627776) as placed",
)
_CHOICES = {"large": None, "yes": True, "no": False}


def orders_of(ids: DataFrame) -> DataFrame:
    """The order of each id; the same whoever asks."""
    return ids.selectExpr(*_COLUMNS)


# One append.


def append(options: argparse.Namespace, lake: Path) -> Landed:
    say(f"appending {options.rows:,} rows")
    with (
        spark_session(options) as spark,
        strandline.open(str(lake), upkeep=False) as store,
    ):
        store.shard("orders", schema=SCHEMA, key=["id"])
        ids = spark.range(0, options.rows, 1, numPartitions=-(-options.rows // _TASK_ROWS))
        table = store.table("orders")
        return table.append(orders_of(ids), by_place=_CHOICES[options.by_place])


# Lookups, each number of keys in a process of its own.


def look(options: argparse.Namespace, lake: Path) -> None:
    """Look up, check, count, and say it all in one line."""
    keys = some_ids(options.rows, options.look, seed=options.look)
    with (
        spark_session(options) as spark,
        strandline.open(str(lake), upkeep=False) as store,
        store.table("orders") as table,
    ):
        expected = orders_of(spark.createDataFrame(keys)).toArrow().sort_by("id")

        def find() -> None:
            check(table.lookup_arrow(keys, spark=spark), expected)

        warm_up(spark)
        cold = seconds(find)
        warm = median([seconds(find) for _ in range(options.repeat)])
        facts = {"size": options.look, "cold": cold, "warm": warm, **counted(store, keys)}
    print(json.dumps(facts))


def warm_up(spark: SparkSession) -> None:
    """A session's first job in Python starts workers, which is not what is measured."""
    spark.range(0, 64, 1, 2).mapInArrow(lambda batches: batches, "id bigint").toArrow()


def check(found: pa.Table, expected: pa.Table) -> None:
    found = found.sort_by("id").select(expected.column_names)
    if found.to_pydict() != expected.to_pydict():
        raise SystemExit(f"{found.num_rows} rows were found that are not those that were appended")


def counted(store: Store, keys: pa.Table) -> dict[str, float]:
    """What a cold lookup of these keys reads."""
    table = store.table("orders")
    desk, shard = table._desk, table.shard  # noqa: SLF001 - what tasks do, without Spark
    with desk.view() as view, tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        schema = view.state.schema
        wanted = Keys.of(key_columns(keys, schema), schema)
        time = view.upper.last() or 0
        parts = desk.stored(view.state, time, Gathered(wanted.values, wanted.places)).parts
        blocks = Blocks(store.env.blob, BlockCache(Path(folder), CACHE_BYTES))
        opened = touched = 0
        for part in parts:
            within = len(wanted.between(part.place_lo, part.place_hi))
            opened += within > 0
            touched += within
            blocks.lookup(part, schema, Owner(shard.id, part.key), wanted, as_of=time)
    return {
        "parts": opened,
        "parts_a_key": touched / len(wanted),
        "reads": blocks.counts["reads"],
        "bytes": blocks.counts["read_bytes"],
    }


def cache_folder() -> str:
    return os.environ["STRANDLINE_CACHE_DIR"]


def in_a_process(options: argparse.Namespace, folder: Path, size: int) -> dict[str, float]:
    say(f"looking {size:,} keys up")
    with tempfile.TemporaryDirectory(dir=folder, prefix="cache-") as cache:
        command = [sys.executable, __file__, "--look", str(size), "--rows", str(options.rows)]
        command += ["--dir", str(folder), "--cores", str(options.cores)]
        command += ["--memory", options.memory, "--repeat", str(options.repeat)]
        cached = {"STRANDLINE_CACHE_DIR": cache, "STRANDLINE_CACHE_BYTES": str(CACHE_BYTES)}
        done = subprocess.run(
            command, env=os.environ | cached, stdout=subprocess.PIPE, text=True, check=True
        )
    facts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return facts


# All of it.


@contextmanager
def place(options: argparse.Namespace) -> Iterator[Path]:
    """The folder that was named, which stays; or one that is gone afterwards."""
    if options.dir is not None:
        options.dir.mkdir(parents=True, exist_ok=True)
        yield options.dir.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as name:
        yield Path(name)


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--rows", type=int, default=20_000_000)
    made.add_argument("--dir", type=Path, help="a folder with room for all rows twice; it stays")
    made.add_argument("--by-place", choices=_CHOICES, default="large", help="as in table.append")
    made.add_argument("--look", type=int, help="only look so many keys up, in a folder that stayed")
    options = made.parse_args()
    if options.quick:
        options.rows, options.repeat = 200_000, 2
    with place(options) as folder:
        lake = folder / "lake"
        if options.look is not None:
            look(options, lake)
            return
        if lake.exists():
            raise SystemExit(f"{lake} exists: name another folder, or remove it")
        with tempfile.TemporaryDirectory(dir=folder, prefix="cache-") as cache:
            fresh_cache(Path(cache) / "append")
            landed = append(options, lake)
        rows = [in_a_process(options, folder, size) for size in SIZES if size <= options.rows]
    report(options.rows, landed, rows)


def report(count: int, landed: Landed, rows: list[dict[str, float]]) -> None:
    show(
        f"an append of {count:,} rows",
        ["seconds", "rows a second", "jobs", "parts", "MB"],
        [
            [
                f"{landed.seconds:.1f}",
                f"{count / landed.seconds:,.0f}",
                str(landed.jobs),
                str(landed.parts),
                f"{landed.bytes / 1e6:,.0f}",
            ]
        ],
    )
    show(
        f"lookups in {count:,} rows",
        ["keys", "cold s", "warm s", "parts", "parts a key", "reads", "MB read"],
        [
            [
                f"{row['size']:,}",
                f"{row['cold']:.3f}",
                f"{row['warm']:.3f}",
                str(row["parts"]),
                f"{row['parts_a_key']:.2f}",
                str(row["reads"]),
                f"{row['bytes'] / 1e6:,.1f}",
            ]
            for row in rows
        ],
    )
    finish([point for row in rows for point in points(row, count, landed.bytes)])


def points(row: dict[str, float], count: int, whole: int) -> list[Point]:
    what = f"huge: {row['size']} keys in {count} rows"
    share = row["bytes"] / max(1, whole)
    one = row["parts_a_key"]
    return [
        Point(
            f"{what}, cold / warm",
            row["cold"],
            row["warm"],
            row["cold"] / row["warm"],
            "shown",
            True,
        ),
        Point(f"{what}, bytes read / table", row["bytes"], whole, share, "shown", True),
        Point(f"{what}, parts a key / runs", one, 8, one / 8, "<= 1", one <= 8),
    ]


if __name__ == "__main__":
    main()
