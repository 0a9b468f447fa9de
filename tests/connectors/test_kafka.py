"""The Kafka source on a real broker."""

from functools import partial

import pytest
from tests.broker.broker import PASSWORD, USER

from strandline.connectors import registry
from strandline.connectors.kafka import KafkaSource
from strandline.connectors.kafka_plan import TOPIC
from strandline.connectors.position import Range
from strandline.connectors.source import Limits
from strandline.errors import HandleClosedError, SourceError, SourceGoneError, UsageError
from strandline.testing.conformance_source import Stand, check_source

ALL = Limits()


@pytest.fixture
def source_of(topics):
    made = []

    def make(name, **options):
        given = {"kafka.bootstrap.servers": topics.address, "subscribe": name, **options}
        made.append(KafkaSource(given, str))
        return made[-1]

    yield make
    for each in made:
        each.close()


def spans(taken):
    """The partitions of a range without the topic's identity."""
    return {each: span for each, span in taken.parts.items() if each != TOPIC}


def read(source, taken, resolve=str):
    return sorted(
        (row["_partition"], row["_offset"], row["_value"])
        for split in source.splits(taken)
        for batch in registry.fetch(split, resolve)
        for row in batch.to_pylist()
    )


def numbered(count):
    return [b"%d" % each for each in range(count)]


def test_all_that_there_is_is_offered_and_read_and_then_nothing(source_of, topics):
    name = topics.make(2)
    topics.write(name, numbered(3), 0)
    topics.write(name, numbered(2), 1)
    source = source_of(name)
    assert source.replayable
    taken = source.plan({}, ALL)
    assert spans(taken) == {"0": (0, 3), "1": (0, 2)}
    assert taken.after({}) == source.latest()
    assert source.plan(taken.after({}), ALL) is None
    source.check(taken)
    rows = [("0", 0, b"0"), ("0", 1, b"1"), ("0", 2, b"2"), ("1", 0, b"0"), ("1", 1, b"1")]
    assert read(source, taken) == rows
    assert read(source_of(name), taken) == rows


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_it_keeps_the_contract_of_sources(topics, starting):
    def stand():
        name = topics.make(2)
        given = {
            "kafka.bootstrap.servers": topics.address,
            "subscribe": name,
            "startingOffsets": starting,
            "maxRecordsPerPartition": "2",
        }

        def new():
            return KafkaSource(given, str)

        def grow():
            topics.write(name, numbered(3), 0)
            topics.transaction(name, [b"x"], 1, commit=False)
            topics.transaction(name, [b"y"], 1)

        def forget(taken):
            topics.forget_before(name, 0, taken.parts["0"][0] + 1)

        return Stand(new, partial(registry.fetch, resolve=str), grow, forget, Limits(rows=3))

    check_source(stand)


def test_an_empty_topic_offers_nothing(source_of, topics):
    assert source_of(topics.make()).plan({}, ALL) is None


def test_offers_stay_within_limits_and_join_without_gaps(source_of, topics):
    name = topics.make(2)
    topics.write(name, numbered(50), 0)
    topics.write(name, numbered(20), 1)
    source, position, rows = source_of(name, maxRecordsPerPartition="4"), {}, []
    while (taken := source.plan(position, Limits(rows=9))) is not None:
        assert 0 < taken.rows <= 9
        assert all(split.stop - split.start <= 4 for split in source.splits(taken))
        position = taken.after(position)
        rows += read(source, taken)
    assert len(rows) == len(set(rows)) == 70


def test_bytes_limit_an_offer_by_the_size_of_rows_that_were_seen(source_of, topics):
    name = topics.make()
    topics.write(name, [bytes(1_000)] * 300)
    source = source_of(name)
    rows = source.plan({}, Limits(bytes=20_000)).rows
    assert 10 <= rows <= 20
    assert source.plan({}, Limits(bytes=1)).rows == 1
    assert source.plan({}, Limits(rows=5, bytes=20_000)).rows == 5


def test_s87_latest_is_fixed_when_the_source_is_opened(source_of, topics):
    name = topics.make(2)
    topics.write(name, numbered(3), 0)
    source = source_of(name, startingOffsets="latest")
    topics.write(name, [b"new"], 0)
    topics.write(name, [b"new"], 1)
    assert {each: source.latest()[each] for each in "01"} == {"0": 3, "1": 0}
    taken = source.plan({}, ALL)
    assert spans(taken) == {"0": (3, 4), "1": (0, 1)}
    assert read(source, taken) == [("0", 3, b"new"), ("1", 0, b"new")]


def test_s87_latest_lasts_although_nothing_has_come_yet(source_of, topics):
    name = topics.make()
    topics.write(name, numbered(3))
    first = source_of(name, startingOffsets="latest")
    taken = first.plan({}, ALL)
    assert spans(taken) == {"0": (3, 3)}
    position = taken.after({})
    assert first.plan(position, ALL) is None
    topics.write(name, [b"new"])
    assert spans(source_of(name, startingOffsets="latest").plan(position, ALL)) == {"0": (3, 4)}


