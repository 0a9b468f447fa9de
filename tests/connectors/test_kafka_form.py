"""Changes as messages: one for each key, two rows of one refused, and our own tables read them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa
import pytest

from strandline.connectors import kafka_form
from strandline.connectors.incoming import decode
from strandline.connectors.kafka_form import Form, Stamp, deletions, encoded
from strandline.connectors.kafka_port import Batch
from strandline.connectors.raw import raw_batch
from strandline.connectors.reading import reading
from strandline.connectors.sink import Address
from strandline.errors import SinkStoppedError

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
SCHEMA = pa.schema([*COLUMNS, pa.field("_diff", pa.int64(), nullable=False)])
STAMP = Stamp(Address("l0", "shop", "out", "first"), 7, 2)
Row = tuple[int, str | None, int]
SOURCE = {
    "connector": "strandline", "name": "shop", "table": "out", "time": 7, "epoch": 2,
    "lineage": "first",
}  # fmt: skip


def form(envelope: str, **more) -> Form:
    return Form(envelope, ("id", "name"), **{"key": ("id",), **more})


def batch(rows: Iterable[Row]) -> pa.RecordBatch:
    given = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(given, schema=SCHEMA)


def messages(how: Form, *batches: list[Row]) -> list[tuple[object, object]]:
    """Keys and values, decoded."""
    made = encoded(how, STAMP, [batch(each) for each in batches])
    return [
        (None if key is None else json.loads(key), None if value is None else json.loads(value))
        for each in made
        for key, value in zip(each.keys, each.values, strict=True)
    ]


def test_changes_have_row_diff_and_time() -> None:
    found = messages(form("changes", key=()), [(1, "a", 1), (2, None, -3)])
    same = {"time": 7, "epoch": 2, "lineage": "first"}
    assert found == [
        (None, {"row": {"id": 1, "name": "a"}, "diff": 1, **same}),
        (None, {"row": {"id": 2, "name": None}, "diff": -3, **same}),
    ]
    keyed = messages(form("changes", key=("name", "id")), [(1, "a", 1)])
    assert keyed[0][0] == {"name": "a", "id": 1}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("envelope", ["changes", "upsert", "debezium"])
def test_no_rows_are_no_messages(envelope: str, *, ordered: bool) -> None:
    """As in the first transaction of a lineage whose view is empty."""
    assert messages(form(envelope, ordered=ordered)) == []


@pytest.mark.parametrize("ordered", [True, False])
def test_upserts_are_one_message_for_each_key(ordered: bool) -> None:  # noqa: FBT001 - a case
    rows: list[Row] = [(1, "old", -1), (1, "new", 1), (2, "gone", -1), (3, "fresh", 1)]
    assert messages(form("upsert", ordered=ordered), rows) == [
        ({"id": 1}, {"id": 1, "name": "new"}),
        ({"id": 2}, None),
        ({"id": 3}, {"id": 3, "name": "fresh"}),
    ]


def test_debezium_has_before_after_and_a_tombstone() -> None:
    rows: list[Row] = [(1, "old", -1), (1, "new", 1), (2, "gone", -1), (3, None, 1)]
    expected = [
        ({"id": 1}, {"before": {"id": 1, "name": "old"}, "after": {"id": 1, "name": "new"},
                     "source": SOURCE, "op": "u"}),
        ({"id": 2}, {"before": {"id": 2, "name": "gone"}, "after": None, "source": SOURCE,
                     "op": "d"}),
        ({"id": 2}, None),
        ({"id": 3}, {"before": None, "after": {"id": 3, "name": None}, "source": SOURCE,
                     "op": "c"}),
    ]  # fmt: skip
    assert messages(form("debezium", ordered=True), rows) == expected
    assert messages(form("debezium", tombstones=False), rows) == [*expected[:2], expected[3]]


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_key_may_lie_in_two_batches(cut: int) -> None:
    rows: list[Row] = [(n, word, diff) for n in range(3) for word, diff in (("a", -1), ("b", 1))]
    whole = messages(form("upsert", ordered=True), rows)
    assert len(whole) == 3
    assert messages(form("upsert", ordered=True), rows[:cut], rows[cut:]) == whole


@pytest.mark.parametrize("ordered", [True, False])
def test_a_key_that_is_a_float_has_one_text(*, ordered: bool) -> None:
    """Whatever comes with it; and zeros are equal, as rows are."""
    schema = pa.schema([("x", pa.float32()), ("_diff", pa.int64())])
    how = Form("upsert", ("x",), ("x",), ordered=ordered)

    def keys(*rows: tuple[float, int]) -> list[bytes | None]:
        columns = [
            pa.array(each, field.type)
            for each, field in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return [key for each in encoded(how, STAMP, [batch]) for key in each.keys]

    came = keys((-0.0, 1), (0.1, 1), (1e16, 1))
    went = keys((0.0, -1), (0.1, -1), (1e16, -1), (float("nan"), 1))
    assert set(went) == {*came, b'{"x":"NaN"}'}
    assert keys((-0.0, -1), (0.0, 1)) == [b'{"x":0.0}']


def test_rows_in_any_order_are_brought_together() -> None:
    there = [[(3, "c", 1), (1, "b", 1)], [(2, "x", -1), (1, "a", -1)]]
    assert messages(form("upsert"), *there) == [
        ({"id": 1}, {"id": 1, "name": "b"}),
        ({"id": 2}, None),
        ({"id": 3}, {"id": 3, "name": "c"}),
    ]


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    "rows",
    [
        [(5, "a", 1), (5, "b", 1)],
        [(5, "a", 2)],
        [(5, "a", -2)],
        [(5, "a", -1), (5, "b", 2)],
        [(5, "a", -1), (5, "b", -1)],
        [(5, "a", -1), (5, "b", 1), (5, "c", 1)],
    ],
)
def test_two_rows_of_one_key_are_refused_by_name(
    envelope: str,
    ordered: bool,  # noqa: FBT001 - a case
    rows: list[Row],
) -> None:
    with pytest.raises(SinkStoppedError, match=r'{"id":5}.* more than one row.*option key'):
        messages(form(envelope, ordered=ordered), [(4, "z", 1), *rows, (6, "z", 1)])


@pytest.mark.parametrize(
    ("how", "values"),
    [
        (form("upsert"), [None]),
        (form("debezium"), [{"before": None, "after": None, "source": SOURCE, "op": "d"}, None]),
        (form("debezium", tombstones=False),
         [{"before": None, "after": None, "source": SOURCE, "op": "d"}]),
    ],
)  # fmt: skip
def test_keys_are_deleted_whatever_they_held(how: Form, values: list[object]) -> None:
    found = _joined(deletions(how, STAMP, [b"a", b"b"]))
    decoded = [None if each is None else json.loads(each) for each in found.values]
    assert decoded == values * 2
    assert list(found.keys) == [b"a"] * len(values) + [b"b"] * len(values)


def test_headers_are_columns_and_nulls_are_left_out() -> None:
    how = form("changes", headers=("name", "id"))
    made = next(encoded(how, STAMP, [batch([(1, "a", 1), (2, None, 1)])]))
    assert made.headers == [(("name", b"a"), ("id", b"1")), (("id", b"2"),)]
    tombs = next(encoded(form("debezium", headers=("id",)), STAMP, [batch([(1, "a", -1)])]))
    assert tombs.headers == [(("id", b"1"),)] * 2


def test_pieces_are_small_whatever_a_batch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_form, "_PIECE_BYTES", 100)
    rows: list[Row] = [(n, "x" * 50, 1) for n in range(20)]
    made = list(encoded(form("changes"), STAMP, [batch(rows)]))
    assert max(len(each.keys) for each in made) < 4
    assert sum(len(each.keys) for each in made) == 20


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_a_table_of_ours_reads_what_is_written(envelope: str) -> None:
    rows: list[Row] = [(1, "old", -1), (1, "new", 1), (2, "gone", -1), (3, None, 1)]
    made = encoded(form(envelope, ordered=True), STAMP, [batch(rows[:-1]), batch(rows[-1:])])
    given = _joined(made)
    how = reading(COLUMNS, ("id",), {"envelope": envelope})
    values, keys = list(given.values), list(given.keys)
    found = decode(raw_batch(values, "p", range(len(values)), keys=keys), how)
    assert not found.table["_error"].drop_null().to_pylist()
    held: dict[int, str | None] = {2: "gone"}
    for row in found.rows(how).to_pylist():
        held.pop(row["id"], None)
        if not row["_delete"]:
            held[row["id"]] = row["name"]
    assert held == {1: "new", 3: None}


def _joined(batches: Iterable[Batch]) -> Batch:
    made = list(batches)
    return Batch([k for each in made for k in each.keys], [v for each in made for v in each.values])
