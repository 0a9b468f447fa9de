"""What is seen of a pipeline and of its sinks is the same from every process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline
from strandline.connectors.files import Files
from strandline.connectors.source import Ports
from strandline.errors import (
    NotFoundError,
    NotInstalledError,
    SourceError,
    StrandlineError,
    UsageError,
)
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.sources import open_sources
from strandline.testing.engines import arrow_engine
from strandline.views.program import Program

TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 10;
CREATE SINK out FROM large USING files OPTIONS (path '{path}/out');
CREATE SINK whole FROM orders USING files OPTIONS (path '{path}/whole');
"""
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=1, claim_lease_ms=400)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Pipeline, Pipeline]]:
    """A pipeline as its runner holds it, and as somebody else does."""
    folder = str(tmp_path / "lake")
    with strandline.open(folder) as one, strandline.open(folder) as other:
        text = TEXT.format(path=tmp_path)
        mine = one.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine, replica="a")
        insert(mine, 1, 500)
        yield mine, other.pipeline("shop")


def insert(pipeline: Pipeline, key: int, amount: int) -> int:
    with pipeline.transaction() as work:
        work.insert("orders", [{"id": key, "amount": amount}])
    return work.commit()


def until(holds, pipeline: Pipeline) -> None:
    for _ in range(6_000):
        if holds():
            return
        pipeline.store.env.tasks.sleep(10)
    raise AssertionError("it did not come to that within a minute")


def test_a_sink_is_seen_from_elsewhere_while_it_is_published_and_after(
    shop: tuple[Pipeline, Pipeline],
) -> None:
    mine, theirs = shop
    before = {each.name: each for each in theirs.status().sinks}
    assert {(each.state, each.delivered, each.behind) for each in before.values()} == {
        ("ended", None, 1)
    }
    assert before["out"].lag_seconds >= 0
    mine.start()

    def publishing() -> bool:
        return all(each.state == "publishing" and not each.behind for each in theirs.status().sinks)

    until(publishing, mine)
    now = theirs.status()
    assert {each.publisher for each in now.sinks} == {"a"}
    assert {each.delivered for each in now.sinks} == {0}
    small = insert(theirs, 2, 5)
    until(lambda: not any(each.behind for each in theirs.status().sinks), mine)
    after = {each.name: each for each in theirs.status().sinks}
    assert (after["out"].delivered, after["whole"].delivered) == (0, small)
    assert after["out"].reached == small, "it has nothing for it"
    mine.stop()
    assert {each.publisher for each in theirs.status().sinks} == {None}
    (newest, oldest) = theirs.history()
    assert newest.sinks == {"out": "no change", "whole": "delivered"}
    assert oldest.sinks == {"out": "delivered", "whole": "delivered"}
    assert theirs.verify_sink("whole").equal
    assert theirs.verify_sink("out").equal


def test_what_a_paused_sink_has_not_taken_is_pending(shop: tuple[Pipeline, Pipeline]) -> None:
    mine, theirs = shop
    mine.run(until_idle=True)
    theirs.pause(sink="Whole")
    t = insert(mine, 3, 300)
    mine.run(until_idle=True)
    found = {each.name: each for each in theirs.status().sinks}
    assert (found["whole"].state, found["whole"].paused, found["whole"].behind) == (
        "paused",
        True,
        1,
    )
    assert (found["out"].state, found["out"].paused, found["out"].behind) == ("ended", False, 0)
    newest = theirs.history()[0]
    assert (newest.t, newest.sinks) == (t, {"out": "delivered", "whole": "pending"})
    theirs.resume(sink="whole")
    mine.run(until_idle=True)
    assert theirs.history()[0].sinks == {"out": "delivered", "whole": "delivered"}


def test_a_sink_that_is_not_there_is_named(shop: tuple[Pipeline, Pipeline]) -> None:
    _, theirs = shop
    for call in (theirs.pause, theirs.resume):
        with pytest.raises(NotFoundError, match="no sink 'nope': it has out, whole"):
            call(sink="nope")


def test_whoever_lacks_a_connector_sees_its_sinks_all_the_same(
    shop: tuple[Pipeline, Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = shop
    mine.run(until_idle=True)

    def missing(*_: object) -> dict[str, str]:
        raise NotInstalledError("pip install something")

    monkeypatch.setattr("strandline.pipeline.report.sink_identity", missing)
    assert [(each.reached, each.behind) for each in theirs.status().sinks] == [(0, 0), (0, 0)]
    assert theirs.history()[0].sinks == {"out": "delivered", "whole": "delivered"}


def test_a_source_that_can_not_be_opened_here_hides_nothing_of_the_pipeline(
    shop: tuple[Pipeline, Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = shop
    tried: list[str] = []
    real = open_sources

    def away(program: Program, ports: Ports, names: frozenset[str], **more: object) -> object:
        tried.append(*names)
        if len(tried) == 1:
            raise SourceError("the broker does not answer")
        return real(program, ports, names, **more)

    monkeypatch.setattr("strandline.pipeline.pipeline.open_sources", away)
    told = theirs.status()
    assert (told.committed, told.endpoints[0].behind) == (mine.committed, None)
    assert theirs.status().endpoints == told.endpoints
    assert tried == ["orders"], "it is not asked again at once"
    monkeypatch.setattr("strandline.pipeline.looking._AGAIN_MS", 0)
    theirs.status()
    theirs.status()
    assert tried == ["orders", "orders"], "once it is opened it stays open"


@pytest.mark.parametrize("error", [SourceError, UsageError, NotFoundError])
def test_a_source_that_can_not_say_how_far_it_is_hides_nothing_of_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[StrandlineError]
) -> None:
    text = f"CREATE TABLE t (id BIGINT) USING files OPTIONS (path '{tmp_path}');"

    def plan(*_: object) -> None:
        raise error("not now")

    with strandline.open("memory://") as store:
        pipeline = store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)
        pipeline.run(until_idle=True)
        assert pipeline.status().endpoints[0].behind == 0
        monkeypatch.setattr(Files, "plan", plan)
        assert pipeline.status().endpoints[0].behind is None
