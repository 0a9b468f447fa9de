"""A small part of SQL over Arrow tables; tests/spark compares with Spark itself."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import UsageError
from strandline.views.answer import answer, changes_of
from strandline.views.arithmetic import Raised
from strandline.views.parse import parse

T = pa.table({"k": pa.array([1, 2, 3], pa.int32()), "v": ["a", None, "c"]})
U = pa.table({"k": pa.array([10], pa.int64())})
TABLES = {"t": T, "u": U}


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT * FROM t WHERE v IS NULL", [(2, None)]),
        ("SELECT T.K + 1 AS n FROM T WHERE k > 2", [(4,)]),
        ("SELECT n FROM (SELECT k * 2 AS n FROM t) WHERE n > 4", [(6,)]),
        ("WITH w (x) AS (SELECT k FROM u) SELECT x FROM w", [(10,)]),
        ("SELECT k FROM t WHERE k = 1 UNION ALL SELECT k FROM u", [(1,), (10,)]),
        ("SELECT COUNT(*) AS n FROM t WHERE k > 9", [(0,)]),
    ],
)
def test_answers(sql, rows):
    assert [tuple(row.values()) for row in answer(sql, TABLES).to_pylist()] == rows


def test_a_union_has_the_widest_type():
    assert answer("SELECT k FROM t UNION ALL SELECT k FROM u", TABLES).schema.types == [pa.int64()]


def test_an_empty_collection_still_has_types():
    empty = {"t": T.slice(0, 0)}
    found = answer("SELECT k / 2 AS h, v FROM t", empty).schema
    assert found.types == [pa.float64(), pa.string()]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT t.k FROM t JOIN u ON t.k = u.k",
        "SELECT k FROM t ORDER BY k",
        "SELECT DISTINCT k FROM t",
        "SELECT k FROM t UNION SELECT k FROM u",
        "SELECT k FROM nowhere",
        "SELECT 1 AS one",
    ],
)
def test_what_is_not_known_is_refused_and_never_guessed(sql):
    with pytest.raises(UsageError):
        answer(sql, TABLES)


def test_changes_of_a_linear_view_keep_their_diffs():
    program = parse(
        "CREATE TABLE t (k INT, v STRING) USING http;"
        "CREATE MATERIALIZED VIEW l AS SELECT k, 6 DIV k AS d FROM t WHERE k <> 9;"
        "CREATE MATERIALIZED VIEW f REFRESH FULL AS SELECT COUNT(*) AS n FROM t"
    )
    changes = T.append_column("_diff", pa.array([1, -1, 2]))
    assert changes_of(program.view("l"), {"t": changes}).to_pylist() == [
        {"k": 1, "d": 6, "_diff": 1},
        {"k": 2, "d": 3, "_diff": -1},
        {"k": 3, "d": 2, "_diff": 2},
    ]
    zero = changes.set_column(0, "k", pa.array([0, 1, 2], pa.int32()))
    with pytest.raises(Raised, match="division by zero"):
        changes_of(program.view("l"), {"t": zero})
    with pytest.raises(UsageError, match="computed in full"):
        changes_of(program.view("f"), {"t": changes})
