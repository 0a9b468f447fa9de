"""What Spark does to a job changes nothing: other partitions, tasks that fail late, lost parts.

S1 to S5, S9, S11 and S17 of the scenarios in their Spark form. Executors and workers that are
killed need a cluster: see `test_cluster`.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.cluster import Gate, wait_for

import strandline
from strandline.model.digest import Digest
from strandline.parts import stats
from strandline.spark.table import frame_of
from strandline.upkeep.findings import Severity
from strandline.upkeep.fsck import fsck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("step", pa.int64())])
LAYOUT = "id long, name string, step long"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Every append becomes objects, however small it is."""
    settings = strandline.Settings(inline_max_bytes=0)
    with strandline.open(str(tmp_path / "lake"), settings=settings, upkeep=False) as opened:
        yield opened


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Changes a setting of the session for one test."""
    before: dict[str, str | None] = {}

    def change(name: str, value: str) -> None:
        before[name] = spark.conf.get(name, None)
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def rows(ids: Iterable[int], step: int) -> pa.Table:
    numbers = list(ids)
    columns = [numbers, [f"order {n}" for n in numbers], [step] * len(numbers)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def written(shard: Shard) -> list[Digest]:
    """What was written at each time."""
    return [Digest.unpack(moment.digest) for moment in shard.state().moments]


def ids_of(frame: DataFrame) -> list[int]:
    return sorted(frame.toArrow().column("id").to_pylist())


def orphans(store: Store) -> list[str]:
    """Parts that fsck finds nobody to need, once all that somebody needs is proved to be well."""
    found = fsck(store.env, store.leases, deep=True)
    assert found.sound
    things = [each.thing for each in found.of(Severity.LEFTOVER)]
    return [thing for thing in things if thing.endswith(".parquet")]


# However the work is divided.


@pytest.fixture(scope="module")
def undivided() -> dict[str, list[Digest]]:
    """The digests of the first way that was tried; every other way has to give the same."""
    return {}


@pytest.mark.parametrize(
    ("partitions", "adaptive"),
    [(1, "true"), (2, "false"), (4, "true"), (8, "false")],
)
def test_results_are_the_same_however_the_work_is_divided(
    spark, store, conf, undivided, partitions, adaptive
):
    conf("spark.sql.adaptive.enabled", adaptive)
    conf("spark.sql.shuffle.partitions", str(partitions))
    shard = store.shard("orders", SCHEMA, key=["id"])
    with store.table("orders") as table:
        table.append(frame_of(spark, rows(range(1000), 0)).repartition(partitions))
        # A shuffle by rows that are there twice, in an order that Spark does not promise.
        twice = frame_of(spark, rows([*range(900, 1200), *range(900, 1200)], 1))
        table.upsert(twice.repartition(partitions, "name"), sequenceBy="step")
        gone = frame_of(spark, rows(range(0, 1200, 3), 2)).repartition(partitions)
        table.upsert(gone, deleteWhen="step = 2")
        wanted = frame_of(spark, rows(range(890, 910), 0).select(["id"])).repartition(partitions)
        found = table.lookup(wanted)
        assert ids_of(found) == [n for n in range(890, 910) if n % 3]
        left = [n for n in range(1200) if n % 3]
        assert ids_of(table.df(spark)) == left
    source = spark.read.format("strandline").option("maxPartitionBytes", 20_000 // partitions)
    assert ids_of(source.load(f"{store.url}/orders")) == left
    digests = written(shard)
    assert len(digests) == 3
    assert undivided.setdefault("orders", digests) == digests
    assert orphans(store) == []


# Tasks that fail after they have done their work.


def failing_late(parts: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows pass; the first attempt of each task fails when the parts of others may be there."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            for at in range(0, batch.num_rows, max(1, batch.num_rows // parts)):
                yield batch.slice(at, max(1, batch.num_rows // parts))
        if context.attemptNumber() == 0:
            raise OSError("this attempt fails late")

    return run


def test_a_task_that_fails_after_it_wrote_its_part_counts_once(spark, store):
    """`local[2]` does not repeat tasks, so the first attempt is made here."""
    from strandline.spark import perform
    from strandline.spark.worker import bench_of

    shard = store.shard("orders", SCHEMA, key=["id"])
    with store.table("orders") as table:
        stand = table._desk.stand(shard.state().schema)
        first = perform.append(bench_of(stand.site), rows(range(500), 0).to_batches(), None, 0)
        assert first.parts
        table.append(frame_of(spark, rows(range(500), 0)))
        assert shard.snapshot().to_arrow().num_rows == 500
        counted = {part.key for batch in shard.state().batches for part in batch.parts}
        assert not counted & {part.key for part in first.parts}
    # The writer is gone, so what it left behind is nobody's.
    assert set(orphans(store)) >= {part.key for part in first.parts}
    fsck(store.env, store.leases, repair=True)
    assert orphans(store) == []


def test_a_job_that_fails_leaves_the_table_as_it_was(spark, store):
    shard = store.shard("orders", SCHEMA, key=["id"])
    with store.table("orders") as table:
        table.append(frame_of(spark, rows(range(500), 0)))
        before = written(shard)
        broken = frame_of(spark, rows(range(500, 900), 1)).mapInArrow(failing_late(4), LAYOUT)
        for call in (table.append, table.upsert):
            with pytest.raises(Exception, match="this attempt fails late"):
                call(broken)
        with pytest.raises(Exception, match="this attempt fails late"):
            broken.write.format("strandline").mode("append").save(f"{store.url}/orders")
        assert written(shard) == before
        assert shard.snapshot().to_arrow().num_rows == 500
    fsck(store.env, store.leases, repair=True)
    assert orphans(store) == []


# Streams and lost parts.


def filled(store: Store, times: int) -> Shard:
    """One row at each time, whose id is the time, each in an object of its own."""
    shard = store.shard("events", SCHEMA)
    with shard.writer() as writer:
        for number in range(times):
            writer.append(rows([number], number))
    return shard


def objects_at(shard: Shard, number: int) -> list[str]:
    batches = [batch for batch in shard.state().batches if batch.lower <= number < batch.upper]
    return [part.key for batch in batches for part in batch.parts]


class Followed:
    """A stream that ends when it has caught up, or fails; and what it gave, batch by batch."""

    def __init__(self, spark: SparkSession, store: Store, folder: Path, **options: int) -> None:
        self.batches: dict[int, list[int]] = {}
        self._spark = spark
        self._place = f"{store.url}/events"
        self._checkpoint = str(folder / "checkpoint")
        self._options = {"startingVersion": 0, **options}

    def run(self) -> str | None:
        """The text of the failure, if it failed."""
        stream = self._spark.readStream.format("strandline").options(**self._options)
        query = (
            stream.load(self._place)
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            return str(error)
        return None

    def ids(self) -> list[int]:
        return [number for batch in sorted(self.batches) for number in self.batches[batch]]

    def _take(self, frame: DataFrame, batch: int) -> None:
        found = ids_of(frame)
        assert self.batches.setdefault(batch, found) == found


@pytest.mark.parametrize(("scenario", "gone"), [("s01", 1), ("s02", 0)])
def test_s01_s02_a_missing_part_stops_a_stream_at_its_time(spark, store, tmp_path, scenario, gone):
    shard = filled(store, 3)
    (key,) = objects_at(shard, gone)
    kept = store.env.blob.get(key)
    store.env.blob.delete(key)
    followed = Followed(spark, store, tmp_path, maxVersionsPerTrigger=1)
    for _ in range(2):  # Starting it again skips nothing either.
        said = followed.run()
        assert said is not None
        assert key in said
        assert followed.ids() == list(range(gone))
    store.env.blob.put(key, kept)
    assert followed.run() is None
    assert followed.ids() == [0, 1, 2]


def test_s03_a_missing_middle_among_parts_read_at_once(spark, store, tmp_path):
    shard = filled(store, 12)
    (key,) = objects_at(shard, 5)
    store.env.blob.delete(key)
    limits = {"maxVersionsPerTrigger": 4, "maxPartitionBytes": 1024}
    followed = Followed(spark, store, tmp_path, **limits)
    said = followed.run()
    assert said is not None
    assert key in said
    assert followed.ids() == [0, 1, 2, 3]
    with pytest.raises(Exception, match=key):
        ids_of(spark.read.format("strandline").load(f"{store.url}/events"))
    with store.table("events") as table, pytest.raises(Exception, match=key.rpartition("/")[2]):
        ids_of(table.df(spark))


def reversed_pairs(folder: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows pass; of two tasks that run at once the first ends last."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
        ends = time.monotonic() + 30
        while number % 2 == 0 and not os.path.exists(f"{folder}/{number + 1}"):  # noqa: PTH110
            assert time.monotonic() < ends
            time.sleep(0.005)
        yield from batches
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))

    return run


def test_s04_rows_carry_their_own_time_in_whatever_order_tasks_end(spark, store, tmp_path):
    filled(store, 16)
    (tmp_path / "marks").mkdir()
    feed = spark.read.format("strandline").option("maxPartitionBytes", 1024)
    changes = feed.option("readChangeFeed", "true").option("startingVersion", 0)
    frame = changes.load(f"{store.url}/events").select("id", "_commit_version")
    turned = frame.mapInArrow(
        reversed_pairs(str(tmp_path / "marks")), "id long, _commit_version long"
    )
    found = turned.toArrow()
    assert len(list((tmp_path / "marks").iterdir())) == 16
    assert sorted(found.column("id").to_pylist()) == list(range(16))
    assert found.column("id").to_pylist() == found.column("_commit_version").to_pylist()


def test_s05_a_time_with_several_parts_comes_whole_or_not_at_all(spark, store, tmp_path):
    shard = filled(store, 3)
    with store.table("events") as table:
        table.append(frame_of(spark, rows(range(100, 130), 3)).repartition(3))
    keys = objects_at(shard, 3)
    assert len(keys) == 3
    kept = store.env.blob.get(keys[1])
    store.env.blob.delete(keys[1])
    limits = {"maxVersionsPerTrigger": 1, "maxPartitionBytes": 1024}
    followed = Followed(spark, store, tmp_path, **limits)
    said = followed.run()
    assert said is not None
    assert keys[1] in said
    assert followed.ids() == [0, 1, 2]
    store.env.blob.put(keys[1], kept)
    assert followed.run() is None
    assert followed.ids() == [0, 1, 2, *range(100, 130)]


def test_s09_a_stream_that_is_stopped_leaves_no_reader(spark, store, tmp_path):
    shard = filled(store, 3)
    seen: list[int] = []
    query = (
        spark.readStream.format("strandline")
        .option("startingVersion", 0)
        .load(f"{store.url}/events")
        .writeStream.foreachBatch(lambda frame, _: seen.extend(ids_of(frame)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    wait_for(lambda: len(seen) == 3, lambda: f"the stream gave {seen}")
    assert shard.state().readers
    query.stop()

    def is_left() -> bool:
        # Spark may kill the source's process before that has given its lease back: upkeep does.
        store.upkeep.run_once(shard.machine)
        return not shard.state().readers

    wait_for(is_left, lambda: f"readers: {shard.state().readers}")
    assert sorted(seen) == [0, 1, 2]


# What a scan reads stays until it is read.


def gated(folder: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Each task waits at the gate before it takes its rows."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        os.close(os.open(f"{folder}/inside.{os.getpid()}", os.O_CREAT | os.O_WRONLY))
        ends = time.monotonic() + 60
        while not os.path.exists(f"{folder}/go"):  # noqa: PTH110
            assert time.monotonic() < ends
            time.sleep(0.02)
        yield from batches

    return run


@contextmanager
def collecting(frame: DataFrame) -> Iterator[list[list[int]]]:
    """Collects a frame beside what goes on here; the list holds the ids once it is done."""
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(ids_of(frame)))
    thread.start()
    try:
        yield found
    finally:
        thread.join(90)


@pytest.mark.parametrize("way", ["df", "format"])
def test_s11_what_a_task_will_read_outlives_compaction_and_collection(spark, store, tmp_path, way):
    shard = filled(store, 6)
    gate = Gate(tmp_path / "gate")
    planned = {key for number in range(6) for key in objects_at(shard, number)}
    with store.table("events") as table:
        if way == "df":
            frame = table.df(spark)
        else:
            source = spark.read.format("strandline").option("maxPartitionBytes", 1024)
            frame = source.load(f"{store.url}/events")
        with collecting(frame.mapInArrow(gated(str(gate.folder)), LAYOUT)) as found:
            gate.first(lambda: "no task began")
            with shard.writer() as writer:
                for number in range(6, 12):
                    writer.append(rows([number], number))
                    shard.retain("1 versions")
                    shard.compact(full=True)
            assert planned.isdisjoint(objects_at(shard, 11))
            assert all(store.env.blob.get(key) is not None for key in planned)
            gate.open()
        assert found == [list(range(6))]
    if way == "df":
        shard.compact(full=True)
        assert not any(store.env.blob.get(key) is not None for key in planned)


# Filters.

CONDITIONS = [
    "id = 5",
    "id != 5",
    "id > 37",
    "id <= 4",
    "id in (1, 22, 99)",
    "name = 'order 11'",
    "name is null",
    "name is not null and step >= 2",
    "id > 10 and id < 20 and name != 'order 15'",
    "not (id = 5)",
]


def test_s17_filters_leave_out_only_what_does_not_match(spark, store, monkeypatch):
    shard = store.shard("events", SCHEMA)
    with shard.writer() as writer:
        for step in range(4):
            more = rows(range(step * 10, step * 10 + 10), step)
            if step == 3:
                more = more.set_column(1, "name", pa.nulls(10, pa.string()))
            with monkeypatch.context() as newer:
                if step == 1:  # Written by a version whose statistics this one can't read.
                    newer.setattr(stats, "VERSION", stats.VERSION + 1)
                writer.append(more)
    plain = frame_of(spark, shard.snapshot().to_arrow())
    with store.table("events") as table:
        for condition in CONDITIONS:
            expected = ids_of(plain.where(condition))
            source = spark.read.format("strandline").load(f"{store.url}/events")
            assert ids_of(source.where(condition)) == expected, condition
            assert ids_of(table.df(spark).where(condition)) == expected, condition
