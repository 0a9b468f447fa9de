"""The reader of a stream as Spark calls it, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows

import strandline
from strandline.errors import BoundsError, CorruptionError, SinceError, UsageError
from strandline.spark.source import StrandlineSource
from strandline.spark.source_stream import StreamReader

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
ALL = ReadAllAvailable()


@pytest.fixture
def store(tmp_path):
    settings = strandline.Settings(inline_max_bytes=0)
    with strandline.open(str(tmp_path / "lake"), settings=settings, upkeep=False) as store:
        yield store


@pytest.fixture
def shard(store):
    """Three versions of two rows each."""
    shard = store.shard("t", COLUMNS, key=["k"])
    with shard.writer() as writer:
        for version in range(3):
            writer.append([{"k": 2 * version + n, "v": str(version)} for n in range(2)])
    return shard


@pytest.fixture
def stream(store):
    readers: list[StreamReader] = []

    def made(table="t", **options):
        source = StrandlineSource({"path": store.url, "table": table, **options})
        reader = source.streamReader(source.schema())
        readers.append(reader)
        return reader

    yield made
    for reader in readers:
        reader.stop()


def batch(reader, start, end):
    copy = StreamReader.__new__(StreamReader)  # What reaches a task was sent there.
    copy.__dict__.update(reader.__getstate__())
    return [
        row
        for partition in reader.partitions(start, end)
        for found in copy.read(partition)
        for row in found.to_pylist()
    ]


def test_a_stream_begins_with_the_table_and_goes_on_with_its_changes(shard, stream):
    reader = stream()
    start = reader.initialOffset()
    assert start == {"shard": shard.id, "frontier": 0, "snapshot": True}
    end = reader.latestOffset(start, ALL)
    assert end == {"shard": shard.id, "frontier": 3}
    assert sorted(row["k"] for row in batch(reader, start, end)) == list(range(6))
    assert reader.latestOffset(end, ALL) == end
    reader.commit(end)
    with shard.writer() as writer:
        writer.append([{"k": 9, "v": "x"}])
    later = reader.latestOffset(end, ALL)
    assert batch(reader, end, later) == [{"k": 9, "v": "x"}]
    assert reader.partitions(later, later) == []
    assert reader.reportLatestOffset() == later


def test_a_stream_may_begin_at_a_version(shard, stream):
    reader = stream(startingVersion="1")
    start = reader.initialOffset()
    found = batch(reader, start, reader.latestOffset(start, ALL))
    assert sorted(row["k"] for row in found) == [2, 3, 4, 5]
    assert stream(startingVersion="3").initialOffset()["frontier"] == 3
    with pytest.raises(BoundsError, match="startingVersion 4 of table t"):
        stream(startingVersion="4").initialOffset()


@pytest.mark.parametrize("options", [{}, {"maxRowsPerTrigger": "2"}, {"columns": "v"}])
@pytest.mark.parametrize("feed", ["true", "false"])
def test_a_stream_from_version_0_gives_what_was_merged_at_it(shard, stream, options, feed):
    shard.compact(full=True)
    reader = stream(startingVersion="0", readChangeFeed=feed, **options)
    at, rows, seen = reader.initialOffset(), [], []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        rows += batch(reader, at, end)
        seen.append(end["frontier"])
        at = end
    assert sorted(row["v"] for row in rows) == ["0", "0", "1", "1", "2", "2"]
    assert seen == ([1, 2, 3] if "maxRowsPerTrigger" in options else [3])
    if feed == "true":
        assert sorted(row["_commit_version"] for row in rows) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("options", "limit", "frontiers"),
    [
        ({"maxVersionsPerTrigger": "2"}, ReadMaxFiles(2), [2, 3]),
        ({"maxRowsPerTrigger": "2"}, ReadMaxRows(2), [1, 2, 3]),
        ({"maxRowsPerTrigger": "4"}, ReadMaxRows(4), [2, 3]),
        ({}, ALL, [3]),
    ],
)
def test_limits_cut_a_stream_into_batches(shard, stream, options, limit, frontiers):
    reader = stream(**options)
    assert reader.getDefaultReadLimit() == limit
    at, seen, rows = reader.initialOffset(), [], []
    while (end := reader.latestOffset(at, limit)) != at:
        rows += batch(reader, at, end)
        seen.append(end["frontier"])
        at = end
    assert seen == frontiers
    assert sorted(row["k"] for row in rows) == list(range(6))
    assert reader.latestOffset(reader.initialOffset(), ALL)["frontier"] == 3


def test_available_now_stops_where_it_began(shard, stream):
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    with shard.writer() as writer:
        writer.append([{"k": 9, "v": "x"}])
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert end["frontier"] == 3
    assert reader.latestOffset(end, ALL) == end


def test_a_stream_of_changes_tells_what_happened(shard, stream):
    with shard.writer() as writer:
        writer.append([{"k": 0, "v": "0", "_diff": -1}, {"k": 0, "v": "x", "_diff": 1}])
    reader = stream(readChangeFeed="true", startingVersion="2")
    start = reader.initialOffset()
    found = batch(reader, start, reader.latestOffset(start, ALL))
    assert sorted((row["k"], row["_change_type"], row["_commit_version"]) for row in found) == [
        (0, "update_postimage", 3),
        (0, "update_preimage", 3),
        (4, "insert", 2),
        (5, "insert", 2),
    ]
    assert all(row["_commit_timestamp"] is not None for row in found)
    plain = stream(startingVersion="2")
    start = plain.initialOffset()
    end = plain.latestOffset(start, ALL)
    with pytest.raises(UsageError, match=r"version 3 of table t .*readChangeFeed"):
        batch(plain, start, end)


def test_a_missing_part_fails_the_batch_and_is_named(shard, stream):
    reader = stream(startingVersion="0")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    blob = shard.machine.env.blob
    gone = next(iter(blob.list(f"{shard.id}/w"))).key
    blob.delete(gone)
    with pytest.raises(CorruptionError, match=gone):
        batch(reader, start, end)
    assert reader.latestOffset(start, ALL) == end


def test_a_checkpoint_of_another_table_is_refused(shard, stream, store):
    store.shard("other", COLUMNS)
    start = stream().initialOffset()
    other = stream("other")
    with pytest.raises(UsageError, match="the checkpoint belongs to another table"):
        other.latestOffset(start, ALL)
    with pytest.raises(CorruptionError, match="not one of a Strandline table"):
        other.partitions({"n": 1}, start)


def let_go(reader):
    """What the reader does not hold any more, others may delete: now, and not a little later."""
    live = reader._live()
    live.store.leases.sync(live.shard.machine)


def merged(shard):
    """The same rows in other parts, with one version left; what nobody holds is deleted."""
    shard.retain("1 versions")
    shard.compact(full=True)


def test_a_running_stream_keeps_what_it_has_not_read(shard, stream):
    reader = stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.commit(end)
    with shard.writer() as writer:
        writer.append([{"k": 9, "v": "x"}])
        writer.append([{"k": 10, "v": "y"}])
    let_go(reader)
    merged(shard)
    later = reader.latestOffset(end, ALL)
    assert sorted(row["k"] for row in batch(reader, end, later)) == [9, 10]


def parts_of(shard):
    return {part.key for batch in shard.state().batches for part in batch.parts}


def test_a_batch_that_is_not_done_can_be_read_and_planned_again(shard, stream):
    """Neither asking what is new nor planning lets go of anything."""
    reader = stream(startingVersion="1")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    planned = reader.partitions(start, end)
    let_go(reader)
    merged(shard)
    reader.reportLatestOffset()  # It has seen the newest version, and holds an older one.
    let_go(reader)
    merged(shard)
    for partitions in (planned, reader.partitions(start, end)):
        found = [
            row for each in partitions for part in reader.read(each) for row in part.to_pylist()
        ]
        assert sorted(row["k"] for row in found) == [2, 3, 4, 5]


def test_a_batch_that_is_done_holds_nothing_but_what_comes_next(shard, stream):
    before = parts_of(shard)
    reader = stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert len(batch(reader, start, end)) == 6
    merged(shard)
    blob = shard.machine.env.blob
    assert all(blob.get(key) is not None for key in before)
    assert shard.since.time == 0
    reader.commit(end)
    let_go(reader)
    merged(shard)
    assert shard.since.time == 2
    assert all(blob.get(key) is None for key in before)


def test_a_stopped_stream_that_fell_behind_says_so(shard, stream):
    start = {"shard": shard.id, "frontier": 1}
    shard.retain("1 versions")
    shard.compact(full=True)
    reader = stream()
    with pytest.raises(SinceError, match="history before 2 has been merged"):
        reader.partitions(start, reader.latestOffset(start, ALL))
    with pytest.raises(SinceError):
        reader.partitions({**start, "frontier": 0, "snapshot": True}, start)
    for version in ("0", "1"):
        with pytest.raises(SinceError):
            stream(startingVersion=version).initialOffset()


@pytest.mark.parametrize(
    ("options", "frontiers"),
    [
        ({"maxVersionsPerTrigger": "1"}, [2, 3]),
        ({"maxRowsPerTrigger": "1"}, [2, 3]),
        ({"maxRowsPerTrigger": "100"}, [3]),
    ],
)
def test_a_stream_with_a_limit_begins_where_history_was_merged(shard, stream, options, frontiers):
    shard.retain("2 versions")
    shard.compact(full=True)
    assert shard.since.time == 1
    reader = stream(**options)
    at, seen, rows = reader.initialOffset(), [], []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        rows += batch(reader, at, end)
        seen.append(end["frontier"])
        at = end
    assert seen == frontiers
    assert sorted(row["k"] for row in rows) == list(range(6))


def test_lists_of_parts_are_held_while_they_are_counted(shard, stream, monkeypatch):
    """They lie in objects, and what is merged meanwhile may be deleted."""
    shard.compact(full=True)
    reader = stream(maxRowsPerTrigger="1")
    real = reader._described

    def described(view, bounds):
        held.append(view.pin._out)
        return real(view, bounds)

    held = []
    monkeypatch.setattr(reader, "_described", described)
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert held == [True]
    by_versions = stream(maxVersionsPerTrigger="1")
    monkeypatch.setattr(by_versions, "_described", None)  # Nobody asks for rows.
    by_versions.latestOffset(by_versions.initialOffset(), by_versions.getDefaultReadLimit())


def test_a_stream_of_an_empty_table_waits(store, stream):
    store.shard("empty", COLUMNS)
    reader = stream("empty")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    assert reader.latestOffset(start, ReadMaxRows(1)) == start
