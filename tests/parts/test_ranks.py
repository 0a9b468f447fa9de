"""Values as whole numbers in the same order."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from strandline.errors import SchemaError, UsageError
from strandline.parts.ranks import ranks
from strandline.testing.reference import ordinal

NAN = float("nan")

# Values of every type that has an order, ascending.
ORDERS = [
    (pa.float64(), [None, -np.inf, -1.5, -0.0, 1e-300, 2.0, np.inf, NAN]),
    (pa.float16(), [None, np.float16(-2), np.float16(1), np.float16(NAN)]),
    (pa.uint64(), [None, 0, 2**64 - 1]),
    (pa.int64(), [None, -(2**63), 0, 2**63 - 1]),
    (pa.string(), [None, "", "Z", "a", "ä"]),
    (pa.binary(), [None, b"", b"\0", b"\xff"]),
    (pa.bool_(), [None, False, True]),
    (pa.decimal128(9, 2), [None, Decimal(-2), Decimal("1.10")]),
    (pa.decimal256(60, 0), [None, Decimal(-1), Decimal(10) ** 50]),
    (pa.timestamp("ns", "UTC"), [None, -1, 0, 1]),
    (pa.duration("us"), [None, -1, 1]),
    (pa.date32(), [None, -1, 1]),
    (pa.time64("us"), [None, 0, 1]),
    (pa.dictionary(pa.int8(), pa.string()), [None, "a", "b"]),
    (pa.string_view(), [None, "a", "b"]),
]


@pytest.mark.parametrize(("kind", "ascending"), ORDERS, ids=[str(kind) for kind, _ in ORDERS])
def test_every_type_that_has_an_order_is_ranked_by_it(kind, ascending):
    count = len(ascending)
    for at in (list(range(count)), list(range(count))[::-1], [0] * count, [count - 1] * count):
        values = [ascending[each] for each in at]
        column = pa.chunked_array([pa.array(values[:2], kind), pa.array(values[2:], kind)])
        found = ranks([column], count).tolist()
        assert [sorted(set(found)).index(each) for each in found] == [
            sorted(set(at)).index(each) for each in at
        ]


def test_both_zeros_and_all_kinds_of_nan_are_the_same():
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    values = pa.chunked_array([pa.array([0.0, -0.0, NAN, *odd.tolist()], from_pandas=False)])
    zero, other, *nans = ranks([values], 5).tolist()
    assert zero == other < nans[0]
    assert len(set(nans)) == 1


VALUE = st.sampled_from([None, -1.0, -0.0, 0.0, 0.5, NAN])


@given(st.lists(st.tuples(VALUE, VALUE, VALUE), max_size=12))
def test_the_first_column_that_differs_decides(rows):
    columns = [pa.chunked_array([pa.array(list(c), pa.float64())]) for c in zip(*rows, strict=True)]
    found = ranks(columns, len(rows)).tolist()
    assert all(0 <= each <= len(rows) for each in found)
    for one, mine in zip(rows, found, strict=True):
        for other, theirs in zip(rows, found, strict=True):
            before = [ordinal(x) for x in one] < [ordinal(x) for x in other]
            assert (mine < theirs) == before


def test_without_columns_all_rows_are_the_same():
    assert ranks([], 3).tolist() == [0, 0, 0]


def test_what_has_no_order_is_refused():
    with pytest.raises(UsageError, match="give its fields"):
        ranks([pa.chunked_array([pa.array([[1]])])], 1)
    with pytest.raises(SchemaError, match="column of nulls"):
        ranks([pa.chunked_array([pa.nulls(1)])], 1)
