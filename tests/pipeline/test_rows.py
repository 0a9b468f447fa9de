"""Rows that users give: typed, checked, placed in their order."""

from __future__ import annotations

from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from strandline.errors import SchemaError, UsageError
from strandline.pipeline.rows import CHUNKS_MAX, json_rows, staged_rows
from strandline.views.parse import parse

KEYED = parse(
    "CREATE TABLE t (id BIGINT, price DECIMAL(8,2), at TIMESTAMP, PRIMARY KEY (id)) USING http"
).tables[0]
PLAIN = parse("CREATE TABLE p (id BIGINT, note STRING) USING http").tables[0]
STRICT = parse(
    "CREATE TABLE u (id BIGINT, amount BIGINT NOT NULL, note STRING, PRIMARY KEY (id)) USING http"
).tables[0]


def test_later_chunks_come_later():
    first = staged_rows([{"id": 1}, {"id": 2}], KEYED, 0)
    second = staged_rows(pa.table({"id": [3]}), KEYED, 1)
    offsets = first["_offset"].to_pylist() + second["_offset"].to_pylist()
    assert offsets == sorted(set(offsets))
    assert set(first["_partition"].to_pylist()) == {"transaction"}


def test_types_are_the_tables_own():
    given = pa.table({"id": pa.array([1], pa.int8()), "price": pa.array([Decimal("7.5")])})
    made = staged_rows(given, KEYED, 0)
    assert made.schema.field("id").type == pa.int64()
    assert made["price"].to_pylist() == [Decimal("7.50")]


@pytest.mark.parametrize("chunk", [-1, CHUNKS_MAX])
def test_numbers_of_chunks_have_bounds(chunk):
    with pytest.raises(UsageError, match="chunk number"):
        staged_rows([{"id": 1}], KEYED, chunk)


def test_no_rows_are_rows_too():
    for table in (KEYED, STRICT):
        assert staged_rows([], table, 0).num_rows == 0
        assert staged_rows(table.columns.empty_table(), table, 0).num_rows == 0
        assert staged_rows(pa.table({"id": pa.array([], pa.int64())}), table, 0).num_rows == 0


def test_only_keys_can_be_deleted():
    made = staged_rows([{"id": 1, "_delete": True}], KEYED, 0)
    assert made["_delete"].to_pylist() == [True]
    with pytest.raises(SchemaError, match="_delete"):
        staged_rows([{"id": 1, "_delete": True}], PLAIN, 0)
    with pytest.raises(SchemaError, match="no key"):
        json_rows([b'{"id": 1, "_delete": true}'], PLAIN)


def test_json_is_read_in_the_tables_types():
    made = json_rows([b'{"id": 1, "price": 1.10, "at": "2026-01-01T00:00:00Z"}'], KEYED)
    assert made["price"].to_pylist() == [Decimal("1.10")]
    assert made["at"].to_pylist()[0].year == 2026
    gone = json_rows([b'{"id": 1}', b'{"_delete": true, "id": 2}'], KEYED)
    assert gone["_delete"].to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"id": "x"}', "row 2 for t"),
        (b"not json", "row 2 for t"),
        (b"[1]", "row 2 for t"),
        (b'{"_delete": 7}', "row 2"),
        (b'{"id": 2, "prise": 1.10}', "table t has no column 'prise': it has id, price, at"),
        (b'{"_delete": true', "row 2"),
    ],
)
def test_json_that_does_not_fit_is_named_by_its_line(line, words):
    with pytest.raises(SchemaError, match=words):
        json_rows([b'{"id": 1}', line], KEYED)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": 1, "amount": 5}, {"id": 4, "amount": None}], "row 2 for u, id 4: column 'amou"),
        ([{"id": 1}], "row 1 for u, id 1: column 'amount' is null or left out"),
        ([{"id": 1, "_delete": True}, {"id": 2, "_delete": None}], "row 2 for u"),
        (pd.DataFrame({"id": [1, 2], "amount": [1.0, None]}).convert_dtypes(), "row 2 for u"),
        (pa.table({"id": [1], "note": ["a"]}), "row 1 for u"),
    ],
)
def test_a_row_without_a_value_that_it_must_have_is_refused(rows, words):
    with pytest.raises(SchemaError, match=words):
        staged_rows(rows, STRICT, 0)


def test_a_row_that_deletes_needs_its_key_alone():
    for rows in (
        [{"id": 1, "_delete": True}, {"id": 2, "amount": 5}],
        json_rows([b'{"id": 1, "_delete": true}', b'{"id": 2, "amount": 5}'], STRICT),
    ):
        made = staged_rows(rows, STRICT, 0)
        assert made["amount"].to_pylist() == [None, 5]
    with pytest.raises(SchemaError, match="row 1 for u, id 1: column 'amount'"):
        staged_rows(json_rows([b'{"id": 1}'], STRICT), STRICT, 0)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (None, "row 2 for t is NoneType: give a dict"),
        ("x", "row 2 for t is str"),
        ({"id": 2**63}, "column 'id' of row 2 for t: .*too large"),
        ({"id": 2, "price": "x"}, "column 'price' of row 2 for t"),
        ({"id": 2, 7: "x"}, "no column"),
    ],
)
def test_what_is_no_row_is_refused_by_name(row, words):
    with pytest.raises(UsageError, match=words):
        staged_rows([{"id": 1}, row], KEYED, 0)


@pytest.mark.parametrize("row", [{"id": 2}, {"id": 2, "seq": None, "amount": 1}])
def test_a_row_that_deletes_needs_its_place_in_the_order_where_there_is_one(row):
    text = """CREATE TABLE t (id BIGINT, amount BIGINT, seq BIGINT, PRIMARY KEY (id))
      USING http OPTIONS (sequenceBy 'seq');"""
    (table,) = parse(text).tables
    good = [{"id": 1, "seq": 5, "_delete": True}, {"id": 3, "amount": 1}]
    assert staged_rows(good, table, 0)["_delete"].to_pylist() == [True, None]
    with pytest.raises(SchemaError, match=r"row 3 for t, id 2: it deletes and has no 'seq'"):
        staged_rows([*good, {**row, "_delete": True}], table, 0)
    with pytest.raises(SchemaError, match=r"row 1 for t, id 2"):
        staged_rows([{**row, "_delete": True}], table, 0)


def test_values_that_nobody_could_read_again_are_refused_by_name():
    texts = pa.array([b"ok", b"\xff"], pa.binary())
    note = pa.Array.from_buffers(pa.string(), 2, texts.buffers())
    late = pa.array([0, 10**18]).cast(pa.timestamp("us", "UTC"))
    for rows, table, words in (
        (pa.table({"id": [1, 2], "note": note}), PLAIN, "row 2 for p: column 'note': its text"),
        (pa.table({"id": [1, 2], "at": late}), KEYED, "row 2 for t: column 'at': it lies outside"),
    ):
        with pytest.raises(SchemaError, match=words):
            staged_rows(rows, table, 0)
