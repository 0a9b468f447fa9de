"""S91: rows that were accepted from an endpoint are counted, although it is removed meanwhile."""

from __future__ import annotations

import pytest

import strandline
from strandline.errors import NotFoundError
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

ORDERS = """CREATE TABLE orders (id BIGINT, customer BIGINT, PRIMARY KEY (id)) USING generator
    OPTIONS (seed '7', keys '50', rows '50', rowsPerSecond '0');"""
NOTES = """CREATE TABLE notes (id BIGINT, customer BIGINT, PRIMARY KEY (id)) USING generator
    OPTIONS (seed '8', keys '50', rows '50', rowsPerSecond '0');"""
SETTINGS = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=1)


def _sealed(pipeline: Pipeline, t: int) -> None:
    pipeline.step()
    while pipeline.status().sealed != t:
        pipeline.step()


def test_s91_what_was_sealed_of_an_endpoint_is_counted_when_a_promotion_removes_it():
    with strandline.open("memory://", upkeep=False) as store:
        both = store.pipeline("shop", ORDERS + NOTES, settings=SETTINGS, engine=arrow_engine)
        _sealed(both, 2)
        # Whoever sealed it dies here; the program that goes on has no such endpoint.
        less = store.pipeline("shop", ORDERS, settings=SETTINGS, engine=arrow_engine)
        assert less.promote() == 2
        newest, *_ = less.history()
        assert (newest.t, newest.epoch) == (2, 1), "under the program that it was sealed under"
        assert set(newest.inputs) == {"notes", "orders"}
        assert newest.inputs["notes"] == 10
        assert newest.rows == 20, "they are counted with the others"
        with store.shard("shop.notes").snapshot(as_of=2) as snapshot:
            held = snapshot.to_arrow().num_rows
        with store.shard("shop.notes").snapshot(as_of=1) as snapshot:
            assert held > snapshot.to_arrow().num_rows, "they are in the table, at their time"
        ended = less.run(until_idle=True)
        assert ended.committed.time == less.committed.time > 3
        assert all("notes" not in each.inputs for each in less.history() if each.t > 2)
        standing = Journal(store.env, "shop").refresh()
        assert standing.endpoints == {"notes": "removed", "orders": "live"}
        assert standing.positions["notes"] == {"0": 30}
        with pytest.raises(NotFoundError):
            less.table("notes")


def test_s91_who_waits_for_a_commit_is_told_of_it_although_the_table_is_gone():
    with strandline.open("memory://", upkeep=False) as store:
        both = store.pipeline("shop", ORDERS + NOTES, settings=SETTINGS, engine=arrow_engine)
        both.run(until_idle=True)
        before = both.committed.time
        work = both.transaction()
        work.insert("notes", [{"id": 900 + each, "customer": 1} for each in range(3)])
        Handles(store.env, "shop").freeze(work.id, commit=True)
        _sealed(both, before)
        less = store.pipeline("shop", ORDERS, settings=SETTINGS, engine=arrow_engine)
        assert less.promote() == 2
        assert work.commit(timeout_ms=10_000) == before
        newest, *_ = less.history()
        assert (newest.t, newest.rows) == (before, 3)
        with store.shard("shop.notes").snapshot(as_of=before) as snapshot:
            ids = set(snapshot.to_arrow()["id"].to_pylist())
        assert {900, 901, 902} <= ids
