"""The layout of rows from sources."""

import pyarrow as pa
import pytest

from strandline.connectors.raw import HEADERS, RAW, is_raw, own_columns, raw_batch, typed_schema
from strandline.errors import SchemaError


def test_a_batch_of_bytes_has_the_raw_columns():
    batch = raw_batch([b"x", None], "p", [3, 5], keys=[None, b"k"], header=("h", b"v"))
    batch.validate(full=True)
    assert batch.schema == RAW
    assert batch.to_pylist() == [
        {
            "_key": None, "_value": b"x", "_partition": "p", "_offset": 3, "_timestamp": None,
            "_headers": [("h", b"v")],
        },
        {
            "_key": b"k", "_value": None, "_partition": "p", "_offset": 5, "_timestamp": None,
            "_headers": [("h", b"v")],
        },
    ]  # fmt: skip


def test_without_a_header_there_is_none():
    assert raw_batch([b"x"], "p", [0])[HEADERS].to_pylist() == [None]
    assert raw_batch([], "p", [], header=("h", b"v")).num_rows == 0


def test_typed_rows_have_their_columns_and_their_place():
    schema = typed_schema([pa.field("a", pa.int64())], pa.field("_delete", pa.bool_()))
    assert schema.names == ["a", "_partition", "_offset", "_delete"]
    assert [each.name for each in own_columns(schema)] == ["a"]
    assert (is_raw(schema), is_raw(RAW)) == (False, True)


def test_a_column_with_a_name_of_ours_is_refused():
    with pytest.raises(SchemaError, match="'_offset'"):
        typed_schema([pa.field("_offset", pa.int64())])
