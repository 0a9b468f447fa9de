"""Columns as JSON: what a table with `format 'json'` reads is what was written, exactly."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from strandline.connectors import json_text
from strandline.connectors.incoming import decode
from strandline.connectors.json_text import objects, texts
from strandline.connectors.raw import raw_batch
from strandline.connectors.reading import reading
from strandline.errors import SinkStoppedError

D = decimal.Decimal
EASY = [
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-128, 127, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    (pa.uint64(), [2**64 - 1, 0, None]),
    (pa.float64(), [0.1, -0.0, 1e300, 5e-324, 1.0, None]),
    (pa.float64(), [math.inf, -math.inf, 1.5, None]),
    (pa.float16(), [math.inf, 0.5]),
    (pa.float32(), [3.4028234663852886e38, 0.5, None]),
    (pa.string(), ['a"\\\n\x00\x1f\x7f\u2028é😀', "", None]),
    (pa.large_string(), ["x"]),
    (pa.binary(), [b"\x00\xff", b"", None]),
    (pa.decimal128(38, 3), [D("99999999999999999999999999999999999.999"), D("-0.010"), None]),
    (pa.decimal128(20, 10), [D("0.0000000001"), D("1234567890")]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    (pa.time64("us"), [dt.time(23, 59, 59, 999_999), dt.time(0), None]),
    (pa.time32("s"), [dt.time(1, 2, 3)]),
    (pa.timestamp("us"), [-62_135_596_800_000_000, 253_402_300_799_999_999, None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 2, 3, 4, 5, 6, dt.UTC), None]),
    (pa.timestamp("ns"), [-1, 1_700_000_000_123_456_789]),
    (pa.timestamp("ms", "Europe/Berlin"), [1_700_000_000_123, -1]),
    # Its clocks were 53 minutes and 28 seconds ahead.
    (pa.timestamp("us", "Europe/Berlin"), [dt.datetime(1893, 1, 1, tzinfo=dt.UTC)]),
    (pa.timestamp("us", "+05:30"), [0, None]),
    (pa.list_(pa.int64()), [[1, None], [], None]),
    (pa.struct([("x", pa.decimal128(5, 1)), ("y", pa.string())]), [{"x": D("1.5"), "y": None}]),
]
ROW_BY_ROW = [
    (pa.map_(pa.string(), pa.int64()), [[("k", 1)], [], None]),
    (pa.list_(pa.float64()), [[1.5, math.inf]]),
    (pa.struct([("x", pa.binary())]), [{"x": b"\xff"}]),
    (pa.list_(pa.timestamp("us", "Europe/Berlin")), [[dt.datetime(1893, 1, 1, tzinfo=dt.UTC)]]),
    (pa.list_(pa.time64("ns")), [[1_000], None]),
    (pa.duration("ns"), [1_000]),
    (pa.duration("us"), [dt.timedelta(days=-1, microseconds=1), None]),
]


def read_back(column: pa.Array) -> pa.ChunkedArray:
    rows = pa.table({"a": column})
    values = objects(rows, ["a"]).to_list()
    for each in values:
        json.loads(each)
    how = reading(rows.schema, (), {})
    found = decode(raw_batch([each.encode() for each in values], "p", range(len(values))), how)
    wrong = found.table["_error"].drop_null().to_pylist()
    assert not wrong
    return found.rows(how)["a"]


@pytest.mark.parametrize(("kind", "values"), EASY + ROW_BY_ROW, ids=lambda each: str(each)[:30])
def test_what_is_written_is_read_back(kind: pa.DataType, values: list[object]) -> None:
    column = pa.array(values, kind)
    assert read_back(column).combine_chunks().equals(column)


@pytest.mark.parametrize(("kind", "values"), EASY, ids=lambda each: str(each)[:30])
def test_usual_types_are_written_column_by_column(
    kind: pa.DataType, values: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def row_by_row(_: pa.Table) -> None:
        raise AssertionError("row by row")

    monkeypatch.setattr(json_text, "_row_by_row", row_by_row)
    objects(pa.table({"a": pa.array(values, kind)}), ["a"])


def test_what_is_no_number_keeps_its_name() -> None:
    rows = pa.table({"a": pa.array([math.nan, 1.0])})
    assert objects(rows, ["a"]).to_list() == ['{"a":"NaN"}', '{"a":1.0}']


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()], ids=str)
def test_a_rows_text_does_not_depend_on_other_rows(kind: pa.DataType) -> None:
    """Texts are keys: of one that is written in two ways both stay."""
    rows = pa.table({"a": pa.array([0.1, 1e4, None], kind), 'b"': ["x", None, "y"]})
    beside = pa.table({"a": pa.array([math.nan], kind), 'b"': [None]}, rows.schema)
    whole = objects(pa.concat_tables([rows, beside]), rows.column_names).to_list()
    assert whole == [*objects(rows, rows.column_names), '{"a":"NaN","b\\"":null}']


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("ns"), pa.duration("ns")], ids=str)
def test_nanoseconds_are_never_cut_off(kind: pa.DataType) -> None:
    inside = pa.array([[1]], pa.list_(pa.int64())).cast(pa.list_(kind))
    with pytest.raises(SinkStoppedError, match="column 'a' has a value that JSON can't hold"):
        objects(pa.table({"a": inside}), ["a"])


def test_columns_are_chosen_and_their_order_is_kept() -> None:
    rows = pa.table({"a": [1], "b": ["x"], 'c"d': [None]})
    assert objects(rows, ["b", "a"]).to_list() == ['{"b":"x","a":1}']
    assert json.loads(objects(rows, ['c"d'])[0]) == {'c"d': None}
    assert objects(rows, []).to_list() == ["{}"]


def test_both_ways_of_writing_mean_the_same() -> None:
    rows = pa.table({"a": [1, None], "t": pa.array([0, 1], pa.timestamp("us")), "b": [b"x", None]})
    fast, slow = objects(rows, rows.column_names), json_text._row_by_row(rows)
    assert [json.loads(each) for each in fast] == [json.loads(each) for each in slow]


@given(st.lists(st.one_of(st.none(), st.text()), min_size=1))
def test_any_text_survives(values: list[str | None]) -> None:
    encodable = [None if v is None else v.encode("utf-8", "ignore").decode() for v in values]
    assert read_back(pa.array(encodable, pa.string())).to_pylist() == encodable


@pytest.mark.parametrize(
    ("column", "made"),
    [
        (pa.array(["é", None, '"']), ["é", None, '"']),
        (pa.array([1, None]), ["1", None]),
        (pa.array([dt.date(2020, 1, 2)]), ["2020-01-02"]),
        (pa.array([b"\xff"]), ["/w=="]),
        (pa.array([True]), ["true"]),
    ],
)
def test_a_header_is_bare_text(column: pa.Array, made: list[str | None]) -> None:
    assert texts(pa.chunked_array([column])).to_list() == made
