"""What rows mean for a table: the last of each key, errors that heal, differences."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from strandline.connectors.incoming import ERRORS, decode
from strandline.connectors.raw import raw_batch
from strandline.connectors.reading import reading
from strandline.errors import InvariantError
from strandline.model.digest import Digest
from strandline.model.schema import Schema
from strandline.parts.emptied import There
from strandline.pipeline import meaning as m
from strandline.views.parse import parse

TABLE = parse(
    "CREATE TABLE orders (id BIGINT, lsn BIGINT, PRIMARY KEY (id))"
    " USING generator OPTIONS (sequenceBy 'lsn');"
).tables[0]
HOW = m.reading_of(TABLE)
SCHEMA = Schema.create(TABLE.columns, TABLE.key)
NONE = TABLE.columns.empty_table()


def _came(*rows: dict[str, int] | bytes) -> pa.Table:
    values = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    keys = [b"9" if isinstance(row, bytes) else str(row["id"]).encode() for row in rows]
    return pa.Table.from_batches([raw_batch(values, "0", range(len(values)), keys=keys)])


def _updates(*rows: dict[str, int] | bytes, held: There) -> list[dict[str, int]]:
    found, _ = m.upserted(decode(_came(*rows), HOW).rows(HOW), HOW, held, SCHEMA, (7, 1_000))
    return found.to_pylist()


def _held(*rows: dict[str, int]) -> There:
    tombs = pa.table({"id": [], "lsn": [], "_at": []}).cast(
        pa.schema([("id", pa.int64()), ("lsn", pa.int64()), ("_at", pa.int64())])
    )
    return There(pa.Table.from_pylist(list(rows), TABLE.columns), tombs)


@pytest.mark.parametrize(
    ("came", "held", "expected"),
    [
        ([{"id": 1, "lsn": 5}], [], [(1, 5, 1)]),
        ([{"id": 1, "lsn": 5}, {"id": 1, "lsn": 4}], [], [(1, 5, 1)]),
        ([{"id": 1, "lsn": 5}], [{"id": 1, "lsn": 3}], [(1, 3, -1), (1, 5, 1)]),
        ([{"id": 1, "lsn": 2}], [{"id": 1, "lsn": 3}], []),
        ([{"id": 1, "lsn": 3}], [{"id": 1, "lsn": 3}], []),
    ],
)
def test_the_last_row_of_a_key_counts_by_its_sequence(
    came: list[dict[str, int]], held: list[dict[str, int]], expected: list[tuple[int, ...]]
) -> None:
    found = _updates(*came, held=_held(*held))
    assert [(row["id"], row["lsn"], row["_diff"]) for row in found] == expected


def test_a_value_that_is_no_row_is_kept_by_key_until_a_good_one_comes() -> None:
    bad = decode(_came(b"no json"), HOW)
    first = m.errors_updated(bad, ERRORS.empty_table(), 7)
    assert [row["_diff"] for row in first.to_pylist()] == [1]
    held = first.drop_columns(["_diff"])
    healed = m.errors_updated(decode(_came({"id": 9, "lsn": 1}), HOW), held, 8)
    assert [row["_diff"] for row in healed.to_pylist()] == [-1]


def test_digests_of_pieces_add_up_and_see_what_occurs_twice() -> None:
    rows = _came({"id": 1, "lsn": 1}, {"id": 2, "lsn": 1})
    whole = m.input_digest(rows)
    assert m.input_digest(rows.slice(0, 1)) + m.input_digest(rows.slice(1)) == whole
    twice = pa.concat_tables([rows, rows])
    assert m.input_digest(twice) not in {whole, Digest.ZERO}


def test_a_difference_turns_one_into_the_other() -> None:
    old = pa.table({"a": [1, 1, 2]})
    new = pa.table({"a": [1, 3]})
    found = {(row["a"], row["_diff"]) for row in m.difference(new, old).to_pylist()}
    assert found == {(1, -1), (2, -1), (3, 1)}
    assert m.difference(new, new).num_rows == 0


def test_rows_come_as_often_as_they_occur() -> None:
    rows = m.expanded(pa.table({"a": [1, 2], "_diff": [2, 1]}))
    assert rows.to_pydict() == {"a": [1, 1, 2]}
    with pytest.raises(InvariantError, match="retracted"):
        m.expanded(pa.table({"a": [1], "_diff": [-1]}))


def test_staged_rows_are_the_rows() -> None:
    rows = _came({"id": 1, "lsn": 1})
    assert m.unpacked_rows(m.packed_rows(rows)) == rows


def test_a_row_is_told_by_what_its_view_sees() -> None:
    text = "CREATE TABLE t (id BIGINT, a INT, b INT, PRIMARY KEY (id)) USING generator;"
    text += "CREATE MATERIALIZED VIEW v AS SELECT 10 / b AS q FROM t;"
    view = parse(text + "CREATE MATERIALIZED VIEW w AS SELECT q FROM v;").views
    row = pa.table({"id": [1], "a": [2], "b": [0], "later": ["x"], "_diff": [1]})
    assert m.row_text(view[0], "t", row) == "t: id = 1, b = 0"
    assert m.row_text(view[1], "v", pa.table({"q": [1], "_diff": [1]})) == "v: q = 1"


@pytest.mark.parametrize(
    ("options", "at", "before"),
    [
        ({"sequenceBy": "seq"}, 63, 10**9 - 7 * 86_400_000),
        ({"sequenceBy": "seq", "keepDeleted": "90m"}, 127, 10**9 - 5_400_000),
        ({"sequenceBy": "seq", "keepDeleted": "forever"}, 63, None),
        ({"sequenceBy": "seq"}, 62, None),
        ({"sequenceBy": "seq"}, 64, None),
        ({}, 63, None),
    ],
)
def test_when_tombstones_go_is_a_matter_of_the_transaction_alone(options, at, before):
    schema = pa.schema([("id", pa.int64()), ("seq", pa.int64())])
    assert m.sweep_before(reading(schema, ("id",), options), at, 10**9) == before
