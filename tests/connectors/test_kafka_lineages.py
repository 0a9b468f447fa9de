"""Lineages of a Kafka sink, on a broker in memory: who is shut out, and whose keys go."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests.connectors.kafka_lives import Rows, batch
from tests.scenarios.kafka_place import PROGRESS, TOPIC, lose, nothing, options

from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.kafka_target import target_of, transactional_id
from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError
from strandline.testing.broker import Broker, Fate, ModelCluster
from strandline.testing.conformance_sink import WHAT

Before = Callable[[str], Fate | None]


class Sinks:
    """One sink on one broker, lineage after lineage, as publishers open them."""

    def __init__(self, envelope: str = "upsert") -> None:
        self.broker = Broker(timeout_ms=10**9)
        self.envelope = envelope

    def new(
        self, lineage: str, older: Sequence[str] = (), before: Before = nothing, **more: str
    ) -> KafkaSink:
        address = replace(WHAT.address, lineage=lineage)
        what = replace(WHAT, address=address, older=tuple(older))
        target = target_of({**options(1, self.envelope), **more}, what)
        return KafkaSink(ModelCluster(self.broker, before), target, what)

    def opened(self, lineage: str, *older: str, at: int = NOTHING_YET, **more: str) -> KafkaSink:
        """`at` is what the store knows to be delivered, should progress be lost."""
        sink = self.new(lineage, older, **more)
        sink.prepare()
        if sink.progress() is None:
            sink.found(Progress(at, 1))
        return sink

    def delivered(self, lineage: str, t: int, rows: Rows, *older: str, **more: str) -> KafkaSink:
        sink = self.opened(lineage, *older, **more)
        sink.deliver(t, 1, [batch(rows)])
        return sink

    def held(self) -> dict[int, str]:
        """What readers hold who keep the last value of each key."""
        (partition,) = self.broker.log.topics[TOPIC]
        last = {each.key: each.value for each in partition.committed()}
        values = [json.loads(value) for value in last.values() if value is not None]
        rows = [each if self.envelope == "upsert" else each["after"] for each in values]
        return {row["id"]: row["name"] for row in rows if row}


OLD: Rows = [(1, "old", 1), (2, "old", 1)]
NEW: Rows = [(2, "new", 1)]


def test_the_lineage_before_is_shut_out_when_progress_is_first_read() -> None:
    """Before anything of the newer one is there, and also if that one never delivers."""
    sinks = Sinks()
    zombie = sinks.delivered("first", 0, OLD)
    newer = sinks.new("second")
    newer.prepare()
    assert newer.progress() is None
    with pytest.raises(SinkFencedError):
        zombie.deliver(1, 1, [batch([(3, "late", 1)])])
    assert sinks.held() == {1: "old", 2: "old"}


def test_what_the_lineage_before_has_open_holds_up_nobody() -> None:
    """Its progress record is sent: who reads progress would wait for it until it times out."""
    sinks = Sinks()
    newer: list[KafkaSink] = []

    def before(step: str) -> None:
        if step == "commit" and armed:
            armed.clear()
            newer.append(sinks.delivered("second", 1, NEW, "first"))

    armed: list[bool] = []
    sinks.delivered("first", 0, OLD)
    zombie = sinks.new("first", before=before)
    zombie.prepare()
    assert zombie.progress() == Progress(0, 1)
    armed.append(True)
    with pytest.raises(SinkFencedError):
        zombie.deliver(1, 1, [batch([(3, "late", 1)])])
    assert newer
    assert sinks.held() == {2: "new"}


def test_who_has_delivered_shuts_out_nobody_again() -> None:
    sinks = Sinks()
    sinks.delivered("first", 0, OLD)
    sinks.delivered("second", 1, NEW)
    epoch = _epoch(sinks, "first")
    sinks.opened("second")
    assert _epoch(sinks, "first") == epoch


def test_of_several_lineages_only_the_last_is_shut_out() -> None:
    """Those before it were, by it."""
    sinks = Sinks()
    first = sinks.delivered("first", 0, OLD)
    second = sinks.delivered("second", 1, NEW)
    before = _epoch(sinks, "first"), _epoch(sinks, "second")
    sinks.opened("third")
    assert (_epoch(sinks, "first"), _epoch(sinks, "second")) == (before[0], before[1] + 1)
    for zombie in (first, second):
        with pytest.raises(SinkFencedError):
            zombie.deliver(5, 1, [batch([(9, "late", 1)])])
    assert sinks.held() == {2: "new"}


def test_without_progress_the_store_tells_whom_to_shut_out() -> None:
    sinks = Sinks("changes")
    zombie = sinks.delivered("first", 0, OLD)
    lose(sinks.broker)
    sinks.delivered("second", 1, NEW, "first")
    with pytest.raises(SinkFencedError):
        zombie.deliver(1, 1, [batch([(3, "late", 1)])])


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
@pytest.mark.parametrize("lost", ["forgotten", "another topic"])
def test_s82_a_lineage_that_follows_one_whose_progress_is_lost_does_not_begin(
    envelope: str, lost: str
) -> None:
    sinks = Sinks(envelope)
    sinks.delivered("first", 0, OLD)
    more = {"progressTopic": "another"} if lost == "another topic" else {}
    if not more:
        lose(sinks.broker)
    with pytest.raises(SinkStoppedError, match=r"topic out has keys.*of lineage first.*existing"):
        sinks.opened("second", "first", **more)
    assert _marks(sinks, more.get("progressTopic", PROGRESS)) == [], "it left no mark"
    if more:
        sinks.delivered("second", 1, NEW, "first")
        assert sinks.held() == {2: "new"}, "with the right topic it knows what to do"


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
@pytest.mark.parametrize(
    ("existing", "held"), [("replace", {2: "new"}), ("keep", {1: "old", 2: "new"})]
)
def test_what_becomes_of_the_keys_may_be_said(
    envelope: str, existing: str, held: dict[int, str]
) -> None:
    sinks = Sinks(envelope)
    sinks.delivered("first", 0, OLD)
    lose(sinks.broker)
    sinks.delivered("second", 1, NEW, "first", existing=existing)
    assert sinks.held() == held
    third = sinks.delivered("third", 2, [(4, "newest", 1)], "first", "second")
    assert 2 not in sinks.held(), "what the second left goes, and nobody is asked again"
    assert third.progress() == Progress(2, 1)


def test_it_is_asked_until_the_first_delivery() -> None:
    """A mark that was founded settles nothing yet."""
    sinks = Sinks()
    sinks.delivered("first", 0, OLD)
    lose(sinks.broker)
    sinks.opened("second", "first", existing="replace")
    with pytest.raises(SinkStoppedError, match="existing"):
        sinks.opened("second", "first")
    with pytest.raises(SinkStoppedError, match="existing"):
        sinks.opened("third", "first")


def test_a_topic_without_keys_needs_no_answer() -> None:
    """The older lineage may have published somewhere else; what it left here has gone."""
    sinks = Sinks()
    sinks.delivered("first", 0, OLD).deliver(1, 1, [batch([(1, "old", -1), (2, "old", -1)])])
    lose(sinks.broker)
    sinks.delivered("second", 1, NEW, "first")
    assert sinks.held() == {2: "new"}


def test_who_goes_on_after_its_progress_was_lost_is_not_asked() -> None:
    """It knows its keys; who follows does not know where they begin."""
    sinks = Sinks()
    sinks.delivered("first", 0, OLD)
    sinks.delivered("second", 1, NEW, "first")
    lose(sinks.broker)
    again = sinks.opened("second", "first", at=1)
    again.deliver(2, 1, [batch([(3, "new", 1)])])
    with pytest.raises(SinkStoppedError, match="of lineage second,"):
        sinks.opened("third", "first", "second")
    sinks.delivered("third", 3, [(4, "newest", 1)], "first", "second", existing="replace")
    assert sinks.held() == {4: "newest"}


def test_a_new_sink_is_not_asked() -> None:
    sinks = Sinks()
    sinks.delivered("first", 0, OLD)
    lose(sinks.broker)
    sinks.delivered("second", 1, NEW)
    assert sinks.held() == {1: "old", 2: "new"}


def test_keys_that_name_another_writer_outlive_a_lineage() -> None:
    """Debezium's messages say who wrote them; those of upsert do not."""
    sinks = Sinks("debezium")
    sinks.delivered("first", 0, OLD)
    address = replace(WHAT.address, sink="other", lineage="theirs")
    what = replace(WHAT, address=address)
    theirs = {**options(1, "debezium"), "progressTopic": "another"}
    other = KafkaSink(ModelCluster(sinks.broker, nothing), target_of(theirs, what), what)
    other.prepare()
    other.found(Progress(NOTHING_YET, 1))
    other.deliver(0, 1, [batch([(7, "theirs", 1)])])
    sinks.delivered("second", 1, NEW, "first")
    assert sinks.held() == {2: "new", 7: "theirs"}


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_progress_topic_that_is_not_compacted_is_refused_by_name(policy: str) -> None:
    sinks = Sinks()
    sinks.broker.log.grow(PROGRESS, 1)
    sinks.broker.log.policies[PROGRESS] = policy
    with pytest.raises(SinkStoppedError, match=f"progress has cleanup.policy {policy}: .*compact"):
        sinks.opened("first")
    assert sinks.broker.log.owners == {}, "nobody was shut out by it"
    sinks.broker.log.policies[PROGRESS] = ""
    sinks.opened("first")


