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
from tests.jvm import DRIVER

import strandline
from strandline.spark import session, worker
from strandline.spark.appends import append
from strandline.spark.compacts import Carrier
from strandline.spark.incoming import Meaning
from strandline.spark.jobs import Jobs
from strandline.spark.landed import Landed
from strandline.spark.upserts import upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from strandline import Store
    from strandline.handles.shard import Shard
    from strandline.spark.desk import Desk
    from strandline.spark.instruction import Answer

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("step", pa.int64())])
LAYOUT = "id long, name string, step long"
PAD = 1000
"""Bytes in a name, where a task shall have so many rows that it puts a part before it ends."""
PADDED = 3000
APART = 100_000
"""From the first id of a task to that of the next, where tasks make their rows themselves."""
SMALL = strandline.Settings(inline_max_bytes=0, part_target_rows=1000)
"""Every row becomes part of an object, and few rows are enough to cut a range."""
HELD = {"append": "append_rows", "upsert": "upsert_ranges", "compact": "merge_units"}
"""Which function a task of a call runs."""
HANGING = strandline.Settings(lease_ms=3_000, inline_max_bytes=0)


class Program:
    """The verbs."""

    spark: SparkSession

    def start(self, master: str, settings: dict[str, str]) -> str:
        self.spark = session("cluster tests", master=master, settings={**DRIVER, **settings})
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

    def more(self, folder: str) -> dict[str, object]:
        """What it takes longer to do: put by place, compact, stream, read changes, by SQL."""
        spark = self.spark
        with ExitStack() as stack:
            store = stack.enter_context(strandline.open(folder, upkeep=False, settings=SMALL))
            goods = store.shard("goods", SCHEMA, key=["id"])
            copy = store.shard("copy", SCHEMA)
            table = stack.enter_context(store.table("goods"))
            table.append(orders_of(spark, 0, 4000, 0), by_place=True)
            table.upsert(orders_of(spark, 3000, 5000, 1))
            changes = rows_of(table.changes(1, spark=spark))
            stream = spark.readStream.format("strandline").load(f"{folder}/goods").writeStream
            stream = stream.format("strandline").trigger(availableNow=True)
            stream = stream.option("checkpointLocation", f"{folder} checkpoint")
            assert stream.start(f"{folder}/copy").awaitTermination(240)
            place = f"OPTIONS (path '{folder}', table 'copy')"
            spark.sql(f"CREATE TABLE IF NOT EXISTS copied USING strandline {place}")
            spark.sql("INSERT INTO copied SELECT id, name, step FROM copied WHERE id < 10")
            counted = spark.sql("SELECT step, count(*) AS rows FROM copied GROUP BY step")
            sql = rows_of(counted)
            spark.sql("DROP TABLE copied")
            return {
                "goods": history(goods),
                "copy": history(copy),
                "changes": changes,
                "sql": sql,
                "merged": self._merged(store),
            }

    def _merged(self, store: Store) -> list[object]:
        """A table of its own, which nobody holds: how far it is merged depends on nothing else."""
        shard = store.shard("merged", SCHEMA, key=["id"])
        shard.retain("1 version")
        with store.table("merged") as table:
            table.append(orders_of(self.spark, 0, 4000, 0))
            table.upsert(orders_of(self.spark, 3000, 5000, 1))
            jobs = compacted(table._desk, Jobs(self.spark, shard.id, slots=2))
            return [jobs, facts_of(shard), rows_of(table.df(self.spark))]

    def held(self, folder: str, call: str, gate: str, step: int) -> list[list[object]]:
        """Do it while the first attempt of its first task waits, with all that it does done.

        The answer is what the table has then.
        """
        with strandline.open(folder, upkeep=False, settings=SMALL) as store:
            shard = store.shard("orders", SCHEMA, key=["id"])
            shard.retain("1 version")
            task = HELD.get(call)
            alone = None if task is None else getattr(worker, task)
            if task is not None:
                setattr(worker, task, held(task, gate))
            try:
                with store.table("orders") as table:
                    if call == "append":
                        start = APART * (1 + step)
                        table.append(orders_of(self.spark, start, start + 2000, step, tasks=2))
                    elif call == "upsert":
                        table.upsert(orders_of(self.spark, 0, 3000, step, tasks=2))
                    elif call == "compact":
                        compacted(table._desk, Jobs(self.spark, shard.id, slots=2))
                    else:
                        rows = table.df(self.spark).mapInArrow(gated(gate), LAYOUT).toArrow()
                        return sorted(map(list, rows_as_tuples(rows)))
            finally:
                if task is not None:
                    setattr(worker, task, alone)
            return sorted(map(list, rows_as_tuples(shard.snapshot().to_arrow())))

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

    def save(self, folder: str, gate: str) -> int:
        """The same by Spark's own way to write."""
        rows = self.spark.range(0, 2, 1, numPartitions=2).mapInArrow(gated_rows(gate), LAYOUT)
        return self._appended(folder, rows, by_format=True)

    def _appended(self, folder: str, rows: DataFrame, *, by_format: bool = False) -> int:
        with strandline.open(folder, upkeep=False) as store:
            shard = store.shard("orders", SCHEMA, key=["id"])
            if by_format:
                rows.write.format("strandline").mode("append").save(f"{folder}/orders")
            else:
                with store.table("orders") as table:
                    assert isinstance(table.append(rows), Landed)
            found = shard.snapshot().to_arrow()
            assert len(set(found.column("id").to_pylist())) == found.num_rows
            return found.num_rows

    def contested(self, folder: str, call: str, gate: str, winner: int) -> dict[str, object]:
        """Append or upsert while two attempts of the first task that puts parts run at once.

        What the table comes to, and the parts that it refers to.
        """
        with strandline.open(folder, upkeep=False) as store:
            shard = store.shard("orders", SCHEMA, key=["id"])
            if not shard.upper.time:
                before = [{"id": n, "name": f"order {n}", "step": 0} for n in range(6000)]
                with shard.writer() as writer:
                    writer.append(pa.Table.from_pylist(before, SCHEMA))
            task = {"append": "append_rows", "upsert": "upsert_ranges"}[call]
            alone = getattr(worker, task)
            setattr(worker, task, twice(task, gate, winner, shard.id))
            try:
                with store.table("orders") as table:
                    start = 10_000 if call == "append" else 0
                    getattr(table, call)(orders_of(self.spark, start, start + 8000, 1, tasks=2))
            finally:
                setattr(worker, task, alone)
            snapshot = shard.snapshot()
            return {
                "rows": sorted(map(list, rows_as_tuples(snapshot.to_arrow()))),
                "parts": [part.key for batch in shard.state().batches for part in batch.parts],
            }

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


