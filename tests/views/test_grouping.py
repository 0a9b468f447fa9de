"""GROUP BY with SUM, COUNT, MIN and MAX; tests/spark compares with Spark itself."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.errors import UsageError
from strandline.views.answer import answer
from strandline.views.arithmetic import Raised

T = pa.table(
    {
        "g": ["a", "b", "a", None, None],
        "n": pa.array([1, None, 3, 4, 5], pa.int64()),
        "d": pa.array(
            [Decimal("0.10"), Decimal(2), Decimal("0.20"), None, None], pa.decimal128(5, 2)
        ),
    }
)


def rows(sql):
    return [tuple(row.values()) for row in answer(sql, {"t": T}).to_pylist()]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT g, SUM(n) AS s FROM t GROUP BY g", [("a", 4), ("b", None), (None, 9)]),
        ("SELECT COUNT(*) AS c, COUNT(n) AS n, COUNT(DISTINCT g) AS g FROM t", [(5, 4, 2)]),
        ("SELECT MIN(n) AS lo, MAX(n) + 1 AS hi FROM t", [(1, 6)]),
        ("SELECT SUM(d) AS s FROM t", [(Decimal("2.30"),)]),
        ("SELECT SUM(n) AS s, COUNT(*) AS c FROM t WHERE n > 9", [(None, 0)]),
        ("SELECT g FROM t WHERE n > 9 GROUP BY g", []),
        ("SELECT n % 2 AS odd, COUNT(*) AS c FROM t WHERE n > 0 GROUP BY n % 2", [(1, 3), (0, 1)]),
        ("SELECT n % 2 AS odd, COUNT(*) AS c FROM t WHERE n > 0 GROUP BY odd", [(1, 3), (0, 1)]),
        ("SELECT T.G AS x FROM t GROUP BY 1 HAVING COUNT(*) > 1", [("a",), (None,)]),
    ],
)
def test_groups(sql, found):
    assert rows(sql) == found


def test_sums_are_as_wide_as_sparks():
    types = answer("SELECT SUM(n) AS n, SUM(d) AS d FROM t", {"t": T}).schema.types
    assert types == [pa.int64(), pa.decimal128(15, 2)]


def test_a_sum_that_overflows_raises():
    wide = pa.table({"n": pa.array([2**63 - 1, 1], pa.int64())})
    with pytest.raises(Raised, match="overflows"):
        answer("SELECT SUM(n) AS s FROM t", {"t": wide})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT AVG(n) AS a FROM t",
        "SELECT g FROM t GROUP BY CUBE (g)",
        "SELECT COUNT(g, n) AS c FROM t",
        "SELECT SUM(g) AS s FROM t",
        "SELECT n, COUNT(*) AS c FROM t GROUP BY g",
    ],
)
def test_what_is_not_known_is_refused(sql):
    with pytest.raises(UsageError):
        rows(sql)
