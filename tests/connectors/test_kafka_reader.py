"""Exact ranges of a real topic: holes, retention, and a broker that is killed on the way."""

import itertools

import pyarrow as pa
import pytest

from strandline.connectors.addresses import Reach
from strandline.connectors.kafka_cluster import Cluster
from strandline.connectors.kafka_options import split_topic, topic_of
from strandline.connectors.kafka_reader import _BATCH_BYTES, _BATCH_ROWS, Reader
from strandline.connectors.raw import RAW
from strandline.errors import SourceError, SourceGoneError


def reader(topics, name, start, stop, partition="0", **options):
    given = {"kafka.bootstrap.servers": topics.address, "subscribe": name, **options}
    return Reader(split_topic(given), str, partition, start, stop, reach=Reach())


def values(batches):
    return [value for each in batches for value in each.column("_value").to_pylist()]


def numbered(count):
    return [b"%d" % each for each in range(count)]


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (3, 7), (9, 10), (4, 4), (0, 1)])
def test_a_range_gives_exactly_its_offsets(topics, start, stop):
    name = topics.make()
    topics.write(name, numbered(10))
    batches = list(reader(topics, name, start, stop).rows())
    assert values(batches) == numbered(10)[start:stop]
    assert all(each.schema == RAW for each in batches)
    assert [at for each in batches for at in each.column("_offset").to_pylist()] == list(
        range(start, stop)
    )


def test_rows_have_all_that_kafka_knows_of_them(topics):
    name = topics.make(2)
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    topics.write(name, [b"v"], 1, key=b"k", headers=headers, timestamp=1_700_000_000_123)
    topics.write(name, [None], 1, key=b"k", timestamp=1)
    topics.write(name, [b""], 1, timestamp=2)
    table = pa.Table.from_batches(reader(topics, name, 0, 3, "1").rows())
    assert table.column("_key").to_pylist() == [b"k", b"k", None]
    assert table.column("_value").to_pylist() == [b"v", None, b""]
    assert table.column("_partition").to_pylist() == ["1", "1", "1"]
    assert table.column("_timestamp").cast(pa.int64()).to_pylist() == [
        1_700_000_000_123_000,
        1_000,
        2_000,
    ]
    assert table.column("_headers").to_pylist() == [headers, None, None]


def test_holes_that_transactions_leave_end_no_range_early_and_none_late(topics):
    name = topics.make()
    topics.transaction(name, [b"a", b"b"])  # 0 1, marker 2
    topics.transaction(name, [b"x", b"y"], commit=False)  # 3 4, marker 5
    topics.transaction(name, [b"c"])  # 6, marker 7
    topics.transaction(name, [b"z"], commit=False)  # 8, marker 9
    held = {0: b"a", 1: b"b", 6: b"c"}
    for start, stop in itertools.combinations(range(11), 2):
        got = values(reader(topics, name, start, stop).rows())
        assert got == [value for at, value in held.items() if start <= at < stop], (start, stop)
    careless = reader(topics, name, 0, 10, **{"kafka.isolation.level": "read_uncommitted"})
    assert values(careless.rows()) == [b"a", b"b", b"x", b"y", b"c", b"z"]


def test_batches_are_bounded_by_rows_and_by_bytes(topics):
    name = topics.make()
    count = 3 * _BATCH_ROWS
    topics.write(name, numbered(count))
    sizes = [each.num_rows for each in reader(topics, name, 0, count).rows()]
    assert sum(sizes) == count
    assert max(sizes) < 2 * _BATCH_ROWS
    large = topics.make()
    topics.write(large, [bytes(500_000)] * 100)
    batches = list(reader(topics, large, 0, 100).rows())
    assert sum(each.num_rows for each in batches) == 100
    assert max(each.nbytes for each in batches) < 5 * _BATCH_BYTES


@pytest.mark.parametrize(("start", "stop"), [(3, 8), (4, 6), (8, 12), (20, 22)])
def test_offsets_that_are_not_there_are_gone_by_name(topics, start, stop):
    name = topics.make()
    topics.write(name, numbered(10))
    topics.forget_before(name, 0, 5)
    with pytest.raises(SourceGoneError, match=rf"{name}.* {stop} are needed.*5 to 10"):
        list(reader(topics, name, start, stop, **{"kafkaConsumer.pollTimeoutMs": "2000"}).rows())


def test_a_topic_that_was_deleted_is_gone_before_patience_ends(topics):
    name = topics.make()
    topics.write(name, numbered(10))
    topics.drop(name)
    with pytest.raises(SourceGoneError, match=f"{name}' does not exist"):
        list(reader(topics, name, 0, 10).rows())


def test_a_topic_that_was_made_again_is_gone_although_it_has_the_offsets(topics):
    name = topics.make()
    topics.write(name, numbered(10))
    given = topic_of({"kafka.bootstrap.servers": topics.address, "subscribe": name})
    identity = str(Cluster(given, str).find().identity)
    assert values(reader(topics, name, 0, 10, topicId=identity).rows()) == numbered(10)
    topics.drop(name)
    topics.make(name=name)
    topics.write(name, numbered(20))
    with pytest.raises(SourceGoneError, match="made again"):
        list(reader(topics, name, 0, 10, topicId=identity).rows())


def test_a_broker_that_does_not_answer_is_an_error_that_may_pass():
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "kafkaConsumer.pollTimeoutMs": "500",
    }
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1") as failed:
        list(Reader(topic_of(options), str, "0", 0, 1, reach=Reach()).rows())
    assert not isinstance(failed.value, SourceGoneError)


def test_a_broker_that_is_killed_while_it_is_read_gives_the_same_rows_when_it_is_back(
    broker, topics
):
    name = topics.make()
    # Several times what a reader holds of a topic, so most of it comes from the second life.
    rows = [b"%08d" % each + bytes(2_000) for each in range(30_000)]
    topics.write(name, rows)
    reading = reader(topics, name, 0, len(rows)).rows()
    first = next(reading)
    broker.kill()
    broker.start()
    got = values([first, *reading])
    assert got == rows
    assert values(reader(topics, name, 0, len(rows)).rows()) == rows
