"""Tables as DataFrames: whatever way they are read, they equal the snapshot without Spark."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError, SinceError
from strandline.model.schema import Schema
from strandline.parts.layout import places_of
from strandline.spark import scan, scanplan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from strandline.handles.store import Store
    from strandline.spark.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with strandline.open(str(tmp_path / "a lake"), upkeep=False) as opened:
        yield opened


def rows(ids: range, name: str, diff: int = 1) -> pa.Table:
    numbers = list(ids)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"{name} {n}" for n in numbers],
            "score": [n / 4 for n in numbers],
            "_diff": pa.array([diff] * len(numbers), pa.int64()),
        }
    )


def filled(store: Store, key: tuple[str, ...]) -> Table:
    """Insertions as parts, then updates and deletes inline and in parts, and a row twice."""
    shard = store.shard("orders", SCHEMA, key=key)
    with shard.writer() as writer:
        writer.append(rows(range(3000), "first"))
        writer.append(rows(range(3000, 5000), "second"))
        writer.append(pa.concat_tables([rows(range(5), "first", -1), rows(range(5), "new")]))
        writer.append(rows(range(3), "new", -1))
        writer.append(rows(range(3), "new"))
        writer.append(
            pa.concat_tables([rows(range(3000), "first", -1).slice(7, 2000), rows(range(9), "x")])
        )
        writer.append(pa.concat_tables([rows(range(4, 5), "new")] * (1 if key else 2)))
    return store.table("orders")


def content(df: DataFrame) -> Counter[tuple[object, ...]]:
    table = df.toArrow()
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def expected(store: Store, as_of: int | None = None) -> Counter[tuple[object, ...]]:
    table = store.shard("orders").snapshot(as_of).to_arrow()
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.floor
@pytest.mark.parametrize("way", ["scanned", "by tasks"])
@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "without a key"])
def test_a_frame_equals_the_snapshot_at_every_time(
    spark: SparkSession, store: Store, key: tuple[str, ...], way: str, monkeypatch
) -> None:
    if way == "by tasks":
        monkeypatch.setattr(scanplan, "TAIL_ROWS", 0)
    monkeypatch.setattr(scan, "TASK_BYTES", 20_000)
    table = filled(store, key)
    for time in range(7):
        assert content(table.df(spark, time)) == expected(store, time)
    store.shard("orders").retain("2 versions")
    store.shard("orders").compact(full=True)
    for time in (5, 6, None):
        assert content(table.df(spark, time)) == expected(store, time)


def test_of_a_part_with_several_times_later_rows_are_left_out(
    spark: SparkSession, store: Store
) -> None:
    shard = store.shard("orders", SCHEMA, key=("id",))
    inserted = rows(range(6000), "first")
    times = pa.array([number % 3 for number in range(6000)], pa.int64())
    with shard.writer() as writer:
        writer.compare_and_append(inserted.append_column("_time", times), lower=0, upper=3)
    assert [part.inserts for batch in shard.state().batches for part in batch.parts] == [True]
    table = store.table("orders")
    for time in range(3):
        frame = table.df(spark, time)
        assert frame.inputFiles()
        assert content(frame) == expected(store, time)


def test_changes_of_an_interval_come_with_their_times(spark: SparkSession, store: Store) -> None:
    table = filled(store, ("id",))
    found = table.changes(2, 5, spark=spark).toArrow()
    per_time = Counter(zip(found["_time"].to_pylist(), found["_diff"].to_pylist(), strict=True))
    assert per_time == {(2, -1): 5, (2, 1): 5, (3, -1): 3, (4, 1): 3}
    assert table.changes(0, spark=spark).count() == 5000 + 10 + 6 + 2009 + 1
    with pytest.raises(BoundsError, match="settled up to"):
        table.changes(2, 99, spark=spark)


def test_it_is_sparks_own_scan_with_statistics_and_pruned_columns(
    spark: SparkSession, store: Store
) -> None:
    table = filled(store, ("id",))
    store.shard("orders").retain("1 versions")
    store.shard("orders").compact(full=True)
    frame = table.df(spark).select("score").where("score > 3")
    assert set(frame.inputFiles()) != set()
    assert frame.count() == sum(n for row, n in expected(store).items() if row[2] > 3)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_parts_that_hold_no_touched_key_are_scanned_without_their_keys(
    spark: SparkSession, store: Store, adaptive: str, capsys
) -> None:
    shard = store.shard("orders", SCHEMA, key=("id",))
    every = rows(range(8000), "first")
    places = places_of(every, Schema.create(SCHEMA, ["id"]))
    low = places < 2**63
    with shard.writer() as writer:
        writer.append(every.filter(pa.array(low)))
        writer.append(every.filter(pa.array(~low)))
        number = int(low.argmax())
        touched = rows(range(number, number + 1), "first", -1)
        writer.append(pa.concat_tables([touched, rows(range(number, number + 1), "new")]))
    table = store.table("orders")
    for time in range(3):
        assert content(table.df(spark, time)) == expected(store, time)
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        frame = table.df(spark).select("score")
        assert sorted(row.score for row in frame.collect()) == [n / 4 for n in range(8000)]
        capsys.readouterr()
        frame.explain("formatted")
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)
    read = re.findall(r"ReadSchema: struct<(.*)>", capsys.readouterr().out)
    assert sorted(set(read)) == ["id:bigint,score:double", "score:double"]


def test_nothing_runs_before_it_is_used_and_what_it_reads_stays(
    spark: SparkSession, store: Store
) -> None:
    table = filled(store, ("id",))
    then = expected(store)
    frame = table.df(spark)
    shard = store.shard("orders")
    with shard.writer() as writer:
        writer.append(rows(range(9000, 9010), "later"))
    shard.retain("1 versions")
    shard.compact(full=True)
    assert content(frame) == then
    table.close()


def test_times_that_can_not_be_read_are_refused(spark: SparkSession, store: Store) -> None:
    table = filled(store, ("id",))
    with pytest.raises(BoundsError, match="settled up to"):
        table.df(spark, 99)
    store.shard("orders").retain("1 versions")
    store.shard("orders").compact()
    with pytest.raises(SinceError, match="oldest time"):
        table.df(spark, 0)


def test_a_table_without_rows_is_a_frame_without_rows(spark: SparkSession, store: Store) -> None:
    store.shard("orders", SCHEMA, key=("id",))
    assert content(store.table("orders").df(spark)) == Counter()