def orders_of(spark: SparkSession, start: int, end: int, step: int, *, tasks: int = 4) -> DataFrame:
    name = f"concat('order ', id, ' at {step}') as name"
    return spark.range(start, end, 1, numPartitions=tasks).selectExpr(
        "id", name, f"cast({step} as long) as step"
    )


def compacted(desk: Desk, jobs: Jobs) -> int:
    """Merge all there is, in tasks however small it is; how many jobs that took."""
    desk.compact(full=True, carrier=Carrier(desk, jobs, small=0), slots=jobs.slots)
    return jobs.count


def facts_of(shard: Shard) -> list[list[object]]:
    parts = [part for batch in shard.state().batches for part in batch.parts]
    return [[part.rows, part.digest.hex(), str(part.place_lo), part.base] for part in parts]


def history(shard: Shard) -> list[str]:
    """What was written at each time, as a digest of it."""
    return [moment.digest.hex() for moment in shard.state().moments]


def rows_as_tuples(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in SCHEMA.names), strict=True))


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
                    start = task * APART + at * 9_000
                    ids = range(start, start + 9_000)
                    columns = [list(ids), [f"{n:0{PAD}}" for n in ids], [0] * len(ids)]
                    yield pa.record_batch(columns, ["id", "name", "step"])

    return run


def held(task: str, folder: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The task of that name; the first attempt of task 0 puts all, and waits before it says so."""

    def run(*told: object) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from strandline.spark import worker

        answers = list(getattr(worker, task)(*told))
        context = TaskContext.get()
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            wait_at(folder)
        yield from answers

    return run


def twice(
    task: str, folder: str, winner: int, shard_id: str
) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The task of that name; of two attempts of task 0 only the winner ends, after both have put.

    Each says what it has put in a file that has the number of the attempt.
    """

    def run(*told: object) -> Iterator[pa.RecordBatch]:
        import json
        import os

        from pyspark import TaskContext

        from strandline.spark import worker
        from strandline.spark.instruction import decode_answer

        # The worker's own module, in which nobody has put another function.
        answers = list(getattr(worker, task)(*told))
        context = TaskContext.get()
        if context.partitionId() == 0:
            encoded = [each for batch in answers for each in batch.column(0).to_pylist()]
            parts = [part.key for each in encoded for part in decode_answer(each, shard_id).parts]
            attempt = context.attemptNumber()
            with open(f"{folder}/writing.{attempt}", "w") as file:  # noqa: PTH123 - see below
                json.dump(parts, file)
            os.rename(f"{folder}/writing.{attempt}", f"{folder}/put.{attempt}")  # noqa: PTH104
            wait_until(f"{folder}/put.{1 - attempt}" if attempt == winner else f"{folder}/never")
        yield from answers

    return run


def wait_at(folder: str) -> None:
    """Say which process stands here, and wait until it is let go, or nobody can let it go."""
    import os

    handle = os.open(f"{folder}/inside.{os.getpid()}", os.O_CREAT | os.O_WRONLY)
    os.close(handle)
    wait_until(f"{folder}/go")


def wait_until(there: str) -> None:
    import os
    import time

    ends = time.monotonic() + 240
    while not os.path.exists(there):  # noqa: PTH110 - as little as possible is imported here
        if time.monotonic() > ends:
            raise TimeoutError(f"nobody made {there}")
        time.sleep(0.02)


def main() -> None:
    # Standard output is the answers' alone, whatever Spark prints.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    program = Program()
    for line in sys.stdin:
        number, verb, arguments = json.loads(line)
        try:
            answer = [number, "done", getattr(program, verb)(**arguments)]
        except Exception:  # noqa: BLE001 - whatever it was, the test is told
            answer = [number, "failed", traceback.format_exc()]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
