"""What the smallest transaction costs: ten rows, from a DataFrame to committed.

Upserts of ten rows from a file and from the driver, and an append, beside Delta's MERGE of the
same file. How many Spark jobs each took is counted by Spark.

    make bench NAME=floor
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from delta import Delta
from orders import (
    Changes,
    load,
    median,
    orders,
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

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS = 10


@dataclass(frozen=True, slots=True)
class Floor:
    """One way to commit ten rows."""

    name: str
    seconds: float
    jobs: int


def count_jobs(spark: SparkSession, group: str, call: Callable[[], object]) -> int:
    """How many jobs Spark ran for a call; on the side, never inside of a clock."""
    spark.sparkContext.setJobGroup(group, group)
    call()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def measure(spark: SparkSession, options: argparse.Namespace, folder: Path) -> list[Floor]:
    plain = write_orders(spark, options.rows, folder / "plain")
    changes = Changes(folder / "changes", options.rows)
    with (
        strandline.open(str(folder / "lake")) as store,
        Delta(options, folder / "delta") as delta,
        load(spark, store, "orders", plain) as table,
    ):
        say("loading Delta's table")
        delta.load("orders", plain)
        fresh = iter(range(2 * options.rows, 10**12, ROWS))

        def local() -> DataFrame:
            """Rows that the driver has, as a notebook makes them."""
            first = next(fresh)
            return spark.createDataFrame(orders(np.arange(first, first + ROWS), first))

        calls: dict[str, Callable[[Path], object]] = {
            "upsert, rows in a file": lambda batch: table.upsert(read_plain(spark, batch)),
            "upsert, rows in the driver": lambda _: table.upsert(local()),
            "append, rows in the driver": lambda _: table.append(local()),
        }
        times: dict[str, list[float]] = {name: [] for name in (*calls, "Delta MERGE")}
        for number in range(options.repeat + 2):
            say(f"round {number + 1} of {options.repeat + 2}")
            batch = changes.write(ROWS)
            for name, call in calls.items():
                times[name].append(seconds(lambda call=call, batch=batch: call(batch)))
            merged = delta.merge("orders", batch)
            times["Delta MERGE"].append(merged["seconds"])
        batch = changes.write(ROWS)
        jobs = {
            name: count_jobs(spark, name, lambda call=call: call(batch))
            for name, call in calls.items()
        }
        jobs["Delta MERGE"] = int(merged["jobs"])
    # The first two of each warm up.
    return [Floor(name, median(found[2:]), jobs[name]) for name, found in times.items()]


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--rows", type=int, default=5_000_000)
    options = made.parse_args()
    if options.quick:
        options.rows, options.repeat = 100_000, 2
    with workspace() as folder, spark_session(options) as spark:
        floors = measure(spark, options, folder)
    show(
        f"a transaction of {ROWS} rows on a table of {options.rows:,}",
        ["", "seconds", "Spark jobs"],
        [[each.name, f"{each.seconds:.3f}", str(each.jobs)] for each in floors],
    )
    ours, peer = floors[0], floors[-1]
    ratio = ours.seconds / peer.seconds
    most = max(each.jobs for each in floors[:-1])
    finish(
        [
            Point(
                "floor: upsert of 10 rows, ours / Delta",
                ours.seconds,
                peer.seconds,
                ratio,
                "<= 0.3",
                ratio <= 0.3,
            ),
            Point("floor: Spark jobs", most, peer.jobs, most / peer.jobs, "<= 2 jobs", most <= 2),
        ]
    )


if __name__ == "__main__":
    main()
