"""One SQL expression as a function over rows; tests/spark compares with Spark itself."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import UsageError
from strandline.views.arithmetic import Raised
from strandline.views.expression import compile_expression
from strandline.views.sqltext import parse_expression

TYPES = {
    "a": pa.int32(),
    "b": pa.bool_(),
    "s": pa.string(),
    "p": pa.struct([("X", pa.int32()), ("q", pa.struct([("y", pa.int32())]))]),
}
ROW = {"a": 3, "b": None, "s": "x", "p": {"X": 7, "q": {"y": 8}}}


def value(text, **changes):
    return compile_expression(parse_expression(text), TYPES).run({**ROW, **changes})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A + 1", 4),
        ("t.a", 3),
        ("p.x + t.p.q.y", 15),
        ("b AND FALSE", False),
        ("b AND TRUE", None),
        ("b OR TRUE", True),
        ("NOT b", None),
        ("b IS NULL", True),
        ("b IS NOT NULL", False),
        ("b IS NOT TRUE", True),
        ("a IN (1, NULL)", None),
        ("a IN (3, NULL)", True),
        ("a NOT IN (1, 2)", True),
        ("b <=> NULL", True),
        ("a BETWEEN 3 AND 5", True),
        ("CASE a WHEN 3 THEN 'three' END", "three"),
        ("CASE WHEN b THEN 1 ELSE 2 END", 2),
        ("IF(a = 3, 1, 1 / 0)", 1.0),
        ("COALESCE(b, a > 2)", True),
        ("NULLIF(a, 3)", None),
        ("CAST(a AS STRING)", "3"),
        ("a <> 0 AND 6 / a = 2", True),
    ],
)
def test_values(text, found):
    assert value(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "a / 0",
        "a + 2147483647",
        "CAST(s AS INT)",
        "-(a - 2147483647 - 4 + 2147483647 - 2147483647)",
    ],
)
def test_a_row_that_raises(text):
    with pytest.raises(Raised):
        value(text)


@pytest.mark.parametrize(
    "text",
    [
        *("z", "UPPER(s)", "s + 1", "s = 1", "p.z", "a.b", "NOT a", "TRY_CAST(s AS INT)"),
        *("NULL + 1", "CAST(3000000000 AS INT) IS NULL"),
    ],
)
def test_what_is_not_known_is_refused_and_never_guessed(text):
    with pytest.raises(UsageError):
        value(text)


def test_null_in_a_condition_computes_nothing():
    assert value("6 / a = 2", a=None) is None
