"""Rows go as often as they were retracted, whatever their type; what stays is in order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.connectors.iceberg_rows import Retractions, stored_schema, stored_type

NAN = float("nan")
CASES = [
    (pa.int64(), [1, 2, 2, 2, None], [2, None], [2, 1], [1, 2]),
    (pa.float64(), [NAN, 0.0, -0.0, 1.5], [NAN, 0.0], [1, 1], [-0.0, 1.5]),
    (pa.string(), ["a", "a", "b"], ["a"], [5], ["b"]),
    (pa.list_(pa.int64()), [[1], [1, 2], None], [[1, 2]], [1], [[1], None]),
    (pa.timestamp("us", "UTC"), [1, 2], [2], [1], [1]),
    (pa.decimal256(40, 2), [1, 2], [2], [1], [1]),
    (pa.binary(2), [b"ab", b"cd"], [b"cd"], [1], [b"ab"]),
]


def changes(kind: pa.DataType, values: list, counts: list[int]) -> pa.Table:
    """Retractions of the values, and one insertion of each, which does not matter."""
    return pa.table(
        {
            "x": pa.array([*values, *values], kind),
            "_diff": [*(-n for n in counts), *(1 for _ in values)],
        }
    )


@pytest.mark.parametrize(("kind", "held", "gone", "counts", "stays"), CASES)
def test_what_stays(kind: pa.DataType, held: list, gone: list, counts: list, stays: list) -> None:
    retractions = Retractions(changes(kind, gone, counts))
    rows = pa.table({"x": pa.array(held, kind)})
    left = retractions.subtract(rows)
    assert left is not None
    assert str(left["x"].to_pylist()) == str(pa.array(stays, kind).to_pylist())
    assert retractions.left == sum(counts) - (len(held) - len(stays))


def test_they_are_looked_for_in_one_file_after_the_other() -> None:
    retractions = Retractions(changes(pa.int64(), [1], [3]))
    rows = pa.table({"x": [1, 1, 2]})
    for stays, left in (([2], 1), ([1, 2], 0)):
        found = retractions.subtract(rows)
        assert found is not None
        assert (found["x"].to_pylist(), retractions.left) == (stays, left)
    assert retractions.subtract(rows) is None


def test_a_file_that_holds_none_of_them_stays_as_it_is() -> None:
    assert Retractions(changes(pa.int64(), [9], [1])).subtract(pa.table({"x": [1]})) is None


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.timestamp("ms", "Europe/Paris"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.struct([("a", pa.list_(pa.uint8()))]), pa.struct([("a", pa.list_(pa.int32()))])),
        (pa.string(), pa.string()),
    ],
)
def test_types_as_iceberg_has_them(kind: pa.DataType, stored: pa.DataType) -> None:
    assert stored_type(kind) == stored


def test_every_column_may_be_null() -> None:
    assert stored_schema(pa.schema([pa.field("a", pa.int8(), nullable=False)])).field(0).nullable
