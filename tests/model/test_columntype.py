"""Types of columns: what is kept, what widens and what may be cast hang together."""

from __future__ import annotations

from itertools import permutations, product

import pyarrow as pa
import pytest

from strandline.errors import SchemaError
from strandline.model.columntype import (
    cast,
    castable,
    check_holdable,
    kept_type,
    key_refusal,
    widens,
)

FAMILIES = [
    [pa.bool_()],
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()],
    [pa.float16(), pa.float32(), pa.float64()],
    [pa.date32()],
    [pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
    [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")],
    [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")],
    [pa.duration("s"), pa.duration("ns")],
    [pa.decimal128(9, 2), pa.decimal128(38, 2), pa.decimal128(9, 3), pa.decimal256(60, 2)],
    [pa.string(), pa.large_string()],
    [pa.binary(), pa.large_binary(), pa.binary(3)],
    [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2)],
    [pa.list_(pa.string())],
    [pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int16())])],
    [pa.struct([("y", pa.int8())])],
    [pa.map_(pa.string(), pa.int8())],
]
KEPT = [kind for family in FAMILIES for kind in family]


@pytest.mark.parametrize("kind", KEPT, ids=str)
def test_a_type_that_is_kept_is_kept_as_itself(kind: pa.DataType):
    assert kept_type(kind) == kind


def test_widening_is_an_order_and_every_widening_is_a_cast_that_loses_nothing():
    for a, b in product(KEPT, repeat=2):
        if widens(a, b):
            assert castable(a, b)
            assert a == b or not widens(b, a)
            assert all(widens(a, c) for c in KEPT if widens(b, c))


def test_only_values_of_one_family_are_cast():
    for one, other in permutations(FAMILIES, 2):
        for a, b in product(one, other):
            assert not castable(a, b), f"{a} to {b}"


def test_every_cast_that_is_allowed_works_on_nothing_and_on_nulls():
    for a, b in product(KEPT, repeat=2):
        if castable(a, b):
            assert cast(pa.chunked_array([], a), b).type == b
            assert cast(pa.chunked_array([pa.nulls(2, a)]), b).null_count == 2
        else:
            with pytest.raises(SchemaError, match="cast it first"):
                cast(pa.chunked_array([], a), b)


@pytest.mark.parametrize("kind", KEPT, ids=str)
def test_a_key_is_made_of_values_that_are_equal_in_one_way_and_have_an_order(kind: pa.DataType):
    unfit = pa.types.is_floating(kind) or pa.types.is_nested(kind)
    assert (key_refusal(kind) is not None) == unfit


KEPT_AS = [
    (pa.dictionary(pa.int8(), pa.string_view()), pa.string()),
    (pa.run_end_encoded(pa.int32(), pa.int8()), pa.int8()),
    (pa.binary_view(), pa.binary()),
    (pa.list_(pa.string_view()), pa.list_(pa.string())),
    (pa.date64(), pa.date32()),
    (pa.time32("s"), pa.time32("ms")),
    (pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC")),
    (pa.decimal32(5, 1), pa.decimal128(5, 1)),
    (pa.decimal64(15, 1), pa.decimal128(15, 1)),
    (pa.list_(pa.field("element", pa.int8(), nullable=False)), pa.list_(pa.int8())),
    (pa.struct([pa.field("x", pa.date64(), nullable=False)]), pa.struct([("x", pa.date32())])),
]


@pytest.mark.parametrize(("declared", "kept"), KEPT_AS, ids=str)
def test_a_declared_type_is_kept_as_one_that_parquet_gives_back(
    declared: pa.DataType, kept: pa.DataType
):
    assert kept_type(declared) == kept
    assert castable(declared, kept)


UNHOLDABLE = [
    (pa.list_(pa.int32(), 0), "use a list without a fixed size"),
    (pa.binary(0), "use binary"),
    (pa.decimal128(5, -2), "between 0 and its precision"),
    (pa.decimal128(5, 10), "between 0 and its precision"),
    (pa.decimal256(60, -1), "between 0 and its precision"),
    (pa.decimal32(3, 4), "between 0 and its precision"),
]


@pytest.mark.parametrize(("kind", "advice"), UNHOLDABLE, ids=str)
def test_a_type_that_parquet_cannot_hold_is_refused_by_name_wherever_it_is(
    kind: pa.DataType, advice: str
):
    inside = [kind, pa.list_(kind), pa.struct([("x", kind)]), pa.map_(pa.string(), kind)]
    for each in inside:
        with pytest.raises(SchemaError, match=advice) as refused:
            check_holdable(each)
        assert str(kind) in str(refused.value)


@pytest.mark.parametrize("kind", [pa.decimal128(5, 0), pa.decimal128(5, 5), pa.binary(1)], ids=str)
def test_the_outermost_types_that_parquet_holds_are_kept(kind: pa.DataType):
    check_holdable(pa.list_(kind, 1))
    assert kept_type(kind) == kind
    assert kept_type(pa.list_(kind, 1)) == pa.list_(kind, 1)
