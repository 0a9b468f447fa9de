"""A process that was given no program works with the one on record, as it is now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import strandline
from strandline.errors import FencedError, NotFoundError, ProgramError
from strandline.handles.store import Store
from strandline.journal.log import Journal
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.written import Writing
from strandline.testing.engines import arrow_engine
from strandline.views import options, parse

NOTES = "CREATE TABLE notes (id BIGINT, note STRING) USING http;"
SECRET = """CREATE SINK out FROM notes USING postgresql
  OPTIONS (url 'postgresql://u:hunter2@127.0.0.1:1/shop', table 't');"""
REFUNDS = NOTES + "CREATE TABLE refunds (id BIGINT) USING http;"
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=1)


@pytest.fixture
def store() -> Iterator[Store]:
    with strandline.open("memory://") as made:
        yield made


def shop(store: Store, text: str | None) -> Pipeline:
    return store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)


def _promoted(store: Store, text: str) -> None:
    with shop(store, text) as pipeline:
        pipeline.promote()


def test_what_was_given_stays_and_what_is_on_record_is_looked_for(store: Store) -> None:
    with shop(store, NOTES) as first:
        first.transaction().commit()
    journal = Journal(store.env, "shop")
    given, recorded = Writing(store, journal, NOTES, None), Writing(store, journal, None, None)
    before = recorded.now()
    assert (before.text, before.program) == (NOTES, parse.parse(NOTES))
    assert recorded.now() is before, "it is read once"
    _promoted(store, REFUNDS)
    assert recorded.now().text == REFUNDS
    assert given.now().text == NOTES


def test_a_program_of_objects_has_a_text_too(store: Store) -> None:
    program = parse.parse(NOTES)
    written = Writing(store, Journal(store.env, "shop"), None, program).now()
    assert written.program is program
    assert parse.parse(written.text) == program


def test_a_pipeline_that_nobody_has_run_has_no_program_on_record(store: Store) -> None:
    with pytest.raises(NotFoundError, match="there is no pipeline shop in store memory"):
        Writing(store, Journal(store.env, "shop"), None, None).now()


def test_who_was_given_no_program_goes_on_under_the_one_that_is_promoted(store: Store) -> None:
    """As `serve` without a file does: it asks, takes rows, and steps where nobody runs."""
    with shop(store, NOTES) as first:
        first.transaction().commit()
    with shop(store, None) as served:
        work = served.transaction()
        work.insert("notes", [{"id": 1, "note": "one"}])
        work.commit()
        assert [each.name for each in served.status().endpoints] == ["notes"]
        _promoted(store, REFUNDS)
        assert served.declared("refunds").name == "refunds"
        work = served.transaction()
        work.insert("refunds", [{"id": 7}])
        t = work.commit()
        assert served.query("SELECT COUNT(*) AS n FROM refunds").to_pylist() == [{"n": 1}]
        assert served.reload("notes", [{"id": 2, "note": "two"}]) == t + 1
        assert served.table("refunds").snapshot().to_arrow().to_pylist() == [{"id": 7}]
        assert {each.name for each in served.status().endpoints} == {"notes", "refunds"}
        assert [each.t for each in served.replay()] == list(range(t + 2))


def test_who_was_given_no_program_goes_on_where_the_same_one_is_promoted_again(
    store: Store,
) -> None:
    with shop(store, NOTES) as first:
        first.transaction().commit()
    with shop(store, None) as served, shop(store, NOTES) as given:
        for each in (served, given):
            each.transaction().commit(timeout_ms=10_000)
        for text in (NOTES, REFUNDS, NOTES, NOTES):
            _promoted(store, text)
            before = served.committed.last()
            assert served.transaction().commit(timeout_ms=10_000) == before + 1
            assert served.checkpoint(timeout_ms=10_000) == before + 1
        assert served.promote() == 6
        assert served.transaction().commit(timeout_ms=10_000) == before + 2
        assert served.run(until_idle=True).state == "stopped"
        # Who was given one is meant to run that epoch, and is told.
        with pytest.raises(FencedError):
            given.step()


def test_who_runs_a_program_that_was_on_record_is_fenced_and_can_run_the_next(store: Store) -> None:
    with shop(store, NOTES) as first:
        first.transaction().commit()
    with shop(store, None) as served:
        served.start()
        while served.here is None or served.here.state != "running":
            store.env.tasks.sleep(1)
        _promoted(store, REFUNDS)
        assert served.declared("refunds").name == "refunds"
        with pytest.raises(FencedError):
            served.wait(10_000)
        assert served.run(until_idle=True).state == "stopped"
        assert set(served._ready().desks) == {"notes", "refunds"}


def test_a_secret_is_refused_in_what_is_given_and_not_in_what_is_on_record(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was promoted when nobody took it for one. Nobody could ask, or go on, if it were."""
    with monkeypatch.context() as older:
        older.setattr(options, "_check_secret", lambda *_: None)
        older.setattr(parse, "_read", parse._read.__wrapped__)  # what is read so is not kept
        with shop(store, NOTES + SECRET) as first:
            first.transaction().commit()
            first.reload("notes", [{"id": 1, "note": "one"}])
    with shop(store, None) as served:
        assert served.query("SELECT note FROM notes").to_pylist() == [{"note": "one"}]
        assert served.transaction().commit() > 0
    with pytest.raises(ProgramError, match="holds a secret"), shop(store, NOTES + SECRET) as given:
        given.promote()
    with shop(store, REFUNDS) as mended:
        assert mended.query("SELECT note FROM notes").to_pylist() == [{"note": "one"}]
        mended.promote()
    assert Writing(store, Journal(store.env, "shop"), None, None).now().text == REFUNDS
