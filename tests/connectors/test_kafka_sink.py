"""The Kafka sink: a transaction of ours is one of Kafka's, whole, once and in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from strandline.connectors.kafka_client import KafkaCluster
from strandline.connectors.kafka_fold import folded
from strandline.connectors.kafka_port import Message
from strandline.connectors.kafka_progress import Mark
from strandline.connectors.kafka_sink import IDENTITY, KafkaSink, open_sink
from strandline.connectors.registry import sink_identity
from strandline.connectors.sink import NOTHING_YET, Delivered, Progress, SinkPorts
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError
from strandline.testing.conformance_sink import (
    CHANGES,
    WHAT,
    DiedError,
    SinkStand,
    check_sink,
)

from .kafka_lives import NUMBERS, Lives, Stepping, batch, impatient, options, some, targeted

PORTS = SinkPorts(resolve=str, token=lambda: f"{next(NUMBERS)}")


def stand(topics, topic: str, *, fine: bool = False) -> SinkStand:
    address, store = topics.address, f"l{next(NUMBERS)}"

    def placed(what: Delivered) -> Delivered:
        # Each stand has a store, and so a progress topic, of its own.
        return replace(what, address=replace(what.address, store=store))

    def new(what: Delivered, step: Callable[[str], None]) -> KafkaSink:
        target = targeted(address, topic, placed(what))
        cluster = Stepping(KafkaCluster(target, str), step, fine=fine)
        return KafkaSink(cluster, target, placed(what))

    def read(what: Delivered) -> list[tuple[int, int, pa.Table]]:
        target = targeted(address, topic, placed(what))
        cluster = KafkaCluster(target, str)
        found: dict[tuple[int, int], list[Message]] = {}
        for each in cluster.committed(topic):
            value = msgspec.json.decode(each.value)
            if value["lineage"] == what.address.lineage:
                found.setdefault((value["time"], value["epoch"]), []).append(each)
        cluster.close()
        return [
            (t, epoch, pa.Table.from_batches(rows(what, t, some), schema=CHANGES))
            for (t, epoch), some in found.items()
        ]

    def lose(what: Delivered) -> None:
        target = targeted(address, topic, placed(what))
        topics.drop(target.progress)

    # A sink that makes it itself asks twice before, with a pause: other tests see that it does.
    topics.make(1, targeted(address, topic, placed(WHAT)).progress, cleanup_policy="compact")
    return SinkStand(new, read, lose)


def rows(what: Delivered, t: int, messages: list[Message]) -> list[pa.RecordBatch]:
    return list(folded("changes", what.address.lineage, t, what.columns, messages))


def test_it_keeps_the_contract(topics) -> None:
    """A death before and after each request; the broker in memory has those between records."""
    check_sink(lambda: stand(topics, topics.make(1)))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_keeps_the_contract_between_records(topics) -> None:
    check_sink(lambda: stand(topics, topics.make(1), fine=True))


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_keys_hold_what_the_view_holds(topics, envelope: str) -> None:
    lives = Lives(topics, topics.make(3), envelope=envelope, key="id")
    sink, _ = lives.opened()
    sink.deliver(0, 1, [batch([(1, "a", 1), (2, "b", 1), (3, None, 1)])])
    sink.deliver(4, 1, [batch([(2, "B", 1), (3, None, -1), (2, "b", -1)])])
    assert lives.held() == [(1, "a", 1), (2, "B", 1)]
    again, progress = lives.opened()
    assert progress == Progress(4, 1)
    again.deliver(5, 2, [batch([(1, "a", -1)])])
    assert lives.held() == [(2, "B", 1)]
    keys = {each.key for each in lives.read()}
    assert keys == {b'{"id":1}', b'{"id":2}', b'{"id":3}'}
    assert len({each.partition for each in lives.read()}) > 1
    lives.close()


def test_whatever_ends_a_delivery_leaves_no_transaction_open(topics) -> None:
    """Readers would wait for it until it times out, also if what was raised is none of ours."""
    lives = Lives(topics, topics.make(), envelope="upsert", key="id")
    steps: list[str] = []
    sink, _ = lives.opened(steps.append)

    def broken():
        yield batch([(1, "a", 1)])
        raise ValueError("not foreseen")

    with pytest.raises(ValueError, match="not foreseen"):
        sink.deliver(0, 1, broken())
    assert steps[-1] == "abort"
    assert lives.read() == []
    lives.close()


def test_two_rows_of_a_key_stop_the_sink_and_leave_nothing(topics) -> None:
    lives = Lives(topics, topics.make(), envelope="upsert", key="id")
    sink, _ = lives.opened()
    steps: list[str] = []
    sink, _ = lives.opened(steps.append)
    with pytest.raises(SinkStoppedError, match=r'{"id":1}'):
        sink.deliver(0, 1, [batch([(1, "a", 1), (1, "b", 1)])])
    assert steps[-1] == "abort", "readers would wait for it until it times out"
    assert lives.read() == []
    assert lives.opened()[1] == Progress(NOTHING_YET, 1)
    lives.close()


def test_all_partitions_appear_at_the_commit(topics) -> None:
    """What is sent is nowhere before, and everywhere after it."""
    lives = Lives(topics, topics.make(3), key="id")
    lives.opened()
    seen: list[set[int]] = []

    def step(name: str) -> None:
        if name in {"commit", "answer"}:
            seen.append({topics.end_of(lives.topic, each) for each in range(3)})

    sink, _ = lives.opened(step)
    seen.clear()
    sink.deliver(0, 1, some(0, 30))
    assert seen[0] == {0}, "a reader of committed records got there before the commit"
    assert {each.partition for each in lives.read()} == {0, 1, 2}
    assert lives.times() == [0] * 30
    lives.close()


def test_s81_a_zombie_in_the_middle_of_a_transaction_is_fenced(topics) -> None:
    """S81: it comes back when another has taken over, and nothing of it appears."""
    lives = Lives(topics, topics.make(3), key="id")
    others: list[KafkaSink] = []

    def step(name: str) -> None:
        if name == "commit" and armed:
            armed.clear()
            taken, progress = lives.opened()
            assert progress == Progress(0, 1)
            taken.deliver(1, 2, some(1, 3))
            others.append(taken)

    armed: list[bool] = []
    zombie, _ = lives.opened(step)
    zombie.deliver(0, 1, some(0))
    armed.append(True)
    with pytest.raises(SinkFencedError, match="another publisher"):
        zombie.deliver(1, 1, some(1, 7))
    assert sorted(lives.times()) == [0] * 3 + [1] * 3
    others[0].deliver(2, 2, some(2))
    assert lives.opened()[1] == Progress(2, 2)
    lives.close()


def test_s82_progress_survives_partitions_added_and_transactions_of_one_of_them(topics) -> None:
    """S82: what the last transaction left in the topic does not decide."""
    lives = Lives(topics, topics.make(1), envelope="upsert", key="id")
    sink, _ = lives.opened()
    sink.deliver(0, 1, [batch([(n, "old", 1) for n in range(20)])])
    topics.grow(lives.topic, 3)
    topics.grow(lives.target.progress, 2)
    again, progress = lives.opened()
    assert progress == Progress(0, 1)
    moved = [(n, word, diff) for n in range(20) for word, diff in (("old", -1), ("new", 1))]
    again.deliver(1, 1, [batch(moved)])
    assert {each.partition for each in lives.read()} == {0, 1, 2}
    assert lives.held() == [(n, "new", 1) for n in range(20)]
    again.deliver(2, 1, [batch([(0, "new", -1)])])
    last, progress = lives.opened()
    assert progress == Progress(2, 1)
    last.deliver(3, 1, [batch([(50, "more", 1)])])
    assert lives.held() == [*((n, "new", 1) for n in range(1, 20)), (50, "more", 1)]
    lives.close()


def test_s82_progress_survives_the_loss_of_the_topics_tail(topics) -> None:
    """S82: retention took all that was delivered; reading it back says so."""
    lives = Lives(topics, topics.make(1))
    sink, _ = lives.opened()
    sink.deliver(0, 1, some(0))
    topics.forget_before(lives.topic, 0, topics.end_of(lives.topic, stable=False))
    again, progress = lives.opened()
    assert progress == Progress(0, 1)
    again.deliver(1, 1, some(1))
    assert lives.times() == [1] * 3
    with pytest.raises(SinkStoppedError, match="retention has removed"):
        lives.held()
    lives.close()


def test_s82_progress_survives_compaction(topics) -> None:
    mine = topics.make(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.0",
        segment_ms="100",
        min_compaction_lag_ms="0",
        delete_retention_ms="0",
    )
    lives = Lives(topics, topics.make(1), progressTopic=mine)
    sink, _ = lives.opened()
    for t in range(40):
        sink.deliver(t, 1, some(t))
        if t % 10 == 0:
            topics._admin.poll(0.15)
    cluster = KafkaCluster(lives.target, str)
    for _ in range(300):
        if sum(1 for _ in cluster.committed(mine)) < 40:
            break
        topics._admin.poll(0.1)
    assert sum(1 for _ in cluster.committed(mine)) < 40, "nothing was compacted"
    assert lives.opened()[1] == Progress(39, 1)
    lives.close()


def test_a_topic_that_was_made_anew_is_not_gone_on_with(topics) -> None:
    lives = Lives(topics, topics.make(1))
    sink, _ = lives.opened()
    sink.deliver(0, 1, some(0))
    topics.drop(lives.topic)
    topics.make(1, lives.topic)
    with pytest.raises(SinkStoppedError, match="made anew"):
        lives.opened()
    topics.drop(lives.target.progress)
    lost = lives.new()
    lost.prepare()
    assert lost.progress() is None
    with pytest.raises(SinkStoppedError, match="everything up to 0 was delivered"):
        lost.found(Progress(0, 1))
    lives.close()


def successor(lives: Lives, topics, **more: str) -> Lives:
    """The next lineage of the same sink."""
    before = lives.what.address
    address = replace(before, lineage=f"n{next(NUMBERS)}")
    what = replace(lives.what, address=address, older=(before.lineage,))
    return Lives(topics, lives.topic, what, **more)


def test_s81_a_zombie_of_the_lineage_before_is_fenced_in_the_middle_of_a_transaction(
    topics,
) -> None:
    """S81: its producer is another one, and what it has open holds up whoever reads progress."""
    first = Lives(topics, topics.make(1), envelope="upsert", key="id")
    second = successor(first, topics, envelope="upsert", key="id")

    def step(name: str) -> None:
        if name == "commit" and armed:
            armed.clear()
            second.opened()[0].deliver(3, 1, [batch([(2, "new", 1)])])

    armed: list[bool] = []
    zombie, _ = first.opened(step)
    zombie.deliver(0, 1, [batch([(1, "old", 1)])])
    armed.append(True)
    with pytest.raises(SinkFencedError):
        zombie.deliver(1, 1, [batch([(1, "late", 1), (1, "old", -1)])])
    last = {each.key: each.value for each in second.read()}
    assert {key for key, value in last.items() if value is not None} == {b'{"id":2}'}
    first.close()
    second.close()


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_a_lineage_deletes_what_the_one_before_has_left(topics, envelope: str) -> None:
    """In its first transaction: who keeps the last value of each key holds what the view holds."""
    first = Lives(topics, topics.make(2), envelope=envelope, key="id")
    topics.write(first.topic, [b"{}"], key=b"somebody's")
    first.opened()[0].deliver(0, 1, [batch([(1, "old", 1), (2, "old", 1), (3, "old", 1)])])
    second = successor(first, topics, envelope=envelope, key="id")
    sink, progress = second.opened()
    assert progress is None
    assert second.target.progress == first.target.progress
    before = len(second.read())
    sink.deliver(3, 1, [batch([(2, "new", 1), (4, "new", 1)])])
    last = {each.key: each.value for each in second.read()}
    held = {key for key, value in last.items() if value is not None}
    assert held == {b"somebody's", b'{"id":2}', b'{"id":4}'}
    assert len(second.read()) == before + 2 + (3 if envelope == "upsert" else 6)
    assert second.held() == [(2, "new", 1), (4, "new", 1)]
    sink.deliver(4, 1, [batch([(5, "new", 1)])])
    assert second.held() == [(2, "new", 1), (4, "new", 1), (5, "new", 1)]
    with pytest.raises(SinkStoppedError, match=r"delivered up to 0: .* has replaced it"):
        first.opened()
    first.close()
    second.close()


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_a_lineage_that_begins_with_nothing_deletes_all_of_it(topics, envelope: str) -> None:
    first = Lives(topics, topics.make(2), envelope=envelope, key="id")
    first.opened()[0].deliver(0, 1, [batch([(1, "old", 1), (2, "old", 1)])])
    second = successor(first, topics, envelope=envelope, key="id")
    second.opened()[0].deliver(3, 1, [])
    last = {each.key: each.value for each in second.read()}
    assert set(last.values()) == {None}
    assert second.held() == []
    sink, progress = second.opened()
    assert progress == Progress(3, 1)
    sink.deliver(4, 1, [batch([(2, "new", 1)])])
    assert second.held() == [(2, "new", 1)]
    first.close()
    second.close()


def test_a_topic_with_nothing_to_delete_and_nothing_to_hold_is_not_taken_for_a_new_one(
    topics,
) -> None:
    first = Lives(topics, topics.make(1), envelope="upsert", key="id")
    first.opened()[0].deliver(0, 1, [batch([(1, "old", 1)])])
    address = replace(first.what.address, lineage=f"n{next(NUMBERS)}")
    elsewhere = replace(first.what, address=address)
    second = Lives(topics, topics.make(1), elsewhere, envelope="upsert", key="id")
    second.opened()[0].deliver(3, 1, [])
    assert second.read() == []
    assert second.opened()[1] == Progress(3, 1)
    assert second.held() == []
    first.close()
    second.close()


def test_a_new_sink_deletes_nothing(topics) -> None:
    """Whatever the topic has, and whoever else writes to it."""
    first = Lives(topics, topics.make(1), envelope="upsert", key="id")
    first.opened()[0].deliver(0, 1, [batch([(1, "theirs", 1)])])
    other = Lives(topics, first.topic, envelope="upsert", key="id")
    other.opened()[0].deliver(0, 1, [batch([(2, "ours", 1)])])
    assert [each.value for each in other.read() if each.value is None] == []
    assert other.held() == [(2, "ours", 1)]
    first.close()
    other.close()


def test_progress_records_are_read_by_every_later_version() -> None:
    """Their form is what other versions rely on: it may get fields, and loses none."""
    mark = Mark(1, 7, 2, -1, {"0": 12}, "out", "upsert")
    written = (
        b'{"format":1,"t":7,"epoch":2,"founded":-1,"starts":{"0":12},"topic":"out",'
        b'"envelope":"upsert"}'
    )
    assert msgspec.json.encode(mark) == written
    later = written.replace(b"{", b'{"more":1,', 1)
    assert msgspec.json.decode(later, type=Mark) == mark
    assert msgspec.json.encode(WHAT.address) == (
        b'{"store":"l0","pipeline":"shop","sink":"out","lineage":"first"}'
    )


def test_a_topic_is_made_if_it_is_said_how(topics) -> None:
    name = f"made-{next(NUMBERS)}"
    with pytest.raises(SinkStoppedError, match=f"topic {name} does not exist.*option partitions"):
        Lives(topics, name).opened()
    lives = Lives(topics, name, partitions="3")
    lives.opened()
    assert KafkaCluster(lives.target, str).partitions(name) == 3
    lives.close()


def test_a_progress_topic_that_is_not_compacted_is_refused(topics) -> None:
    mine = topics.make(cleanup_policy="compact,delete")
    lives = Lives(topics, topics.make(1), progressTopic=mine)
    with pytest.raises(SinkStoppedError, match=f"{mine} has cleanup.policy compact,delete"):
        lives.opened()
    lives.close()


def test_an_open_transaction_of_somebody_else_holds_nothing_up(topics) -> None:
    """On the topic itself: progress has a topic of its own, and is read at once."""
    lives = Lives(topics, topics.make(1), timeoutMs="5000")
    lives.opened()[0].deliver(0, 1, some(0))
    topics.begin(lives.topic, [b"{}"])
    try:
        sink, progress = lives.opened()
        assert progress == Progress(0, 1)
        sink.deliver(1, 1, some(1))
    finally:
        topics.end(lives.topic, commit=False)
    assert lives.times() == [0] * 3 + [1] * 3
    lives.close()


def test_a_broker_that_is_killed_in_the_middle_of_a_transaction(topics, broker) -> None:
    """Whether it counts is for the broker to tell, when it is back."""
    lives = Lives(topics, topics.make(3), key="id", timeoutMs="4000")
    sink, _ = lives.opened()
    sink.deliver(0, 1, some(0))

    def step(name: str) -> None:
        if name == "commit" and armed:
            armed.clear()
            broker.kill()

    armed: list[bool] = []
    dying, _ = lives.opened(step)
    impatient(dying)
    armed.append(True)
    with pytest.raises(SinkError):
        dying.deliver(1, 1, some(1, 30))
    broker.start()
    again, progress = lives.opened(target=msgspec.structs.replace(lives.target, patience_ms=60_000))
    assert progress == Progress(0, 1)
    again.deliver(1, 1, some(1, 30))
    assert sorted(lives.times()) == [0] * 3 + [1] * 30
    lives.close()


def test_a_death_in_the_middle_does_not_outlive_the_next_one(topics) -> None:
    lives = Lives(topics, topics.make(1))
    lives.opened()

    def step(name: str) -> None:
        if name == "commit" and armed:
            raise DiedError

    armed: list[bool] = []
    dying, _ = lives.opened(step)
    armed.append(True)
    with pytest.raises(DiedError):
        dying.deliver(0, 1, some(0))
    sink, progress = lives.opened()
    assert progress == Progress(NOTHING_YET, 1)
    sink.deliver(0, 1, some(0))
    assert lives.times() == [0] * 3
    lives.close()


def test_a_message_that_is_too_large_stops_the_sink(topics) -> None:
    lives = Lives(topics, topics.make(1, max_message_bytes="1000"))
    steps: list[str] = []
    sink, _ = lives.opened(steps.append)
    with pytest.raises(SinkStoppedError, match=r"[Ss]ize|large"):
        sink.deliver(0, 1, [batch([(1, "x" * 5000, 1)])])
    assert steps[-2:] == ["commit", "abort"], "readers would wait for it until it times out"
    assert lives.read() == []
    lives.close()


def test_a_progress_record_that_is_refused_leaves_no_transaction_open(topics) -> None:
    lives = Lives(topics, topics.make(1))
    topics.make(1, lives.target.progress, cleanup_policy="compact", max_message_bytes="90")
    steps: list[str] = []
    with pytest.raises(SinkStoppedError, match=r"[Ss]ize|large"):
        lives.opened(steps.append)
    assert steps[-2:] == ["commit", "abort"]
    lives.close()


def test_a_commit_that_was_not_answered_is_not_aborted(topics) -> None:
    """It may count: what comes next looks first."""
    lives = Lives(topics, topics.make(1))
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if name == "answer" and armed:
            raise SinkError("no answer")

    armed: list[bool] = []
    sink, _ = lives.opened(step)
    armed.append(True)
    with pytest.raises(SinkError, match="no answer"):
        sink.deliver(0, 1, some(0))
    assert "abort" not in steps
    assert lives.opened()[1] == Progress(0, 1)
    lives.close()


def test_another_target_is_another_lineage_and_other_options_are_not() -> None:
    base = options("host:1", "out", envelope="upsert", key="id")
    same = {**base, "headers": "id", "kafka.bootstrap.servers": "host:1,host:2"}
    assert sink_identity("kafka", base) == sink_identity("kafka", same)
    for other in IDENTITY:
        assert sink_identity("kafka", {**base, other: "x"}) != sink_identity("kafka", base)


def test_it_is_opened_by_its_options_and_asks_nothing_before_it_is_used() -> None:
    sink = open_sink(options("127.0.0.1:1", "out", timeoutMs="300"), WHAT, PORTS)
    with pytest.raises(SinkError, match=r"127\.0\.0\.1:1"):
        sink.prepare()
    sink.close()
    sink.close()
