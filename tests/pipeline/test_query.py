"""A query depends on every view below it, so one that raised anywhere has no answer."""

from __future__ import annotations

import pytest

from strandline.pipeline.query import Library
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
    assert Library(None, None, PROGRAM, None)._views_of(reads) == views
