"""Rows of a reload: chunks in order, of a bounded size, whatever they come from."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import SchemaError, UsageError
from strandline.pipeline import bringing as b
from strandline.views.parse import parse

TABLE = parse("CREATE TABLE t (id BIGINT, v STRING, PRIMARY KEY (id)) USING http;").tables[0]


def some(first, count):
    return pa.table({"id": range(first, first + count), "v": ["x" * 100] * count})


def test_chunks_are_of_a_bounded_size_and_in_order(monkeypatch):
    monkeypatch.setattr(b, "CHUNK_BYTES", 10_000)
    chunks = list(b.chunks_of([some(0, 500), some(500, 3), some(503, 2)], TABLE, 7))
    assert len(chunks) > 4
    assert all(chunk.nbytes < 30_000 for chunk in chunks)
    assert [row["id"] for chunk in chunks for row in chunk.to_pylist()] == list(range(505))
    offsets = [row["_offset"] for chunk in chunks for row in chunk.to_pylist()]
    assert offsets == sorted(set(offsets))
    later = next(b.chunks_of([some(0, 1)], TABLE, 8))
    assert later["_offset"][0].as_py() > offsets[-1]


def test_what_is_no_content_is_refused():
    deletes = some(0, 1).append_column("_delete", pa.array([True]))
    with pytest.raises(SchemaError, match="deletes"):
        list(b.chunks_of([deletes], TABLE, 0))
    with pytest.raises(UsageError, match="at most"):
        list(b.chunks_of([some(0, 1)], TABLE, b.NUMBERS_MAX))
    assert b.no_rows(TABLE).num_rows == 0


def test_files_are_read_as_the_table_reads_its_own_but_for_what_is_said():
    own = {"numberUnit": "s", "envelope": "debezium", "subscribe": "orders"}
    own |= {"sequenceBy": "v", "keepDeleted": "1d"}
    found = b.options_for(own, {"path": "x", "format": "csv", "csv.delimiter": ";"})
    assert found == {
        "numberUnit": "s", "format": "csv", "csv.delimiter": ";", "envelope": "append"
    }  # fmt: skip
