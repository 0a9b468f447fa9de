"""Bounds of columns: sound, small, and ignored when they can't be understood."""

import datetime as dt
import decimal
import math

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from strandline.parts.stats import (
    BOUND_BYTES,
    Range,
    bounds_array,
    decode_stats,
    encode_stats,
    kind_of,
    measure,
    rules_out,
    stored_bounds,
)

NAN = math.nan


def range_of(column: pa.Array) -> Range:
    return measure([(1, column)], len(column)).ranges[1]


@pytest.mark.parametrize(
    ("column", "known"),
    [
        (pa.array([3, None, 1], pa.int8()), Range("i", 1, 3, 1)),
        (pa.array([2**64 - 1, 0], pa.uint64()), Range("i", 0, 2**64 - 1, 0)),
        (pa.array([True, False]), Range("b", False, True, 0)),
        (pa.array([1.5, NAN, None]), Range("f", 1.5, 1.5, 1, True)),
        (pa.array([NAN, NAN]), Range("f", None, None, 0, True)),
        (pa.array([1.0, 2.0], pa.float16()), Range("f", 1.0, 2.0, 0)),
        (pa.array(["b", "a"]), Range("s", b"a", b"b", 0)),
        (pa.array([b"", b"\xff"]), Range("y", b"", b"\xff", 0)),
        (pa.array([b"ab"], pa.binary(2)), Range("y", b"ab", b"ab", 0)),
        (pa.array([1, 2], pa.timestamp("us", "UTC")), Range("t:us", 1, 2, 0)),
        (pa.array([1, 2], pa.date32()), Range("d:D", 1, 2, 0)),
        (pa.array([1, 2], pa.time64("ns")), Range("o:ns", 1, 2, 0)),
        (pa.array([1, 2], pa.duration("ms")), Range("u:ms", 1, 2, 0)),
        (
            pa.array([decimal.Decimal("-1.50")], pa.decimal128(9, 2)),
            Range("n", b"-1.50", b"-1.50", 0),
        ),
        (pa.array([None, None], pa.string()), Range("s", None, None, 2)),
    ],
)
def test_bounds_of_every_type_are_kept_and_come_back(column: pa.Array, known: Range):
    assert range_of(column) == known
    encoded = encode_stats(measure([(7, column)], len(column)))
    decoded = decode_stats(encoded)
    assert decoded is not None
    assert decoded.ranges == {7: known}
    assert decoded.rows == len(column)
    typed = bounds_array([known.low, known.high, None], known.kind, column.type)
    assert typed.type == column.type
    assert stored_bounds(typed) == [known.low, known.high, None]


@pytest.mark.parametrize(
    "column",
    [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([[("a", 1)]], pa.map_("string", "int8"))],
)
def test_nested_columns_have_no_statistics(column: pa.Array):
    assert kind_of(column.type) is None
    assert encode_stats(measure([(1, column)], 1)) == b""


@given(st.lists(st.text(max_size=80), min_size=1))
def test_text_bounds_are_short_and_bound(texts: list[str]):
    known = range_of(pa.array(texts, pa.string()))
    raw = [text.encode() for text in texts]
    assert isinstance(known.low, bytes)
    assert len(known.low) <= BOUND_BYTES
    assert known.low <= min(raw)
    known.low.decode()
    if known.high is not None:
        assert isinstance(known.high, bytes)
        assert len(known.high) <= BOUND_BYTES + 4
        assert known.high >= max(raw)
        known.high.decode()
    if known.low == known.high:
        assert set(raw) == {known.low}


@given(st.lists(st.binary(max_size=80), min_size=1))
def test_binary_bounds_are_short_and_bound(values: list[bytes]):
    known = range_of(pa.array(values, pa.binary()))
    assert isinstance(known.low, bytes)
    assert known.low <= min(values)
    if known.high is not None:
        assert isinstance(known.high, bytes)
        assert known.high >= max(values)
    if known.low == known.high:
        assert set(values) == {known.low}


