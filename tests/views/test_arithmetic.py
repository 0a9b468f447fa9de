"""Numbers as Spark's ANSI mode computes them; tests/spark compares with Spark itself."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.errors import UsageError
from strandline.views.arithmetic import Raised, binary, bounded, compared, fitted, wider

D = pa.decimal128


@pytest.mark.parametrize(
    ("op", "one", "other", "kind"),
    [
        ("+", D(12, 2), D(10, 4), D(15, 4)),
        ("*", D(12, 2), D(10, 4), D(23, 6)),
        ("/", D(12, 2), D(10, 4), D(27, 13)),
        ("%", D(12, 2), D(10, 4), D(10, 4)),
        ("*", D(38, 10), D(38, 10), D(38, 6)),
        ("+", pa.int32(), D(5, 2), D(13, 2)),
        ("+", pa.int8(), pa.int64(), pa.int64()),
        ("/", pa.int8(), pa.int64(), pa.float64()),
        ("-", pa.float64(), D(5, 2), pa.float64()),
    ],
)
def test_results_have_sparks_types(op, one, other, kind):
    assert binary(op, one, other)[0] == kind


@pytest.mark.parametrize(
    ("op", "kind", "one", "other"),
    [
        ("+", pa.int8(), 127, 1),
        ("*", pa.int64(), 2**62, 2),
        ("-", pa.int32(), -(2**31), 1),
        ("/", pa.int32(), 1, 0),
        ("%", pa.int32(), 1, 0),
        ("div", pa.int64(), -(2**63), -1),
        ("/", pa.float64(), 1.0, 0.0),
        ("%", D(5, 2), Decimal(1), Decimal(0)),
        ("*", D(38, 0), Decimal(10**30), Decimal(10**30)),
    ],
)
def test_what_has_no_result_raises(op, kind, one, other):
    with pytest.raises(Raised):
        binary(op, kind, kind)[1](one, other)


def test_quotients_and_remainders_go_towards_zero():
    div, rest = binary("div", pa.int64(), pa.int64())[1], binary("%", pa.int64(), pa.int64())[1]
    assert [div(-7, 2), div(7, -2), rest(-7, 2), rest(7, -2)] == [-3, -3, -1, 1]


def test_decimals_are_rounded_half_up():
    assert fitted(Decimal("2.345"), D(5, 2)) == Decimal("2.35")
    assert fitted(Decimal("-2.345"), D(5, 2)) == Decimal("-2.35")
    assert bounded(50, 20) == D(38, 8)


def test_nan_is_equal_to_itself_and_the_greatest():
    assert compared(math.nan, math.nan) == 0
    assert compared(math.nan, math.inf) == 1
    assert compared(-0.0, 0.0) == 0


def test_types_without_a_common_one_are_refused():
    assert wider(pa.null(), pa.string()) == pa.string()
    for one, other in [(pa.string(), pa.int32()), (D(38, 0), D(38, 38)), (pa.bool_(), pa.int8())]:
        with pytest.raises(UsageError, match="no common type"):
            wider(one, other)
