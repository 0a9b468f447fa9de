"""Types of columns, and rows as COPY takes them: exact, escaped, or refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.connectors import postgres_columns
from strandline.connectors.postgres_columns import columns_of, copied, read
from strandline.errors import SinkStoppedError

DIFF = pa.field("_diff", pa.int64(), nullable=False)


def text(kind: pa.DataType, *values: object) -> list[str]:
    """What COPY gets for each value."""
    schema = pa.schema([("c", kind), DIFF])
    arrays = [pa.array(values, kind), pa.array([1] * len(values))]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    whole = b"".join(bytes(each) for each in copied(batch, columns_of(schema)[:1], "_diff"))
    lines = whole.decode().splitlines()
    assert all(each.endswith("\t1") for each in lines)
    return [each.removesuffix("\t1") for each in lines]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.bool_(), "boolean"),
        (pa.int8(), "smallint"),
        (pa.uint8(), "smallint"),
        (pa.uint16(), "integer"),
        (pa.int32(), "integer"),
        (pa.uint32(), "bigint"),
        (pa.int64(), "bigint"),
        (pa.uint64(), "numeric(20,0)"),
        (pa.float16(), "real"),
        (pa.float32(), "real"),
        (pa.float64(), "double precision"),
        (pa.decimal128(12, 2), "numeric(12,2)"),
        (pa.decimal128(5, -3), "numeric(8,0)"),
        (pa.decimal256(76, 10), "numeric(76,10)"),
        (pa.string(), "text"),
        (pa.large_string(), "text"),
        (pa.binary(), "bytea"),
        (pa.binary(4), "bytea"),
        (pa.date32(), "date"),
        (pa.time32("ms"), "time without time zone"),
        (pa.timestamp("us"), "timestamp without time zone"),
        (pa.timestamp("ms", "Europe/Berlin"), "timestamp with time zone"),
        (pa.duration("ms"), "interval"),
        (pa.list_(pa.int64()), "jsonb"),
        (pa.struct([("a", pa.int64())]), "jsonb"),
        (pa.map_(pa.string(), pa.int64()), "jsonb"),
    ],
)
def test_each_type_has_its_place(kind: pa.DataType, wanted: str) -> None:
    (column,) = columns_of(pa.schema([("c", kind)]))
    assert column.type == wanted


def test_what_has_no_place_is_refused_by_name() -> None:
    with pytest.raises(SinkStoppedError, match=r"'c' is of type null"):
        columns_of(pa.schema([("c", pa.null())]))
    with pytest.raises(SinkStoppedError, match="more than 63 bytes"):
        columns_of(pa.schema([("é" * 32, pa.int64())]))


def test_values_are_words_that_postgresql_reads() -> None:
    assert text(pa.float64(), 0.1, float("nan"), float("-inf"), None) == [
        "0.1",
        "nan",
        "-inf",
        "\\N",
    ]
    assert text(pa.string(), "a\tb", "c\nd\r\\", "", None, "\\N") == [
        "a\\tb",
        "c\\nd\\r\\\\",
        "",
        "\\N",
        "\\\\N",
    ]
    assert text(pa.binary(), b"\x00\xff", b"", None) == ["\\\\x00ff", "\\\\x", "\\N"]
    assert text(pa.duration("ms"), dt.timedelta(seconds=-1), None) == [
        "-1000000 microseconds",
        "\\N",
    ]
    moment = dt.datetime(2024, 7, 1, 12, 0, tzinfo=dt.UTC)
    assert text(pa.timestamp("ms", "Europe/Berlin"), moment) == ["2024-07-01 12:00:00.000000Z"]
    assert text(pa.list_(pa.decimal128(4, 1)), [Decimal("1.5"), None], None) == [
        '["1.5",null]',
        "\\N",
    ]
    assert text(pa.float16(), 0.1) == ["0.099975586"]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.timestamp("ns"), 1, "can't hold exactly"),
        (pa.time64("ns"), 1, "can't hold exactly"),
        (pa.duration("ns"), 1, "can't hold exactly"),
        (pa.string(), "a\x00", "text with a NUL"),
    ],
)
def test_a_value_that_would_change_is_refused_by_column(
    kind: pa.DataType, value: object, reason: str
) -> None:
    with pytest.raises(SinkStoppedError, match=f"column 'c' has a .*{reason}"):
        text(kind, value)


def test_a_batch_of_long_rows_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_columns, "PIECE_BYTES", 1_000)
    schema = pa.schema([("c", pa.string()), DIFF])
    arrays = [pa.array(["x" * 300] * 10), pa.array([1] * 10)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema).slice(1)
    pieces = [bytes(each) for each in copied(batch, columns_of(schema)[:1], "_diff")]
    assert len(pieces) == 3
    assert b"".join(pieces) == (b"x" * 300 + b"\t1\n") * 9


def test_what_a_query_gave_is_arrow_again() -> None:
    assert (
        read([0.1, None], pa.float32()).to_pylist()
        == pa.array([0.1, None], pa.float32()).to_pylist()
    )
    kind = pa.struct([("day", pa.date32()), ("n", pa.list_(pa.int64()))])
    found = read(['{"day": "2024-01-02", "n": [1, null]}', None], kind)
    assert found.to_pylist() == [{"day": dt.date(2024, 1, 2), "n": [1, None]}, None]