def _epoch(sinks: Sinks, lineage: str) -> int:
    name = transactional_id(replace(WHAT.address, lineage=lineage))
    return sinks.broker.log.owners[name].epoch


def _marks(sinks: Sinks, progress: str) -> list[object]:
    return [each for one in sinks.broker.log.topics[progress] for each in one.committed()]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("names", [("L1", "L2"), ("x", "y"), ("A", "B"), ("A", "C")])
def test_who_was_replaced_does_not_go_on_wherever_progress_lies(
    partitions: int, names: tuple[str, str]
) -> None:
    """Records of several partitions are in no order: the store tells who came later."""
    first, second = names
    sinks = Sinks()
    sinks.broker.log.grow(PROGRESS, partitions)
    sinks.broker.log.policies[PROGRESS] = "compact"
    sinks.delivered(first, 0, OLD)
    sinks.delivered(second, 5, NEW, first)
    back = sinks.new(first, (second,))
    back._newer = (second,)
    back.prepare()
    with pytest.raises(SinkStoppedError, match=f"lineage {second} has replaced it"):
        back.progress()
    assert sinks.held() == {2: "new"}


def test_a_topic_made_anew_under_a_publisher_is_told_by_the_model_as_well() -> None:
    sinks = Sinks()
    sink = sinks.delivered("first", 0, OLD)
    del sinks.broker.log.topics[TOPIC]
    sinks.broker.log.grow(TOPIC, 1)
    with pytest.raises(SinkStoppedError, match="made anew"):
        sink.deliver(1, 1, [batch(NEW)])
    with pytest.raises(SinkStoppedError, match="made anew"):
        sinks.opened("first")
    assert sinks.held() == {}


