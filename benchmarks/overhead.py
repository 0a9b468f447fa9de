"""What it costs that everything is on record: journal, digests and commit, of a transaction's time.

One table, upserted and deleted from, and one linear view, by Spark, a transaction at a time. Clocks
stand around what the driver does for the journal (reading it, writing every record of it), for
digests (of what it appends itself) and for the comparison before COMMIT. Appending the rows is
work, and no overhead. Digests that tasks make are an estimate: the same rows are digested once more
in this process, divided by the tasks at once.

    make bench NAME=overhead
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from clocks import Clocked
from floor import count_jobs
from orders import median, parser, say, spark_session, workspace
from report import Point, finish, show

import strandline
from strandline.connectors.generator import recipe
from strandline.journal.log import Journal
from strandline.model.schema import DIFF_COLUMN
from strandline.parts import rows as checked_rows
from strandline.pipeline import agree
from strandline.pipeline.land import Landing
from strandline.pipeline.meaning import input_digest, updates_digest
from strandline.pipeline.settings import PipelineSettings
from strandline.spark import premises, view_linear
from strandline.spark.engines import spark_engine

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline import Store
    from strandline.pipeline.pipeline import Pipeline

SIZES = (1_000, 10_000, 100_000)
COLUMNS = "id bigint, customer bigint, amount decimal(12,2)"
PLACES = {
    "journal": [(Journal, "refresh"), (Journal, "propose")],
    "digests": [
        *((checked_rows, name) for name in ("row_base", "per_time")),
        *((module, "updates_digest") for module in (premises, view_linear)),
    ],
    "commit": [(Landing, "settled"), (agree, "differences"), (agree, "packed")],
}


@dataclass(frozen=True, slots=True)
class Shares:
    """Medians of transactions of one size, in seconds."""

    whole: float
    journal: float
    digests: float
    in_tasks: float
    """The digests that tasks make, estimated."""
    commit: float
    jobs: int

    @property
    def parts(self) -> tuple[float, ...]:
        return self.journal, self.digests, self.in_tasks, self.commit

    @property
    def share(self) -> float:
        return sum(self.parts) / self.whole


def program(size: int, transactions: int) -> str:
    return (
        "CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(12,2), PRIMARY KEY (id)) "
        f"USING generator OPTIONS (seed '7', keys '{10 * size}', deletes '0.05', "
        f"rowsPerSecond '0', rows '{size * transactions}');"
        "CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount >= 5000;"
    )


def one(pipeline: Pipeline) -> None:
    """Carry out decisions until one more transaction is committed."""
    before = pipeline.committed
    while pipeline.committed == before:
        pipeline.step()


def measure(spark: SparkSession, folder: Path, size: int, options: argparse.Namespace) -> Shares:
    warm, count = options.warm, options.warm + options.repeat + 1
    settings = PipelineSettings(rows_max=size, bytes_max=1 << 40, delay_ms=0)
    wholes, parts = [], []
    with (
        strandline.open(str(folder), upkeep=False) as store,
        store.pipeline(
            "shop", program(size, count), settings=settings, engine=spark_engine(spark)
        ) as shop,
    ):
        for number in range(count - 1):
            with Clocked(PLACES) as clocked:
                begin = time.perf_counter()
                one(shop)
                taken = time.perf_counter() - begin
            if number >= warm:
                wholes.append(taken)
                parts.append(clocked.seconds)
        jobs = count_jobs(spark, f"of {size}", lambda: one(shop))
        in_tasks = digest_seconds(store, size, count - 1) / options.cores
    found = {name: median([each[name] for each in parts]) for name in PLACES}
    made = Shares(median(wholes), in_tasks=in_tasks, jobs=jobs, **found)
    say(f"{size:,} rows: {made}")
    return made


def digest_seconds(store: Store, size: int, at: int) -> float:
    """Of what tasks digest in one transaction: what came, and what changes if they put it."""
    options = {"seed": "7", "keys": str(10 * size), "deletes": "0.05", "columns": COLUMNS}
    came = pa.Table.from_batches([recipe(options).rows(at * size, (at + 1) * size)])
    shard = store.shard("shop.orders")
    changes = shard.snapshot(at).to_arrow().slice(0, 2 * size)
    changes = changes.append_column(DIFF_COLUMN, pa.array([1] * changes.num_rows, pa.int64()))
    begin = time.perf_counter()
    input_digest(came)
    updates_digest(changes, shard.state().schema)
    return time.perf_counter() - begin


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--warm", type=int, default=10, help="transactions before the first clock")
    options = made.parse_args()
    options.repeat = max(options.repeat, 15)
    sizes = list(SIZES)
    if options.quick:
        sizes, options.warm, options.repeat = [1_000, 10_000], 3, 5
    with workspace() as folder, spark_session(options) as spark:
        found = {size: measure(spark, folder / f"lake-{size}", size, options) for size in sizes}
    for name in PLACES:
        # Of large transactions the driver digests nothing: tasks do.
        if not any(getattr(each, name) for each in found.values()):
            raise SystemExit(f"nothing was clocked for {name}: this benchmark needs a look")
    show(
        "ms of a transaction, medians",
        ["rows", "whole", "journal", "digests", "in tasks", "commit", "share", "Spark jobs"],
        [
            [
                f"{size:,}",
                *(
                    f"{1000 * value:,.1f}"
                    for value in (
                        each.whole,
                        each.journal,
                        each.digests,
                        each.in_tasks,
                        each.commit,
                    )
                ),
                f"{each.share:.1%}",
                str(each.jobs),
            ]
            for size, each in found.items()
        ],
    )
    most = max(each.jobs for each in found.values())
    finish(
        [
            *(
                Point(
                    f"overhead: journal, digests and commit of {size:,} rows",
                    each.share * each.whole,
                    each.whole,
                    each.share,
                    "<= 0.1",
                    each.share <= 0.1,
                )
                for size, each in found.items()
            ),
            Point("overhead: Spark jobs of a transaction", most, 3, most / 3, "<= 3", most <= 3),
        ]
    )


if __name__ == "__main__":
    main()
