"""A source that is away when a replica starts holds up nobody who needs it not."""

from __future__ import annotations

import pytest
from tests.pipeline.shop import run

import strandline
from strandline.connectors.position import Range
from strandline.connectors.push import PushSource
from strandline.connectors.source import Holding, Initiating, Limits
from strandline.errors import HandleClosedError, SourceError, UsageError
from strandline.pipeline.away import Away, insist
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import rigged
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.computing import ArrowComputer
from strandline.testing.engines import arrow_engine
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.views.parse import parse

SETTINGS = PipelineSettings(delay_ms=0, poll_ms=1)
TEXT = """
CREATE TABLE t (id BIGINT, PRIMARY KEY (id)) USING kafka
  OPTIONS (kafka.bootstrap.servers '127.0.0.1:1', subscribe 't', {more}
           kafkaConsumer.pollTimeoutMs '300');
CREATE TABLE notes (id BIGINT, PRIMARY KEY (id)) USING http;
"""


class Held(ScriptedSource):
    """It may be told what to keep."""

    initiates = True
    secured = 0

    def secure(self, taken: Range) -> None:
        self.secured += 1


def topic_of(*values: bytes) -> ScriptedTopic:
    topic = ScriptedTopic(["0"])
    for value in values:
        topic.send("0", None, value)
    return topic


def begun(store: strandline.Store, text: str) -> None:
    """A pipeline that has taken from its topic, which was there then."""
    program = parse(text)
    topic = topic_of(b'{"id": 1}')
    sources = {"t": ScriptedSource(topic), "notes": PushSource()}
    rig = rigged(
        store, "shop", program, text, sources=sources, settings=SETTINGS,
        computer=ArrowComputer(store, fetch=topic.fetch),
    )  # fmt: skip
    replica = Replica(rig)
    run(replica)
    assert replica.standing.next_t == 1
    replica.close()


def _cause(pipeline: strandline.Pipeline) -> str:
    """What anybody sees in the store, as soon as the replica has said anything there."""
    for _ in range(600):
        cause = pipeline.status(sources=False).cause
        if cause:
            return cause
        pipeline.store.env.tasks.sleep(50)
    return ""


def test_a_replica_starts_while_a_source_is_away_and_goes_on_with_the_rest():
    text = TEXT.format(more="")
    with strandline.open("memory://", upkeep=False) as store:
        begun(store, text)
        with store.pipeline("shop", text, engine=arrow_engine, settings=SETTINGS) as pipeline:
            pipeline.start()
            with pipeline.transaction() as work:
                work.insert("notes", [{"id": 7}])
            assert pipeline.table("notes").snapshot().to_arrow().to_pylist() == [{"id": 7}]
            assert pipeline.checkpoint(timeout_ms=30_000) == 1
            assert "SourceError: Kafka at '127.0.0.1:1' could not be asked" in _cause(pipeline)
            pipeline.stop()


def test_who_is_to_end_by_itself_does_not_wait_for_a_source():
    text = TEXT.format(more="")
    with strandline.open("memory://", upkeep=False) as store:
        begun(store, text)
        with store.pipeline("shop", text, engine=arrow_engine) as pipeline:
            for given in ({"until_idle": True}, {"transactions": 1}):
                with pytest.raises(SourceError, match="could not be asked"):
                    pipeline.run(**given)


def test_a_source_that_never_was_there_is_refused_at_once():
    with (
        strandline.open("memory://", upkeep=False) as store,
        store.pipeline("shop", TEXT.format(more=""), engine=arrow_engine) as pipeline,
        pytest.raises(SourceError, match="could not be asked"),
    ):
        pipeline.start()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("colour 'red',", "colour"),
        ("kafka.sasl.password 'env:NOBODY_SET_THIS',", "NOBODY_SET_THIS"),
        ("kafka.nonsense 'x',", "nonsense"),
    ],
)
def test_what_is_wrong_with_the_program_is_refused_at_once(more, reason):
    text = TEXT.format(more=more)
    with strandline.open("memory://", upkeep=False) as store:
        begun(store, text)
        with (
            store.pipeline("shop", text, engine=arrow_engine) as pipeline,
            pytest.raises(UsageError, match=reason),
        ):
            pipeline.start()


def test_a_source_that_is_back_is_told_what_it_missed():
    topic, there = topic_of(b"1", b"2"), []

    def reopen() -> Held:
        if not there:
            raise SourceError("no broker")
        return Held(topic)

    source = Away(reopen)
    for ask in (source.latest, lambda: source.plan({}, Limits()), lambda: source.replayable):
        with pytest.raises(SourceError, match="no broker"):
            ask()
    with pytest.raises(SourceError, match="no broker"):
        insist([source])
    assert not source.initiates
    source.acknowledge({"0": 1})
    there.append(True)
    taken = source.plan({}, Limits())
    assert taken is not None
    assert taken.parts == {"0": (0, 2)}
    insist([source])
    real = source.back()
    assert isinstance(real, Held)
    assert real.acknowledged == {"0": 1}
    assert isinstance(source, Holding)
    assert isinstance(source, Initiating)
    assert source.initiates
    source.secure(taken)
    assert real.secured == 1
    assert source.splits(taken) == real.splits(taken)
    source.check(taken)
    source.acknowledge({"0": 2})
    assert real.acknowledged == {"0": 2}
    source.close()
    with pytest.raises(HandleClosedError):
        source.latest()
