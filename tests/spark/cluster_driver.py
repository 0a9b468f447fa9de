"""A program that uses Strandline on a cluster: one session, and verbs that come as lines.

It runs as `__main__`, so Spark carries its functions by value to executors, which do not have
this file.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING

import pyarrow as pa

import strandline
from strandline.spark import session
from strandline.spark.appends import append
from strandline.spark.incoming import Meaning
from strandline.spark.jobs import Jobs
from strandline.spark.landed import Landed
from strandline.spark.upserts import upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from strandline.handles.shard import Shard
    from strandline.spark.desk import Desk
    from strandline.spark.instruction import Answer

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("step", pa.int64())])
LAYOUT = "id long, name string, step long"
PAD = 1000
"""Bytes in a name, where a task shall have so many rows that it puts a part before it ends."""
PADDED = 3000
HANGING = strandline.Settings(lease_ms=3_000, inline_max_bytes=0)


class Program:
    """The verbs."""

    spark: SparkSession

    def start(self, master: str, settings: dict[str, str]) -> str:
        self.spark = session("cluster tests", master=master, settings=settings)
        return self.spark.version

    def stop(self) -> None:
        self.spark.stop()

    def everything(self, folder: str) -> dict[str, object]:
        """One of each: what came of it is the same on every master."""
        spark = self.spark
        with ExitStack() as stack:
            store = stack.enter_context(strandline.open(folder, upkeep=False))
            orders = store.shard("orders", SCHEMA, key=["id"])
            log = store.shard("log", SCHEMA)
            table = stack.enter_context(store.table("orders"))
            table.append(orders_of(spark, 0, 5000, 0))
            changed = orders_of(spark, 4000, 7000, 1).selectExpr("*", "id % 2 = 0 as gone")
            table.upsert(changed, sequenceBy="step", deleteWhen="gone")
            written = table.df(spark).where("id % 3 = 0").write.format("strandline")
            written.mode("append").save(f"{folder}/log")
            upserted = orders_of(spark, 6900, 7100, 3).write.format("strandline")
            upserted.option("keys", "id").mode("append").save(f"{folder}/orders")
            read = spark.read.format("strandline")
            feed = read.option("readChangeFeed", "true").option("startingVersion", 1)
            wanted = orders_of(spark, 3990, 4010, 0).select("id")
            return {
                "orders": history(orders),
                "log": history(log),
                "lookup": rows_of(table.lookup(wanted)),
                "df": rows_of(table.df(spark)),
                "format": rows_of(spark.read.format("strandline").load(f"{folder}/orders")),
                "feed": rows_of(feed.load(f"{folder}/orders").drop("_commit_timestamp")),
            }

    def append(self, folder: str, gate: str) -> int:
        """Append more rows than a task holds back, through a gate; the answer is how many."""
        rows = self.spark.range(0, 2, 1, numPartitions=2).mapInArrow(gated_rows(gate), LAYOUT)
        return self._appended(folder, rows)

    def hang(self, folder: str, gates: dict[str, str]) -> None:
        """Write to three tables at once; each write stops at its gate, after a job of its own."""
        store = strandline.open(folder, upkeep=False, settings=HANGING)
        for name, (after, write) in HANGS.items():
            desk = store.table(name)._desk
            jobs = Hanging(self.spark, desk.shard.id, after, gates[name])
            Thread(target=write, args=(desk, jobs, padded(self.spark)), daemon=True).start()

    def _appended(self, folder: str, rows: DataFrame) -> int:
        with strandline.open(folder, upkeep=False) as store:
            shard = store.shard("orders", SCHEMA, key=["id"])
            with store.table("orders") as table:
                assert isinstance(table.append(rows), Landed)
            found = shard.snapshot().to_arrow()
            assert len(set(found.column("id").to_pylist())) == found.num_rows
            return found.num_rows

    def read(self, folder: str, gate: str, way: str) -> list[str]:
        with strandline.open(folder, upkeep=False) as store, store.table("orders") as table:
            if way == "df":
                frame = table.df(self.spark)
            else:
                frame = self.spark.read.format("strandline").load(f"{folder}/orders")
            return rows_of(frame.mapInArrow(gated(gate), LAYOUT))


class Hanging(Jobs):
    """Jobs after one of which the driver waits, with what its tasks have answered in hand."""

    def __init__(self, spark: SparkSession, shard_id: str, after: int, gate: str) -> None:
        super().__init__(spark, shard_id)
        self._after = after
        self._gate = gate

    def over(self, *told: object) -> list[Answer]:
        answers = super().over(*told)
        if self.count == self._after:
            wait_at(self._gate)
        return answers


def upsert_padded(desk: Desk, jobs: Jobs, frame: DataFrame) -> None:
    upsert(desk, jobs, frame, Meaning())


HANGS = {"gathered": (1, upsert_padded), "resolved": (2, upsert_padded), "put": (1, append)}
"""By table, after which of its jobs a write stops, and which write that is."""


def padded(spark: SparkSession) -> DataFrame:
    """More rows in each of two tasks than a task returns to the driver."""
    name = f"lpad(cast(id as string), {PAD}, '0') as name"
    rows = spark.range(0, PADDED, 1, numPartitions=2)
    return rows.selectExpr("id", name, "cast(1 as long) as step")


def orders_of(spark: SparkSession, start: int, end: int, step: int) -> DataFrame:
    name = f"concat('order ', id, ' at {step}') as name"
    return spark.range(start, end, 1, numPartitions=4).selectExpr(
        "id", name, f"cast({step} as long) as step"
    )


def history(shard: Shard) -> list[str]:
    """What was written at each time, as a digest of it."""
    return [moment.digest.hex() for moment in shard.state().moments]


def rows_of(frame: DataFrame) -> list[str]:
    table = frame.toArrow()
    return sorted(json.dumps(row, sort_keys=True) for row in table.to_pylist())


# What runs in tasks.


def gated(folder: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows pass; before the last of the first attempt of task 0 pass, it waits at the gate."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            wait_at(folder)

    return run


def gated_rows(folder: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Each task makes 90 MB; the first attempt of task 0 waits at the gate before the last."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for at in range(10):
                    if at == 9 and task == 0 and context.attemptNumber() == 0:
                        wait_at(folder)
                    ids = range(task * 100_000 + at * 9_000, task * 100_000 + at * 9_000 + 9_000)
                    columns = [list(ids), [f"{n:0{PAD}}" for n in ids], [0] * len(ids)]
                    yield pa.record_batch(columns, ["id", "name", "step"])

    return run


def wait_at(folder: str) -> None:
    """Say which process stands here, and wait until it is let go, or nobody can let it go."""
    import os
    import time

    handle = os.open(f"{folder}/inside.{os.getpid()}", os.O_CREAT | os.O_WRONLY)
    os.close(handle)
    ends = time.monotonic() + 150
    while not os.path.exists(f"{folder}/go"):  # noqa: PTH110 - as little as possible is imported here
        if time.monotonic() > ends:
            raise TimeoutError("nobody opened the gate")
        time.sleep(0.02)


def main() -> None:
    # Standard output is the answers' alone, whatever Spark prints.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    program = Program()
    for line in sys.stdin:
        verb, arguments = json.loads(line)
        try:
            answer = ["done", getattr(program, verb)(**arguments)]
        except Exception:  # noqa: BLE001 - whatever it was, the test is told
            answer = ["failed", traceback.format_exc()]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