def test_a_topic_that_is_not_known_for_a_moment_stops_nobody() -> None:
    """A broker that has just started may not know yet what there is."""
    sinks = Sinks()
    sink = sinks.delivered("first", 0, OLD)
    topic = sinks.broker.log.topics.pop(TOPIC)
    with pytest.raises(SinkError, match="is not there, or the broker does not know it yet") as away:
        sink.deliver(1, 1, [batch(NEW)])
    assert not isinstance(away.value, SinkStoppedError)
    sinks.broker.log.topics[TOPIC] = topic
    opened = sinks.opened("first")
    opened.deliver(1, 1, [batch(NEW)])


def test_a_cluster_that_begins_to_tell_ids_stops_nobody_and_counts_from_then_on() -> None:
    sinks = Sinks()
    identity = sinks.broker.log.identities
    sinks.broker.log.grow(TOPIC, 1)
    known, identity[TOPIC] = identity[TOPIC], 0
    sink = sinks.delivered("first", 0, OLD)
    identity[TOPIC] = known
    sink.deliver(1, 1, [batch(NEW)])
    identity[TOPIC] = 0
    sinks.opened("first").deliver(2, 1, [batch(OLD)])
    identity[TOPIC] = known + 1
    with pytest.raises(SinkStoppedError, match="is another one"):
        sinks.opened("first")
