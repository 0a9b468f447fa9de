"""Files of changes: what is written is read back, exactly, in both formats."""

from __future__ import annotations

import datetime as dt
import decimal
import io
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from strandline.connectors import change_files
from strandline.connectors.change_files import packed, read, unpacked, with_diff, write

D = decimal.Decimal
COLUMNS = pa.schema(
    [
        ("whole", pa.int64()),
        ("part", pa.float64()),
        ("exact", pa.decimal128(20, 3)),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("yes", pa.bool_()),
        ("many", pa.list_(pa.int64())),
        ("inside", pa.struct([("x", pa.decimal128(5, 1)), ("y", pa.string())])),
        ("by_name", pa.map_(pa.string(), pa.int64())),
    ]
)
ROWS = [
    [1, 0.5, D("1.234"), 'a"\n', b"\x00\xff", dt.date(2020, 1, 2),
     dt.datetime(2020, 1, 2, 3, 4, 5, 6, dt.UTC), True, [1, None], {"x": D("1.5"), "y": None},
     [("k", 1)]],
    [2**62, float("inf"), None, "é", None, None, None, False, [], None, []],
    [None, None, D("-0.001"), None, b"", dt.date(1, 1, 1), None, None, None, {"x": None, "y": "y"},
     None],
]  # fmt: skip


def changes() -> pa.Table:
    schema = with_diff(COLUMNS)
    rows = [dict(zip(schema.names, [*row, 1], strict=True)) for row in ROWS]
    return pa.Table.from_pylist(rows, schema=schema)


@pytest.mark.parametrize("kind", change_files.KINDS)
def test_what_is_written_is_read_back(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "part"
    with path.open("wb") as file:
        rows, rest = write(file, kind, changes().schema, iter(changes().to_batches()))
    assert (rows, rest) == (3, None)
    with path.open("rb") as file:
        found = pa.Table.from_batches(read(file, kind, changes().schema))
    assert found.equals(changes())


def test_readers_skip_no_rows_that_hold_nan(tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.float32())])
    columns = with_diff(pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", inner)]))
    values = [
        {"k": at, "x": x, "s": {"x": x}, "_diff": 1} for at, x in enumerate([1.0, float("nan")])
    ]
    with (tmp_path / "part").open("wb") as file:
        rows = pa.RecordBatch.from_pylist(values, schema=columns)
        write(file, "parquet", columns, iter([rows]))
    with duckdb.connect() as connection:
        for greater in ("x > 5", "s.x > 5"):
            asked = f"select k from read_parquet(?) where {greater}"
            assert connection.execute(asked, [str(tmp_path / "part")]).fetchall() == [(1,)]


@pytest.mark.parametrize("kind", change_files.KINDS)
def test_a_file_is_closed_when_it_is_large(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_files, "ROWS_MAX", 2)
    left = iter(changes().to_batches(max_chunksize=1))
    rows, rest = write(io.BytesIO(), kind, changes().schema, left)
    assert rows == 2
    assert rest is not None
    rows, rest = write(io.BytesIO(), kind, changes().schema, rest)
    assert (rows, rest) == (1, None)


def test_a_schema_survives_as_text() -> None:
    assert unpacked(packed(changes().schema)).equals(changes().schema)
