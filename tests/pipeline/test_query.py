"""A query depends on every view below it, so one that raised anywhere has no answer."""

from __future__ import annotations

import pytest

import strandline
from strandline.errors import BoundsError, ViewFailedError
from strandline.journal.checkpoint import Checkpoints
from strandline.pipeline.query import views_of
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine
from strandline.views.parse import parse

PROGRAM = parse(
    """
    CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING http;
    CREATE MATERIALIZED VIEW a AS SELECT k FROM t;
    CREATE MATERIALIZED VIEW b AS SELECT k FROM a;
    CREATE MATERIALIZED VIEW c AS SELECT k FROM b UNION ALL SELECT k FROM t;
    """
)


@pytest.mark.parametrize(
    ("reads", "views"),
    [(["t"], []), (["a"], ["a"]), (["C"], ["a", "b", "c"]), (["t", "b"], ["a", "b"])],
)
def test_views_below_views_count(reads, views):
    assert views_of(PROGRAM, reads) == views


TABLE = "CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING http;"
SETTINGS = PipelineSettings(rows_max=2, delay_ms=0, poll_ms=1)


def opened(store, *views):
    text = TABLE + "".join(f"CREATE MATERIALIZED VIEW {each};" for each in views)
    return store.pipeline("p", text, settings=SETTINGS, engine=arrow_engine)


def insert(pipeline, *rows):
    with pipeline.transaction() as transaction:
        transaction.insert("t", [{"id": key, "n": n} for key, n in rows])


def test_a_view_has_no_answer_before_it_was_built():
    base, above = "v AS SELECT id, n FROM t WHERE n > {}", "w AS SELECT id FROM v"
    with strandline.open("memory://", upkeep=False) as store:
        with opened(store, base.format(0), above) as pipeline:
            pipeline.run(until_idle=True)
            insert(pipeline, (1, 5))
            insert(pipeline, (2, 6))
            assert pipeline.query("SELECT * FROM v", as_of=0).num_rows == 1
        with opened(store, base.format(5), above) as pipeline:
            pipeline.promote()
            with pytest.raises(BoundsError, match=r"view v is what it is since 2.*not committed"):
                pipeline.query("SELECT * FROM v")
            pipeline.run(until_idle=True)
            for name in ("v", "w", "v_errors"):
                with pytest.raises(BoundsError, match="since 2, and has no answer as of 1"):
                    pipeline.query(f"SELECT * FROM {name}", as_of=1)
            assert pipeline.query("SELECT * FROM v", as_of=2).to_pylist() == [{"id": 2, "n": 6}]
            # Tables are what they were.
            assert pipeline.query("SELECT * FROM t", as_of=0).num_rows == 1


def test_whoever_opened_it_before_a_promotion_asks_what_was_promoted():
    with strandline.open("memory://", upkeep=False) as store:
        with opened(store) as pipeline:
            pipeline.run(until_idle=True)
        with store.pipeline("p", settings=SETTINGS, engine=arrow_engine) as early:
            assert early.program.views == ()
            with opened(store, "w AS SELECT id, 10 / n AS q FROM t") as pipeline:
                pipeline.promote()
                insert(pipeline, (1, 0), (2, 5))
            with pytest.raises(ViewFailedError, match="view w has no answer"):
                early.query("SELECT * FROM w")


def test_now_has_no_answer_once_its_instant_was_cut():
    with strandline.open("memory://", upkeep=False) as store, opened(store) as pipeline:
        pipeline.run(until_idle=True)
        for number in range(6):
            insert(pipeline, (number, number))
            pipeline.checkpoint()
        asked = "SELECT now() AS n FROM t WHERE id = 0"
        assert pipeline.query(asked, as_of=1)["n"][0].as_py().year > 2000
        Checkpoints(pipeline._journal).cut()
        with pytest.raises(BoundsError, match=r"when 1 was committed is not on record.*now\(\)"):
            pipeline.query(asked, as_of=1)
        assert pipeline.query("SELECT id FROM t", as_of=1).num_rows == 2
        assert pipeline.query(asked, as_of=5)["n"][0].as_py().year > 2000
