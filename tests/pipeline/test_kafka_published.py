"""A program with Kafka sinks, end to end: a topic's readers have what its collection holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from tests.connectors.kafka_lives import targeted
from tests.pipeline.shop import TEXT, rig_of, rows

from strandline.connectors.kafka_client import KafkaCluster
from strandline.connectors.kafka_port import Message
from strandline.journal.next import Want
from strandline.pipeline.place import placed
from strandline.pipeline.publish import SinkState
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.read_back import Reading, compared, quiet
from strandline.pipeline.replica import Replica
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import State
from strandline.testing.lab import Lab, new_store

NUMBERS = count()


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def program(address: str, name: str) -> str:
    sink = "CREATE SINK {0} FROM {1} USING kafka OPTIONS (kafka.bootstrap.servers '{2}', {3});"
    said = [
        ("as_upserts", "large", f"topic '{name}.upserts', envelope 'upsert', key 'id'"),
        ("as_debezium", "orders", f"topic '{name}.debezium', envelope 'debezium'"),
        ("as_changes", "large", f"topic '{name}.changes', envelope 'changes'"),
    ]
    sinks = [
        sink.format(own, source, address, f"{more}, partitions '3'") for own, source, more in said
    ]
    return TEXT + "\n".join(sinks)


def read(topics, topic: str) -> list[Message]:
    return list(KafkaCluster(targeted(topics.address, topic), str).committed(topic))


def last_of(messages: list[Message]) -> dict[bytes | None, dict[str, object] | None]:
    """What readers hold who keep the last value of each key."""
    return {each.key: None if each.value is None else json.loads(each.value) for each in messages}


def added_up(messages: list[Message], upto: int) -> list[dict[str, object]]:
    total: Counter[str] = Counter()
    for each in messages:
        change = json.loads(each.value or b"")
        if change["time"] <= upto:
            total[json.dumps(change["row"])] += change["diff"]
    assert set(total.values()) <= {0, 1}
    return sorted((json.loads(each) for each in total.elements()), key=str)


def test_topics_hold_what_their_collections_hold(lab: Lab, topics) -> None:
    name = f"e2e-{next(NUMBERS)}"
    with new_store(lab) as store:
        rig = rig_of(store, program(topics.address, name))
        publishing = Publishing(rig)
        runner = Runner(Replica(rig), store.env, rig.settings, publishing)
        status = runner.run(until_idle=True)
        assert status.state is State.STOPPED
        assert {(each.reached, each.cause) for each in status.sinks} == {(9, "")}
        assert {each.state for each in runner.status().sinks} == {SinkState.ENDED}

        changed = read(topics, f"{name}.changes")
        for at in range(10):
            assert added_up(changed, at) == rows(store, "large", at)
        held = last_of(read(topics, f"{name}.upserts"))
        assert _rows(held.values()) == rows(store, "large", 9)
        logged = last_of([each for each in read(topics, f"{name}.debezium") if each.value])
        assert _rows(each and each["after"] for each in logged.values()) == rows(store, "orders", 9)

        for target in rig.sinks:
            place = placed(store, rig.journal.refresh(), target)
            assert place is not None
            verified = compared(Reading(store, "shop", target, place), quiet)
            assert (verified.equal, verified.at) == (True, 9)


def test_a_sink_goes_on_where_its_topic_says(lab: Lab, topics) -> None:
    """S78: what was delivered is not delivered again, by whoever comes next."""
    name, lengths = f"e2e-{next(NUMBERS)}", []
    with new_store(lab) as store:
        for number, wanted in enumerate(("30", "30", "60")):
            text = program(topics.address, name).replace("rows '100'", f"rows '{wanted}'")
            rig = rig_of(store, text)
            replica = Replica(rig)
            if number == 2:
                replica.want(Want.PROMOTE)
            Runner(replica, store.env, rig.settings, Publishing(rig)).run(until_idle=True)
            changed = read(topics, f"{name}.changes")
            lengths.append(len(changed))
            at = replica.standing.next_t - 1
            assert added_up(changed, at) == rows(store, "large", at)
            replica.close()
    assert lengths[0] == lengths[1] < lengths[2]
    assert len({json.loads(each.value or b"")["lineage"] for each in changed}) == 1


def _rows(found) -> list[dict[str, object]]:
    return sorted((each for each in found if each), key=str)
