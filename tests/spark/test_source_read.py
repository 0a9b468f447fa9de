"""Readers as Spark calls them, without Spark: what planners list is what tasks find."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import strandline
from strandline.errors import BoundsError, LeaseLostError, SchemaError, SinceError
from strandline.reading.view import pinned_view
from strandline.spark import source_read
from strandline.spark.source import StrandlineSource

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def shard(tmp_path):
    settings = strandline.Settings(inline_max_bytes=2_000)
    with strandline.open(str(tmp_path / "lake"), settings=settings, upkeep=False) as store:
        shard = store.shard("t", COLUMNS, key=["k"])
        with shard.writer() as writer:
            writer.append([{"k": n, "v": "old"} for n in range(1000)])
            writer.append([{"k": 1, "v": "old", "_diff": -1}, {"k": 1, "v": "new"} | {"_diff": 1}])
        shard.path = str(tmp_path / "lake" / "t")
        yield shard


def reader_of(shard, schema=None, **options):
    made = StrandlineSource({"path": shard.path, **options})
    return made.reader(made.schema() if schema is None else schema)


def rows_of(reader):
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found


def test_a_snapshot_is_the_newest_version_or_the_one_asked_for(shard):
    newest = {row["k"]: row["v"] for row in rows_of(reader_of(shard))}
    assert len(newest) == 1000
    assert newest[1] == "new"
    before = {row["k"]: row["v"] for row in rows_of(reader_of(shard, versionAsOf="0"))}
    assert before[1] == "old"
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert len(rows_of(reader_of(shard, timestampAsOf=later))) == 1000
    earlier = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    with pytest.raises(SinceError, match="nothing settled then"):
        reader_of(shard, timestampAsOf=earlier).partitions()


def test_columns_may_be_chosen_by_option_or_by_schema(shard):
    found = rows_of(reader_of(shard, columns="v"))
    # Rows meet their retractions by the key, whether anybody asked for it or not.
    assert sorted(row["v"] for row in found) == ["new", *["old"] * 999]
    assert set(found[0]) == {"v"}
    only = StructType([StructField("k", LongType())])
    assert set(rows_of(reader_of(shard, schema=only))[0]) == {"k"}
    with pytest.raises(SchemaError, match="option columns names x"):
        reader_of(shard, columns="k,x")
    other = StructType([StructField("x", LongType())])
    with pytest.raises(SchemaError, match="no column x"):
        reader_of(shard, schema=other).partitions()


@pytest.mark.parametrize("options", [{"versionAsOf": "2"}, {"versionAsOf": "99"}])
def test_a_version_that_does_not_exist_yet_is_refused(shard, options):
    with pytest.raises(
        BoundsError, match=r"version \d+ of table t does not exist: its newest is 1"
    ):
        reader_of(shard, **options).partitions()


def test_a_version_that_was_merged_is_refused(shard):
    shard.retain("1 versions")
    shard.compact(full=True)
    with pytest.raises(SinceError, match="oldest time that can be read is 1"):
        reader_of(shard, versionAsOf="0").partitions()
    for start in ("0", "1"):
        with pytest.raises(SinceError):
            reader_of(shard, readChangeFeed="true", startingVersion=start).partitions()


def test_an_instant_that_has_just_come_is_read_whole(tmp_path, monkeypatch):
    """The owner of a timeline commits after the planner's first look, before its second."""
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        shard = store.shard("t", COLUMNS, key=["k"])
        shard.path = str(tmp_path / "lake" / "t")
        timeline = store.timeline("shop")
        timeline.attach(shard)
        with timeline.own() as owner:
            owner.stage("t", [{"k": 0, "v": "old"}])
            owner.commit()

            def overtaken(lease):
                view = pinned_view(lease)
                if not looks:
                    owner.stage("t", [{"k": 1, "v": "new"}])
                    owner.commit()
                looks.append(view.upper)
                return view

            looks = []
            monkeypatch.setattr(source_read, "pinned_view", overtaken)
            later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
            found = rows_of(reader_of(shard, timestampAsOf=later))
        assert sorted(row["k"] for row in found) == [0, 1]
        assert len(looks) == 2


