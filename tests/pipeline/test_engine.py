"""The port of engines: an engine is made when it is first needed, and closed with its pipeline."""

from __future__ import annotations

from dataclasses import replace

import strandline
from strandline.testing.engines import arrow_engine

TEXT = "CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING http;"


def test_whoever_only_looks_needs_none():
    made, closed = [], []

    def engine(store):
        made.append(store)
        return replace(arrow_engine(store), close=lambda: closed.append(store))

    with strandline.open("memory://") as store:
        with store.pipeline("p", TEXT, engine=arrow_engine) as runs:
            runs.run(until_idle=True)
        with store.pipeline("p", engine=engine) as looks:
            looks.status()
            looks.history()
            looks.transaction().abort()
            looks.table("t")
            assert made == []
            with looks.transaction() as transaction:
                transaction.insert("t", [{"k": 1}])
            looks.query("SELECT k FROM t")
            assert made == [store]
            assert closed == []
        assert closed == [store]