def test_starting_offsets_are_taken_as_they_are_given(source_of, topics):
    name = topics.make(3)
    for partition in range(3):
        topics.write(name, numbered(5), partition)
    starting = f'{{"{name}": {{"0": 2, "1": -1, "2": -2}}}}'
    source = source_of(name, startingOffsets=starting)
    assert spans(source.plan({}, ALL)) == {"0": (2, 5), "1": (5, 5), "2": (0, 5)}
    with pytest.raises(UsageError, match="partition 1 "):
        source_of(name, startingOffsets=f'{{"{name}": {{"0": 2}}}}').plan({}, ALL)
    with pytest.raises(SourceGoneError, match="9 to 9 are needed"):
        source_of(topics.make(name=f"{name}x"), startingOffsets=f'{{"{name}x": {{"0": 9}}}}').plan(
            {}, ALL
        )


def test_a_partition_that_appears_later_begins_at_zero(source_of, topics):
    name = topics.make()
    topics.write(name, numbered(3))
    source = source_of(name, startingOffsets="latest")
    position = source.plan({}, ALL).after({})
    topics.grow(name, 2)
    topics.write(name, [b"new"], 1)
    for each in (source, source_of(name, startingOffsets="latest")):
        assert spans(each.plan(position, ALL)) == {"0": (3, 3), "1": (0, 1)}


def test_rows_of_open_transactions_are_offered_when_they_end(source_of, topics):
    name = topics.make()
    topics.transaction(name, [b"a"])
    topics.begin(name, [b"b"])
    source = source_of(name)
    first = source.plan({}, ALL)
    assert spans(first) == {"0": (0, 2)}
    assert source.plan(first.after({}), ALL) is None
    topics.end(name, commit=True)
    second = source.plan(first.after({}), ALL)
    assert spans(second) == {"0": (2, 4)}
    assert read(source, second) == [("0", 2, b"b")]


def test_retention_that_overtakes_is_named_by_plan_check_and_fetch(source_of, topics):
    name = topics.make()
    topics.write(name, numbered(10))
    source = source_of(name)
    taken = source.plan({}, Limits(rows=4))
    topics.forget_before(name, 0, 6)
    with pytest.raises(SourceGoneError, match=r"offsets 0 to 4 are needed, .* 6 to 10"):
        source.check(taken)
    with pytest.raises(SourceGoneError, match=r"offsets 0 to 4 are needed, .* 6 to 10"):
        read(source, taken)
    with pytest.raises(SourceGoneError, match="offsets 4 to 4 are needed"):
        source.plan(taken.after({}), ALL)
    source.check(Range({"0": (2, 2)}))
    source.check(Range({"0": (6, 10)}))
    assert spans(source.plan({}, ALL)) == {"0": (6, 10)}


def test_a_topic_that_is_gone_or_made_again_is_named(source_of, topics):
    name = topics.make()
    topics.write(name, numbered(4))
    source = source_of(name)
    taken = source.plan({}, ALL)
    topics.drop(name)
    with pytest.raises(SourceGoneError, match="does not exist"):
        source.check(taken)
    with pytest.raises(SourceGoneError, match="does not exist"):
        source.plan(taken.after({}), ALL)
    topics.make(name=name)
    topics.write(name, numbered(8))
    for each in (source, source_of(name)):
        with pytest.raises(SourceGoneError, match="made again"):
            each.check(taken)
        with pytest.raises(SourceGoneError, match="made again"):
            each.plan(taken.after({}), ALL)
        with pytest.raises(SourceGoneError, match="made again"):
            read(each, taken)


def test_a_topic_that_nobody_made_is_named(source_of, broker):
    with pytest.raises(SourceError, match="'nobody-made-this' does not exist"):
        source_of("nobody-made-this")


def test_a_source_that_was_closed_says_so(source_of, topics):
    source = source_of(topics.make())
    source.close()
    with pytest.raises(HandleClosedError):
        source.plan({}, ALL)


def test_a_compacted_topic_is_not_replayable(source_of, topics):
    assert not source_of(topics.make(cleanup_policy="compact")).replayable


def test_s90_splits_hold_references_and_readers_resolve_them(broker, topics):
    name = topics.make()
    topics.write(name, numbered(2))
    options = {
        "kafka.bootstrap.servers": broker.sasl_address,
        "subscribe": name,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": "env:PASSWORD",
    }
    given = {"env:PASSWORD": PASSWORD}

    def resolve(value):
        return given.get(value, value)

    source = KafkaSource(options, resolve)
    taken = source.plan({}, Limits(rows=10, bytes=10_000))
    assert PASSWORD not in repr(source.splits(taken))
    assert read(source, taken, resolve) == [("0", 0, b"0"), ("0", 1, b"1")]
    given["env:PASSWORD"] = "changed"
    with pytest.raises(UsageError, match=r"kafka\.sasl") as refused:
        read(source, taken, resolve)
    assert "changed" not in str(refused.value)
    source.close()
