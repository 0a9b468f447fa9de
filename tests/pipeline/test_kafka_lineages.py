"""A Kafka sink whose program changes: the store tells it who published before, progress or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.scripted import published, publisher_of, until
from tests.pipeline.shop import TEXT, rig_of, rows, run
from tests.pipeline.test_successors import CHANGED, promoted
from tests.scenarios.kafka_place import PROGRESS, TOPIC, lose, options

from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.kafka_target import target_of
from strandline.connectors.sink import Delivered
from strandline.handles.store import Store
from strandline.pipeline.place import Target
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.pipeline.said import SinkStatus
from strandline.pipeline.states import SinkState
from strandline.testing.broker import Broker, ModelCluster
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def rigged(
    store: Store,
    broker: Broker,
    version: str,
    *,
    text: str = TEXT,
    source: str = "orders",
    envelope: str = "upsert",
    **more: str,
) -> Rig:
    """Publishes the table; with another version, it is another lineage."""

    def opened(what: Delivered) -> KafkaSink:
        target = target_of({**options(1, envelope), **more}, what)
        return KafkaSink(ModelCluster(broker), target, what)

    sinks = [Target("out", source, {"connector": "kafka", "version": version}, opened)]
    return replace(rig_of(store, text), sinks=sinks)


def ended(store: Store, rig: Rig) -> SinkStatus:
    """What a publisher says when it has stopped, or has everything."""
    publisher = publisher_of(rig)
    last = rig.journal.refresh().next_t - 1
    publisher.start()
    try:
        until(
            lambda: (
                publisher.status().state is SinkState.STOPPED or publisher.status().reached >= last
            ),
            store,
        )
    finally:
        publisher.stop()
    return publisher.status()


def held(broker: Broker) -> list[dict[str, object]]:
    (partition,) = broker.log.topics[TOPIC]
    last = {each.key: each.value for each in partition.committed()}
    return sorted((json.loads(each) for each in last.values() if each is not None), key=str)


def test_s82_a_changed_sink_whose_progress_is_lost_stops_until_it_is_told_what_to_do(
    lab: Lab,
) -> None:
    broker = Broker()
    with new_store(lab) as store:
        first = rigged(store, broker, "1")
        replica = Replica(first)
        run(replica)
        published(store, first)
        broker.log.topics[TOPIC][0].append(0, (b'{"id":-1}', b'{"id":-1}', ()), 0)
        lose(broker)
        asking = publisher_of(rigged(store, broker, "2"))
        asking._journal.refresh()
        asking.start()
        until(lambda: asking.status().state is SinkState.STOPPED, store)
        asking.stop()
        assert "topic out has keys, and progress topic progress" in asking.status().cause
        published(store, rigged(store, broker, "2", existing="replace"))
        assert held(broker) == rows(store, "orders", 9)
        replica.close()


def test_a_changed_view_replaces_its_keys_in_one_transaction(lab: Lab) -> None:
    """Whoever reads committed records never sees the topic empty, or a view that never was."""
    broker = Broker()
    with new_store(lab) as store:
        counts = []
        for text in (TEXT, CHANGED):
            rig = rigged(store, broker, "1", text=text, source="large")
            replica = promoted(rig)
            assert ended(store, rig).state is SinkState.ENDED
            replica.close()
            (partition,) = broker.log.topics[TOPIC]
            counts.append(len({each.transaction for each in partition.committed()}))
        assert counts == [10, 11]
        assert len(held(broker)) == 19


@pytest.mark.parametrize("progress", [PROGRESS, "another"])
def test_a_keyed_sink_that_goes_back_to_earlier_options_stops_by_name(
    lab: Lab, progress: str
) -> None:
    """What it had delivered was deleted meanwhile: its next changes alone are not the table. If
    progress does not tell, the store's record does."""
    broker = Broker()
    half = TEXT.replace("'100'", "'50'")
    with new_store(lab) as store:
        first = rigged(store, broker, "1", text=half)
        promoted(first).close()
        assert ended(store, first).state is SinkState.ENDED
        second = rigged(store, broker, "2", text=half.replace("> 10;", "> 5;"), key="customer,id")
        promoted(second).close()
        assert ended(store, second).state is SinkState.ENDED
        (partition,) = broker.log.topics[TOPIC]
        before = list(partition.committed())
        back = rigged(store, broker, "1", progressTopic=progress)
        promoted(back).close()
        said = ended(store, back)
        assert said.state is SinkState.STOPPED
        assert "topic out no longer has what was delivered up to 4: lineage " in said.cause
        assert "has replaced it" in said.cause
        assert list(partition.committed()) == before
        assert held(broker) == rows(store, "orders", 4)


def test_a_sink_that_goes_back_to_an_earlier_progress_topic_stops_by_name(lab: Lab) -> None:
    """It would deliver again what came while another topic had its progress."""
    broker = Broker()
    states, times = [], []
    with new_store(lab) as store:
        for count, topic in ((40, "p1"), (70, "p2"), (100, "p1"), (100, "p2")):
            text = TEXT.replace("'100'", f"'{count}'")
            rig = rigged(store, broker, "1", text=text, envelope="changes", progressTopic=topic)
            promoted(rig).close()
            said = ended(store, rig)
            states.append(said.state)
            if topic == "p1" and len(states) > 1:
                assert "progress topic p1 says that 3 was delivered last, and 6 was" in said.cause
        (partition,) = broker.log.topics[TOPIC]
        for each in partition.committed():
            t = json.loads(each.value)["time"]
            if times[-1:] != [t]:
                times.append(t)
    assert states == [SinkState.ENDED, SinkState.ENDED, SinkState.STOPPED, SinkState.ENDED]
    assert times == list(range(10)), "each once, and the right topic goes on"
