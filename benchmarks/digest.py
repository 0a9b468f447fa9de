"""What the digest costs of writing: its share of an append, in one thread and in Spark.

The digest is the sum of all row hashes. An append of Arrow rows is timed in this process, and in it
the time that goes into hashing rows and adding hashes up, by a clock around those two functions.
The goal is about that share. The share of the same append by Spark is an estimate: the same digest,
divided evenly among the tasks that run at once, of the time that the whole append takes.

    make bench NAME=digest
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from clocks import Clocked
from orders import (
    SCHEMA,
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
from strandline.parts import rows as checked_rows

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession


DIGEST = {"digest": [(checked_rows, "row_base"), (checked_rows, "per_time")]}
"""The functions by which an append makes its digest."""


def in_process(folder: Path, table: pa.Table, repeat: int) -> tuple[float, float]:
    """Seconds of an append, and of the digest in it."""
    wholes, digests = [], []
    with strandline.open(str(folder / "lake")) as store:
        shard = store.shard("orders", schema=SCHEMA, key=["id"])
        with shard.writer() as writer:
            for _ in range(repeat + 1):
                with Clocked(DIGEST) as clocked:
                    wholes.append(seconds(lambda: writer.append(table)))
                digests.append(clocked.seconds["digest"])
                if not digests[-1]:
                    raise SystemExit("the digest is made elsewhere: this benchmark needs a look")
    say(f"appends in this process: {wholes}, of which digests: {digests}")
    return median(wholes[1:]), median(digests[1:])


def by_spark(spark: SparkSession, folder: Path, options: argparse.Namespace) -> float:
    """Seconds of the same append by Spark, from files that keep all its tasks busy."""
    plain = write_orders(spark, options.rows, folder / "plain", 2 * options.cores)
    with strandline.open(str(folder / "spark")) as store:
        store.shard("orders", schema=SCHEMA, key=["id"])
        with store.table("orders") as table:
            times = [
                seconds(lambda: table.append(read_plain(spark, plain)))
                for _ in range(options.repeat + 1)
            ]
    say(f"appends by Spark: {times}")
    return median(times[1:])


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--rows", type=int, default=2_000_000)
    options = made.parse_args()
    if options.quick:
        options.rows, options.repeat = 200_000, 2
    with workspace() as folder:
        table = orders(np.arange(options.rows), 1)
        whole, digest = in_process(folder, table, options.repeat)
        with spark_session(options) as spark:
            spark_whole = by_spark(spark, folder, options)
    show(
        f"an append of {options.rows:,} rows",
        ["", "seconds", "digest", "share"],
        [
            ["in one process", f"{whole:.3f}", f"{digest:.3f}", f"{digest / whole:.1%}"],
            [
                f"by Spark, {options.cores} tasks at once (estimated)",
                f"{spark_whole:.3f}",
                f"{digest / options.cores:.3f}",
                f"{digest / options.cores / spark_whole:.1%}",
            ],
        ],
    )
    share, spark_share = digest / whole, digest / options.cores / spark_whole
    finish(
        [
            Point("digest: share of an append", digest, whole, share, "<= 0.1", share <= 0.1),
            Point(
                "digest: share of an append by Spark, estimated",
                digest / options.cores,
                spark_whole,
                spark_share,
                "shown",
                True,
            ),
        ]
    )


if __name__ == "__main__":
    main()