def test_an_empty_table_has_no_rows(shard, tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        store.shard("empty", COLUMNS)
    made = StrandlineSource({"path": str(tmp_path / "lake"), "table": "empty"})
    assert rows_of(made.reader(made.schema())) == []


def test_a_scan_holds_its_objects_for_its_term_and_not_without_objects(shard):
    reader_of(shard, leaseMs="5000").partitions()
    (held,) = shard.state().readers.values()
    assert held.until_ms is not None
    feed = {"readChangeFeed": "true", "startingVersion": "1"}
    before = set(shard.state().readers)
    assert len(rows_of(reader_of(shard, **feed))) == 2  # Inline rows travel with the plan.
    assert set(shard.state().readers) == before
    reader_of(shard, readChangeFeed="true", startingVersion="0").partitions()
    assert len(shard.state().readers) == len(before) + 1


def test_a_task_whose_object_is_gone_says_that_the_lease_was_lost(shard):
    reader = reader_of(shard, leaseMs="1234")
    partitions = reader.partitions()
    blob = shard.machine.env.blob
    for entry in list(blob.list("")):
        blob.delete(entry.key)
    with pytest.raises(LeaseLostError, match=r"lease lost: part .* of shard t .*1234 ms"):
        [list(reader.read(partition)) for partition in partitions]


def test_the_change_feed_tells_what_happened_and_when(shard):
    feed = {"readChangeFeed": "true", "startingVersion": "1", "endingVersion": "1"}
    found = rows_of(reader_of(shard, **feed))
    assert {(row["_change_type"], row["v"], row["_commit_version"]) for row in found} == {
        ("update_preimage", "old", 1),
        ("update_postimage", "new", 1),
    }
    (instant,) = {row["_commit_timestamp"] for row in found}
    assert abs(instant - datetime.now(UTC)) < timedelta(hours=1)
    whole = {"readChangeFeed": "true", "startingVersion": "0"}
    assert len(rows_of(reader_of(shard, **whole))) == 1002
    assert len(rows_of(reader_of(shard, **whole, endingVersion="0"))) == 1000
    with pytest.raises(BoundsError, match="endingVersion 7"):
        reader_of(shard, **{**feed, "endingVersion": "7"}).partitions()


@pytest.mark.parametrize("seed", range(6))
def test_the_feed_of_any_two_versions_is_the_same_however_they_were_merged(tmp_path, seed):
    chance = random.Random(seed)
    lake, key = str(tmp_path / "lake"), ["k"] * (seed % 3 != 0)
    settings = strandline.Settings(inline_max_bytes=500, part_target_rows=16)
    with strandline.open(lake, settings=settings, upkeep=False) as store:
        shard = store.shard("t", COLUMNS, key=key)
        shard.path = f"{lake}/t"
        told: list[Counter] = []
        with shard.writer() as writer:
            for _ in range(chance.randrange(2, 6)):
                told.append(some_updates(chance, sum(told, Counter()), keyed=bool(key)))
                rows = [{"k": k, "v": v, "_diff": diff} for (k, v), diff in told[-1].items()]
                writer.append(rows)
                if chance.random() < 0.4:
                    shard.compact(full=chance.random() < 0.5)
        before = feeds_of(shard, len(told), chance)
        for _ in range(2):
            shard.compact(full=True)
            assert feeds_of(shard, len(told), chance) == before
    for (start, end), found in before.items():
        wanted = Counter()
        for version in range(start, end + 1):
            for (k, v), diff in told[version].items():
                wanted[version, k, v] += diff
        assert found == wanted


def some_updates(chance, there, *, keyed):
    """Rows that come and go; at a key there is one row at most."""
    made: Counter = Counter()
    for key in chance.sample(range(80), chance.choice((2, 60))):
        old = [(key, v) for v in "abc" if there[key, v] > 0]
        gone = chance.random() < 0.6
        if old and gone:
            made[chance.choice(old)] -= 1
        if not keyed or not old or gone:
            made[key, chance.choice("abc")] += 1
    return Counter({row: diff for row, diff in made.items() if diff}) or Counter({(99, "z"): 1})


def feeds_of(shard, versions, chance):
    """What the feed tells of each two versions, added up."""
    found = {}
    for start, end in combinations_with_replacement(range(versions), 2):
        bounds = {"startingVersion": str(start), "endingVersion": str(end)}
        size = str(chance.choice((1024, 4096, 10_000_000)))
        feed = reader_of(shard, readChangeFeed="true", maxPartitionBytes=size, **bounds)
        sums: Counter = Counter()
        for row in rows_of(feed):
            came = row["_change_type"] in {"insert", "update_postimage"}
            sums[row["_commit_version"], row["k"], row["v"]] += 1 if came else -1
        found[start, end] = sums
    return found
