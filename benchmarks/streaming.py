"""How many rows a second a stream writes and reads, beside Spark's file sink and file source.

The same files are streamed into a table and into a folder of Parquet, micro-batch by micro-batch,
each committed exactly once; then both are streamed back and thrown away. In turns, from the first
row to the end of a query that takes all there is (`availableNow`).

    make bench NAME=streaming
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orders import (
    LAYOUT,
    SCHEMA,
    median,
    parser,
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

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter


class Round:
    """One stream into each sink and back out of it, in a folder of its own."""

    def __init__(self, spark: SparkSession, options: argparse.Namespace, folder: Path) -> None:
        self._spark = spark
        self._options = options
        self._folder = folder
        self._lake = str(folder / "lake")
        self._files = str(folder / "files")
        with strandline.open(self._lake) as store:
            store.shard("orders", schema=SCHEMA, key=["id"])

    def write_ours(self, source: Path) -> float:
        writer = self._arriving(source).writeStream.format("strandline")
        return self._run(
            "write-ours", writer.option("table", "orders").option("path", self._lake), app="bench"
        )

    def write_files(self, source: Path) -> float:
        writer = self._arriving(source).writeStream.format("parquet")
        return self._run("write-files", writer.option("path", self._files))

    def read_ours(self) -> float:
        reader = self._spark.readStream.format("strandline").option("table", "orders")
        # The rows of one micro-batch that was written; a version is never divided.
        reader = reader.option("maxRowsPerTrigger", str(self._each))
        frame = reader.load(self._lake)
        return self._run("read-ours", frame.writeStream.format("noop"))

    def read_files(self) -> float:
        # As many micro-batches as it was written in.
        written = len(list(Path(self._files).glob("*.parquet")))
        batches = -(-self._options.files // self._options.batch_files)
        frame = self._arriving(self._files, -(-written // batches))
        return self._run("read-files", frame.writeStream.format("noop"))

    @property
    def _each(self) -> int:
        options = self._options
        return int(options.rows // options.files * options.batch_files)

    def _arriving(self, source: Path | str, files: int | None = None) -> DataFrame:
        most = self._options.batch_files if files is None else files
        reader = self._spark.readStream.schema(LAYOUT).option("maxFilesPerTrigger", str(most))
        return reader.parquet(str(source))

    def _run(self, name: str, writer: DataStreamWriter, app: str | None = None) -> float:
        checkpoint = str(self._folder / f"checkpoint-{name}")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        if app is not None:
            writer = writer.option("txnAppId", app)
        say(name)

        def stream() -> None:
            query = writer.start()
            query.awaitTermination()
            done = sum(progress.numInputRows for progress in query.recentProgress)
            if done != self._options.rows:
                raise SystemExit(f"{name}: {done} of {self._options.rows} rows went through")

        return seconds(stream)


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--rows", type=int, default=4_000_000)
    made.add_argument("--files", type=int, default=40)
    made.add_argument("--batch-files", type=int, default=4, help="files in a micro-batch")
    options = made.parse_args()
    options.repeat = min(options.repeat, 3)
    if options.quick:
        options.rows, options.files, options.repeat = 80_000, 8, 1
    names = ("write_ours", "write_files", "read_ours", "read_files")
    times: dict[str, list[float]] = {name: [] for name in names}
    with workspace() as folder, spark_session(options) as spark:
        source = write_orders(spark, options.rows, folder / "source", options.files)
        # The first round warms up.
        for number in range(options.repeat + 1):
            turn = Round(spark, options, folder / f"round-{number}")
            found = {
                "write_ours": turn.write_ours(source),
                "write_files": turn.write_files(source),
                "read_ours": turn.read_ours(),
                "read_files": turn.read_files(),
            }
            if number:
                for name in names:
                    times[name].append(found[name])
    rates = {name: options.rows / median(found) for name, found in times.items()}
    batches = -(-options.files // options.batch_files)
    show(
        f"rows a second, {options.rows:,} rows in {batches} micro-batches",
        ["", "ours", "Spark's files"],
        [
            ["streaming write", f"{rates['write_ours']:,.0f}", f"{rates['write_files']:,.0f}"],
            ["streaming read", f"{rates['read_ours']:,.0f}", f"{rates['read_files']:,.0f}"],
        ],
    )
    finish(
        [
            Point(
                f"streaming: {name}, rows a second, ours / files",
                rates[f"{name}_ours"],
                rates[f"{name}_files"],
                rates[f"{name}_ours"] / rates[f"{name}_files"],
                "shown",
                True,
            )
            for name in ("write", "read")
        ]
    )


if __name__ == "__main__":
    main()