@pytest.mark.parametrize(
    ("text", "high"),
    [
        ("a" * 33, "a" * 31 + "b"),
        ("\ud7ff" * 11, "\ud7ff" * 9 + "\ue000"),
        ("\U0010ffff" * 9, None),
        ("a" + "\U0010ffff" * 9, "b"),
        ("a" * 31 + "é" + "z", "a" * 30 + "b"),
    ],
)
def test_a_long_maximum_is_rounded_up_or_left_out(text: str, high: str | None):
    expected = None if high is None else high.encode()
    assert range_of(pa.array([text])).high == expected


def test_a_long_binary_maximum_of_all_ones_is_left_out():
    assert range_of(pa.array([b"\xff" * 40])).high is None


def test_bounds_follow_a_column_that_was_widened():
    assert bounds_array([1, None], "i", pa.int64()).to_pylist() == [1, None]
    assert bounds_array([b"x"], "s", pa.large_string()).to_pylist() == ["x"]
    seconds = bounds_array([5], "t:s", pa.timestamp("ns", "Europe/Oslo"))
    assert seconds[0].as_py().timestamp() == 5
    money = bounds_array([b"1.50"], "n", pa.decimal128(30, 2))
    assert money.to_pylist() == [decimal.Decimal("1.50")]
    assert bounds_array([1], "d:D", pa.date32()).to_pylist() == [dt.date(1970, 1, 2)]


@pytest.mark.parametrize(
    ("bounds", "kind", "target", "expected"),
    [
        ([1, 300, None], "i", pa.int8(), [1, None, None]),
        ([b"1.555", b"2.00"], "n", pa.decimal128(9, 2), [None, decimal.Decimal("2.00")]),
        ([2**62, 5], "t:s", pa.timestamp("ns"), [None, dt.datetime(1970, 1, 1, 0, 0, 5)]),  # noqa: DTZ001
        ([b"\xff"], "s", pa.string(), [None]),
        ([1], "q:us", pa.timestamp("us"), [None]),
        ([b"x"], "n", pa.decimal128(9, 2), [None]),
    ],
)
def test_bounds_that_can_not_be_expressed_bound_nothing(
    bounds: list[object], kind: str, target: pa.DataType, expected: list[object]
):
    found = bounds_array(bounds, kind, target)
    assert found.type == target
    assert [v.as_py() if v.is_valid else None for v in found] == expected


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\xc1",
        b"nonsense",
        msgspec.msgpack.encode([2, 5, {1: ["i", 1, 2, 0, False]}]),
        msgspec.msgpack.encode([1, 5]),
        msgspec.msgpack.encode([1, 5, {1: ["i", {}, 2, 0, False]}]),
        msgspec.msgpack.encode({"version": 1}),
    ],
)
def test_statistics_that_can_not_be_decoded_are_none(encoded: bytes):
    assert decode_stats(encoded) is None


def test_every_cut_and_flip_of_encoded_statistics_is_harmless():
    whole = encode_stats(measure([(1, pa.array([1, 2])), (2, pa.array(["a", "b"]))], 2))
    for at in range(len(whole)):
        decode_stats(whole[:at])
        for bit in range(8):
            decode_stats(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])


@pytest.mark.parametrize(
    ("said", "found", "out"),
    [
        (Range("i", 1, 9, 0), Range("i", 1, 9, 0), False),
        (Range("i", 0, 10, 0), Range("i", 1, 9, 0), False),
        (Range("i", 2, 9, 0), Range("i", 1, 9, 0), True),
        (Range("i", 1, 8, 0), Range("i", 1, 9, 0), True),
        (Range("i", None, None, None), Range("i", 1, 9, 3), False),
        (Range("i", 1, 9, 0), Range("i", 1, 9, 3), True),
        (Range("f", 1.0, 2.0, 0), Range("f", 1.0, 2.0, 0, True), True),
        (Range("n", b"9", b"10", 0), Range("n", b"9.5", b"10.00", 0), False),
        (Range("n", b"9", b"10", 0), Range("n", b"8", b"10", 0), True),
        (Range("s", b"a", b"b", 0), Range("s", b"a", None, 0), True),
        (Range("i", 5, 5, 0), Range("s", b"a", b"b", 0), False),
    ],
)
def test_bounds_rule_out_exactly_what_lies_outside_of_them(said, found, out):
    assert rules_out(said, found) is out
