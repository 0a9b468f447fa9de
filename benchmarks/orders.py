"""What the Spark benchmarks share: the same orders for everybody, a loaded table, a clock.

Rows of five columns, about 16 bytes each in Parquet and 50 in Arrow. A benchmark writes them once
as plain Parquet; our table, Delta's and Spark's own scan all start from those files.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.spark import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from strandline import Store
    from strandline.spark import Table

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("placed", pa.int64()),
    ]
)
LAYOUT = "id bigint, customer bigint, amount double, name string, placed bigint"
_FILE_ROWS = 2_500_000
_APPEND_ROWS = 25_000_000


def parser(about: str) -> argparse.ArgumentParser:
    """The options that all of them have."""
    made = argparse.ArgumentParser(description=about.partition("\n")[0])
    made.add_argument("--cores", type=int, default=2, help="tasks at once, ours and the peers'")
    made.add_argument("--memory", default="4g", help="of each driver's Java")
    made.add_argument("--repeat", type=int, default=5, help="runs behind each median")
    made.add_argument("--quick", action="store_true", help="small tables: does it run at all")
    return made


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder for everything, gone afterwards; blocks are cached below it, never in the home."""
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as name:
        folder = Path(name)
        fresh_cache(folder / "cache")
        yield folder


def fresh_cache(folder: Path) -> None:
    """Tables that are opened from now on keep their blocks here, where none are yet."""
    folder.mkdir(parents=True)
    os.environ["STRANDLINE_CACHE_DIR"] = str(folder)


@contextmanager
def spark_session(options: argparse.Namespace) -> Iterator[SparkSession]:
    spark = session(
        "bench",
        master=f"local[{options.cores}]",
        settings={"spark.driver.memory": options.memory, "spark.ui.showConsoleProgress": False},
    )
    try:
        yield spark
    finally:
        spark.stop()


def say(text: str) -> None:
    """Progress, on standard error."""
    print(f"   {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# Rows.


def write_orders(spark: SparkSession, count: int, folder: Path, files: int | None = None) -> Path:
    """Orders 0, 1, 2 … as plain Parquet; unless told otherwise in files of ordinary size."""
    say(f"writing {count:,} rows as plain Parquet")
    if files is None:
        files = max(1, -(-count // _FILE_ROWS))
    spark.range(0, count, 1, numPartitions=files).selectExpr(
        "id",
        "pmod(xxhash64(id, 1), 100000) as customer",
        "pmod(xxhash64(id, 2), 100000000) / 100000.0D as amount",
        "concat('c', pmod(xxhash64(id, 1), 5000)) as name",
        "pmod(xxhash64(id, 3), 1099511627776) as placed",
    ).write.parquet(str(folder))
    return folder


def orders(ids: np.ndarray, seed: int) -> pa.Table:
    """New rows for these ids."""
    random = np.random.default_rng(seed)
    customers = random.integers(0, 100_000, len(ids))
    return pa.table(
        {
            "id": ids,
            "customer": customers,
            "amount": random.random(len(ids)) * 1_000,
            "name": pa.array(np.char.add("c", (customers % 5_000).astype(str))),
            "placed": random.integers(0, 2**40, len(ids)),
        },
        schema=SCHEMA,
    )


class Changes:
    """Batches of changed orders: nine in ten replace an order, one in ten is new."""

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._count = count
        self._next_new = count
        self._number = 0

    def write(self, size: int) -> Path:
        """The next batch, as a Parquet file."""
        self._number += 1
        fresh = size // 10
        random = np.random.default_rng(self._number)
        old = random.choice(self._count, size - fresh, replace=False, shuffle=False)
        new = np.arange(self._next_new, self._next_new + fresh)
        self._next_new += fresh
        path = self._folder / f"{self._number:04}-{size}.parquet"
        pq.write_table(orders(np.concatenate([old, new]), self._number), path)
        return path


def some_ids(count: int, size: int, seed: int) -> pa.Table:
    """Keys to look for."""
    ids = np.random.default_rng(seed).choice(count, size, replace=False, shuffle=False)
    return pa.table({"id": pa.array(ids, pa.int64())})


def read_plain(spark: SparkSession, *paths: Path) -> DataFrame:
    return spark.read.schema(LAYOUT).parquet(*(str(path) for path in paths))


# Tables.


def load(spark: SparkSession, store: Store, name: str, plain: Path) -> Table:
    """A table with the rows of plain Parquet files, appended by Spark and compacted."""
    shard = store.shard(name, schema=SCHEMA, key=["id"])
    shard.retain("1 version")
    table = store.table(name)
    files = sorted(plain.glob("*.parquet"))
    each = max(1, _APPEND_ROWS // _FILE_ROWS)
    say(f"loading table {name}")
    for first in range(0, len(files), each):
        table.append(read_plain(spark, *files[first : first + each]))
    say(f"compacting table {name}")
    compact(table, spark)
    batches = shard.state().batches
    say(f"table {name} has {len(batches)} batches of {sum(b.rows for b in batches):,} rows")
    return table


def compact(table: Table, spark: SparkSession) -> None:
    """Everything into the base; by Spark if the table can."""
    by_spark = getattr(table, "compact", None)
    if by_spark is None:
        table.shard.compact(full=True)
    else:
        by_spark(spark)


# Clocks.


def seconds(call: Callable[[], object]) -> float:
    gc.collect()
    begin = time.perf_counter()
    keep = call()
    taken = time.perf_counter() - begin
    del keep
    return taken


def median(times: Sequence[float]) -> float:
    return statistics.median(times)


def turns(calls: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Medians of calls that take turns, so that whatever slows the machine slows all of them."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return {name: median(found) for name, found in times.items()}
