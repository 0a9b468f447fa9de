"""An explicit transaction, beside what `test_pipeline` shows: it is used once, and says how."""

from __future__ import annotations

import pytest

import strandline
from strandline.errors import ConflictError, NotFoundError, UsageError
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

TEXT = "CREATE TABLE notes (id BIGINT, note STRING, PRIMARY KEY (id)) USING http;"
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=1, handle_ttl_ms=200)


@pytest.fixture
def pipeline():
    with strandline.open("memory://") as store:
        yield store.pipeline("shop", TEXT, settings=SETTINGS, engine=arrow_engine)


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
    with pytest.raises(ConflictError, match="aborted"):
        transaction.commit()


def test_an_id_that_was_never_given_is_not_found(pipeline):
    for name in ("h0-nope", "../x", "x"):
        with pytest.raises(NotFoundError):
            pipeline.transaction(name)
