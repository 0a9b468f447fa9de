"""Values become columns exactly or not at all."""

import json
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.connectors.values import REFUSALS, Notation, column, python_type, unreadable

from .writing import EVERY, written

TEXT = Notation()


def made(text, kind, notation=TEXT):
    values = msgspec.json.decode(text, type=list[python_type(kind, notation)])
    found = column(values, kind, notation)
    found.validate(full=True)
    assert found.type == kind
    return found


@settings(deadline=None, max_examples=20)
@given(st.data())
@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_every_value_of_every_type_survives_json(kind, data):
    values = data.draw(st.lists(EVERY[kind] | st.none(), max_size=5))
    text = json.dumps([written(each) for each in values]).encode()
    found = made(text, kind)
    expected = pa.array(
        [list(v.items()) if isinstance(v, dict) and pa.types.is_map(kind) else v for v in values],
        kind,
    )
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.decimal128(5, 2), b'[12.5, "1.25", 1e1, 12.500]', ["12.50", "1.25", "10.00", "12.50"]),
        (pa.float64(), b"[1, 2.5]", [1.0, 2.5]),
        (pa.date32(), b'["2024-01-02", 1]', ["2024-01-02", "1970-01-02"]),
        (pa.time64("us"), b'["10:11:12.5", 5]', ["10:11:12.500000", "00:00:00.005000"]),
        (
            pa.timestamp("us", "UTC"),
            b"""["2024-01-02T03:04:05Z", "2024-01-02 03:04:05.000", "2024-01-02",
                "2024-01-02T03:04:05.5000000+02:00", 7]""",
            [
                "2024-01-02 03:04:05+00:00", "2024-01-02 03:04:05+00:00",
                "2024-01-02 00:00:00+00:00", "2024-01-02 01:04:05.500000+00:00",
                "1970-01-01 00:00:00.007000+00:00",
            ],
        ),
    ],
)  # fmt: skip
def test_the_same_value_may_be_written_in_several_ways(kind, text, expected):
    found = made(text, kind).to_pylist()
    assert found == expected or [str(each) for each in found] == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), "128"), (pa.int8(), "1.5"), (pa.int8(), '"1"'), (pa.uint8(), "-1"),
        (pa.int64(), "9223372036854775808"), (pa.int64(), "9" * 60), (pa.float32(), "1e39"),
        (pa.float16(), "65520"),
        (pa.float64(), "1e999"), (pa.float64(), '"nan"'), (pa.bool_(), "1"),
        (pa.decimal128(5, 2), "1.234"), (pa.decimal128(5, 2), "12345.6"),
        (pa.decimal128(5, 2), '"NaN"'), (pa.decimal128(5, 2), '"Infinity"'),
        (pa.decimal128(5, 2), "1e-999999999"), (pa.decimal128(5, 2), '"1E+999999999"'),
        (pa.decimal128(5, 2), '"sNaN"'), (pa.decimal256(60, 2), '"0.' + "0" * 9999 + '1"'),
        (pa.date32(), '"2024-13-01"'), (pa.date32(), "1e99"), (pa.date32(), "99999999999"),
        (pa.time32("ms"), '"10:11:12.0001"'), (pa.time32("ms"), "86400000"),
        (pa.time32("ms"), "-1"), (pa.time32("ms"), '"24:00:00"'), (pa.time32("ms"), '"x"'),
        (pa.timestamp("ms"), '"2024-01-01T00:00:00Z"'), (pa.timestamp("us"), '"yesterday"'),
        (pa.timestamp("us", "UTC"), '"2024-01-01T00:00:00.1234567Z"'),
        (pa.timestamp("us", "UTC"), "9223372036854775807"),
        (pa.duration("s"), '"PT0.5S"'), (pa.binary(), '"?"'), (pa.binary(2), '"YQ=="'),
        (pa.list_(pa.int8(), 2), "[1]"), (pa.list_(pa.int8()), "[300]"),
        (pa.struct([("a", pa.int8())]), '{"a": "x"}'), (pa.map_(pa.int8(), pa.int8()), '{"x": 1}'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(kind, text):
    with pytest.raises(REFUSALS):
        made(f"[{text}]".encode(), kind)


def test_numbers_of_another_unit_are_scaled_exactly():
    us = Notation(unit="us")
    assert made(b"[1500000]", pa.timestamp("ms"), us)[0].value == 1500
    assert made(b"[2]", pa.timestamp("ns"), us)[0].value == 2000
    with pytest.raises(ValueError, match="exactly"):
        made(b"[1500]", pa.timestamp("ms"), us)


@pytest.mark.parametrize(
    ("text", "expected"), [("MDk=", "123.45"), ("/w==", "-0.01"), ("", "0.00"), ("AA==", "0.00")]
)
def test_decimals_may_be_unscaled_bytes(text, expected):
    found = made(f'["{text}"]'.encode(), pa.decimal128(9, 2), Notation(decimals="base64"))
    assert found.to_pylist() == [Decimal(expected)]


def test_too_many_bytes_are_no_decimal():
    with pytest.raises(ValueError, match="too many"):
        column([b"\1" * 40], pa.decimal256(70, 2), Notation(decimals="base64"))


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.timestamp("us", "UTC"), -62_135_596_800_000, 253_402_300_799_999),
        (pa.timestamp("ms"), -62_135_596_800_000, 253_402_300_799_999),
        (pa.date32(), -719_162, 2_932_896),
    ],
)
def test_years_that_neither_spark_nor_python_has_are_refused(kind, first, last):
    made = column([first, None, last], kind, Notation())
    assert [made[0].as_py().year, made[2].as_py().year] == [1, 9999]
    for wrong in (first - 1, last + 1):
        with pytest.raises(ValueError, match="the years 1 to 9999"):
            column([wrong], kind, Notation())
    # A time in microseconds that is read as milliseconds.
    if kind != pa.date32():
        with pytest.raises(ValueError, match="see option numberUnit"):
            column([1_763_000_000_000_000], kind, Notation())


def test_what_nobody_could_read_again_is_found_in_typed_columns():
    texts = pa.array([b"ok", b"\xff", None, b"good"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 4, texts.buffers())
    inner = pa.StructArray.from_arrays([text], ["t"])
    early = pa.array([0, None, -(10**17), 10**18], pa.int64()).cast(pa.timestamp("us"))
    for found, places in (
        (text, [1]),
        (pa.chunked_array([text.slice(0, 1), text.slice(1)]), [1]),
        (inner, [1]),
        (early, [2, 3]),
        (pa.array([1, 2]), []),
        (pa.array(["a", None]), []),
        (pa.array([10**18]).cast(pa.timestamp("ns")), []),
    ):
        assert sorted(unreadable(found)) == places
