"""The broker in memory does as it is told; that it keeps the rules `check_cluster` says."""

from __future__ import annotations

import pytest

from strandline.connectors.kafka_port import Batch
from strandline.errors import SinkError, SinkFencedError
from strandline.testing.broker import Broker, Fate, ModelCluster, ModelOutbox

TOPIC = "out"


class Script:
    """Says what becomes of the next request of a kind."""

    def __init__(self) -> None:
        self.next: dict[str, Fate] = {}
        self.steps: list[str] = []

    def __call__(self, step: str) -> Fate | None:
        self.steps.append(step)
        return self.next.pop(step, None)


class Place:
    def __init__(self) -> None:
        self.broker = Broker(timeout_ms=1_000)
        self.script = Script()
        self.cluster = ModelCluster(self.broker, self.script)
        self.cluster.create(TOPIC, 2, {})

    def outbox(self) -> ModelOutbox:
        made = self.cluster.outbox("a")
        made.init()
        return made

    def seen(self) -> list[str]:
        return sorted((each.value or b"").decode() for each in self.cluster.committed(TOPIC))


def publish(outbox: ModelOutbox, *words: str) -> None:
    outbox.begin()
    outbox.send(TOPIC, Batch([each.encode() for each in words], [each.encode() for each in words]))
    outbox.commit()


@pytest.fixture
def place() -> Place:
    return Place()


def test_s80_a_commit_without_an_answer_counts_or_not_and_nobody_is_told_which(
    place: Place,
) -> None:
    for fate, seen in ((Fate.LOST, []), (Fate.UNANSWERED, ["unanswered"])):
        place.script.next = {"commit": fate}
        with pytest.raises(SinkError, match="commit was not answered"):
            publish(place.outbox(), str(fate))
        place.outbox()
        assert place.seen() == seen


@pytest.mark.parametrize("replaced", [False, True])
def test_s80_a_late_commit_lands_unless_its_sender_was_shut_out(
    place: Place, *, replaced: bool
) -> None:
    place.script.next = {"commit": Fate.LATE}
    with pytest.raises(SinkError):
        publish(place.outbox(), "x", "y")
    if replaced:
        place.outbox()
    place.broker.arrive()
    assert place.seen() == ([] if replaced else ["x", "y"])


def test_s80_a_copy_of_a_commit_tears_the_next_transaction_of_who_was_not_replaced(
    place: Place,
) -> None:
    place.script.next = {"commit": Fate.TWICE}
    careless = place.outbox()
    publish(careless, "whole")
    careless.begin()
    careless.send(TOPIC, Batch([b"half"], [b"half"]))
    place.broker.arrive()
    assert place.seen() == ["half", "whole"]


def test_a_client_that_does_not_know_of_a_record_commits_nothing(place: Place) -> None:
    place.script.next = {"produce": Fate.LATE}
    outbox = place.outbox()
    with pytest.raises(SinkError):
        publish(outbox, "x")
    with pytest.raises(SinkError, match="nothing is committed"):
        outbox.commit()
    outbox.abort()
    place.broker.arrive()
    place.outbox()
    assert place.seen() == []


def test_a_copy_of_a_record_counts_once(place: Place) -> None:
    place.script.next = {"produce": Fate.TWICE}
    outbox = place.outbox()
    publish(outbox, "x")
    place.broker.arrive()
    assert place.seen() == ["x"]


def test_a_late_init_shuts_out_who_came_after_it(place: Place) -> None:
    place.script.next = {"init": Fate.LATE}
    with pytest.raises(SinkError):
        place.outbox()
    outbox = place.outbox()
    place.broker.arrive()
    with pytest.raises(SinkFencedError):
        publish(outbox, "x")
    assert place.broker.fenced == {"a": 1}


def test_a_broker_that_is_down_answers_nobody_and_forgets_nothing(place: Place) -> None:
    outbox = place.outbox()
    publish(outbox, "x")
    place.broker.down = True
    for ask in (place.seen, place.outbox, lambda: place.cluster.partitions(TOPIC)):
        with pytest.raises(SinkError, match="was not answered"):
            ask()
    place.broker.down = False
    assert place.seen() == ["x"]


def test_a_reader_waits_for_markers_that_come_one_by_one(place: Place) -> None:
    place.broker.lazy = True
    publish(place.outbox(), *"abcdef")
    assert place.broker.log.markers == 0
    assert place.seen() == list("abcdef")
    assert place.broker.log.markers == 2


def test_what_is_left_open_is_aborted_while_a_reader_waits(place: Place) -> None:
    outbox = place.outbox()
    outbox.begin()
    outbox.send(TOPIC, Batch([b"x"], [b"x"]))
    assert place.seen() == []
    with pytest.raises(SinkFencedError):
        outbox.commit()


def test_a_reader_does_not_wait_for_ever(place: Place) -> None:
    outbox = place.outbox()
    outbox.begin()
    outbox.send(TOPIC, Batch([b"x"], [b"x"]))
    reader = ModelCluster(place.broker, wait=lambda: None)
    with pytest.raises(SinkError, match="did not come to an end"):
        list(reader.committed(TOPIC))


def test_a_topic_that_is_gone_is_told(place: Place) -> None:
    outbox = place.outbox()
    del place.broker.log.topics[TOPIC]
    assert place.cluster.partitions(TOPIC) == 0
    for ask in (place.seen, lambda: publish(outbox, "x"), lambda: place.cluster.bounds(TOPIC)):
        with pytest.raises(SinkError, match="no topic out"):
            ask()


def test_every_request_is_a_step_and_so_is_its_answer(place: Place) -> None:
    outbox = place.outbox()
    place.script.steps.clear()
    publish(outbox, "a", "b", "c", "d")
    produced = ["produce", "produce answered"]
    assert place.script.steps == ["begin", *produced, *produced, "commit", "commit answered"]
