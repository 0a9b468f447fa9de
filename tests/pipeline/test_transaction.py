"""An explicit transaction, beside what `test_pipeline` shows: it is used once, and says how."""

from __future__ import annotations

from dataclasses import replace

import pytest

import strandline
from strandline.errors import (
    ConflictError,
    NotFoundError,
    NotInstalledError,
    SourceError,
    StalledError,
    UsageError,
)
from strandline.journal.handles import Handles
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

TEXT = "CREATE TABLE notes (id BIGINT, note STRING, PRIMARY KEY (id)) USING http;"
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=1, handle_ttl_ms=200)


@pytest.fixture
def pipeline():
    with strandline.open("memory://") as store:
        yield store.pipeline("shop", TEXT, settings=SETTINGS, engine=arrow_engine)


@pytest.fixture
def keyless():
    text = TEXT.replace(", PRIMARY KEY (id)", "")
    with strandline.open("memory://") as store:
        settings = replace(SETTINGS, handle_ttl_ms=600_000)
        yield store.pipeline("shop", text, settings=settings, engine=arrow_engine)


def carried_out(pipeline, name):
    """Step until the slot says what became of it."""
    while Handles(pipeline.store.env, "shop").look(name).closed is None:
        pipeline.step()


def test_it_says_how_it_stands(pipeline):
    transaction = pipeline.transaction()
    assert repr(transaction) == f"<Transaction {transaction.id} open>"
    transaction.commit()
    assert repr(transaction) == f"<Transaction {transaction.id} committed as 0>"
    with pytest.raises(UsageError, match="committed as 0"):
        transaction.abort()
    other = pipeline.transaction()
    other.abort()
    other.abort()
    assert repr(other) == f"<Transaction {other.id} aborted>"


def test_a_commit_of_one_that_was_aborted_is_refused(pipeline):
    first = pipeline.transaction()
    pipeline.transaction(first.id).abort()
    with pytest.raises(ConflictError, match="abort"):
        first.commit()


def test_one_that_was_left_alone_expires(pipeline):
    transaction = pipeline.transaction()
    transaction.insert("notes", [{"id": 1}])
    pipeline.run(until_idle=True)
    while pipeline.status().transactions:
        pipeline.step()
    with pytest.raises(ConflictError, match="aborted: idle for too long"):
        transaction.commit()


def test_an_id_that_was_never_given_is_not_found(pipeline):
    for name in ("h0-nope", "../x", "x", f"h{'9' * 300}-x", f"h{'9' * 5_000}-x"):
        with pytest.raises(NotFoundError):
            pipeline.transaction(name)


def test_equal_rows_that_two_insert_at_once_count_twice(keyless, monkeypatch):
    """Neither gave a number: the second is no retry of the first."""
    pipeline = keyless
    whole = pipeline.transaction()
    one, two = pipeline.transaction(whole.id), pipeline.transaction(whole.id)
    real, waiting = Handles._append, [lambda: two.insert("notes", [{"id": 7}])]

    def racing(self, slot, seqno, record):
        if waiting:
            waiting.pop()()
        return real(self, slot, seqno, record)

    monkeypatch.setattr(Handles, "_append", racing)
    assert one.insert("notes", [{"id": 7}]) == 1
    at = whole.commit()
    found = pipeline.table("notes").snapshot(as_of=at).to_arrow().to_pylist()
    assert [row["id"] for row in found] == [7, 7]


def test_a_commit_whose_answer_got_lost_is_answered_after_a_checkpoint_too(keyless):
    """Others begin meanwhile, and would get its slot: a client that is told nothing sends again."""
    pipeline = keyless
    first = pipeline.transaction()
    first.insert("notes", [{"id": 1}])
    at = first.commit()
    for _ in range(3):
        pipeline.step()
    pipeline.checkpoint()
    second = pipeline.transaction()
    assert pipeline.transaction(first.id).commit() == at
    assert second.id != first.id


def test_an_abort_is_repeated_without_harm_before_it_is_carried_out_and_after(keyless):
    pipeline = keyless
    name = pipeline.transaction().id
    for _ in range(2):
        pipeline.transaction(name).abort()
    carried_out(pipeline, name)
    pipeline.transaction(name).abort()
    with pytest.raises(ConflictError, match="was aborted: its user aborted it"):
        pipeline.transaction(name).commit()


def test_an_abort_that_is_carried_out_while_it_is_repeated_is_done(keyless, monkeypatch):
    pipeline = keyless
    name = pipeline.transaction().id
    pipeline.transaction(name).abort()
    real = Handles.freeze

    def late(self, handle, *, commit):
        carried_out(pipeline, handle)
        return real(self, handle, commit=commit)

    again = pipeline.transaction(name)
    monkeypatch.setattr(Handles, "freeze", late)
    again.abort()
    assert repr(again) == f"<Transaction {name} aborted>"


def test_what_was_committed_is_not_aborted(keyless):
    pipeline = keyless
    first = pipeline.transaction()
    at = first.commit()
    carried_out(pipeline, first.id)
    with pytest.raises(ConflictError, match=f"committed as {at}"):
        pipeline.transaction(first.id).abort()


def test_a_commit_says_why_it_was_aborted(keyless):
    pipeline = keyless
    work = pipeline.transaction()
    Handles(pipeline.store.env, "shop").insert(work.id, 0, "notse", b"a", 1)
    with pytest.raises(ConflictError, match="was aborted: there is no table notse"):
        work.commit()


def test_an_abort_that_is_carried_out_while_another_is_opened_can_be_asked_for_again(
    keyless, monkeypatch
):
    keyless.transaction().commit()
    first = keyless.transaction()
    opened = Handles.open

    def later(handles, look):
        keyless.transaction(first.id).abort()
        carried_out(keyless, first.id)
        return opened(handles, look)

    monkeypatch.setattr(Handles, "open", later)
    second = keyless.transaction()
    first.abort()
    second.commit()


@pytest.mark.parametrize("error", [SourceError, UsageError, NotInstalledError])
def test_who_can_not_carry_a_commit_out_is_told_that_it_is_asked_for(pipeline, monkeypatch, error):
    """Whoever is told that it failed commits the same rows again."""

    def away(*_, **__):
        raise error("the broker does not answer")

    work = pipeline.transaction()
    work.insert("notes", [{"id": 1}])
    with monkeypatch.context() as patched:
        patched.setattr("strandline.pipeline.pipeline.open_sources", away)
        with pytest.raises(StalledError, match="does not answer; it is asked for, and comes when"):
            work.commit()
    assert pipeline.transaction(work.id).commit() == 0
    assert pipeline.query("SELECT id FROM notes").to_pylist() == [{"id": 1}]
