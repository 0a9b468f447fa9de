"""From messages back to rows: what readers of a topic add up."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.connectors.kafka_fold import folded, keys_held
from strandline.connectors.kafka_form import Form, Stamp, encoded
from strandline.connectors.kafka_port import Message
from strandline.connectors.sink import Address
from strandline.errors import SinkStoppedError

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
SCHEMA = pa.schema([*COLUMNS, pa.field("_diff", pa.int64(), nullable=False)])
ADDRESS = Address("l0", "shop", "out", "first")


def sent(envelope: str, *transactions: list[tuple[int, str, int]], lineage="first"):
    """The messages of transactions 0, 1, …, in one partition."""
    form = Form(envelope, ("id", "name"), () if envelope == "changes" else ("id",))
    address = Address("l0", "shop", "out", lineage)
    found: list[Message] = []
    for t, rows in enumerate(transactions):
        given = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
        batch = pa.RecordBatch.from_pylist(given, schema=SCHEMA)
        for each in encoded(form, Stamp(address, t, 1), [batch]):
            for key, value in zip(each.keys, each.values, strict=True):
                found.append(Message(0, len(found), key, value, timestamp_ms=t))
    return found


def read(envelope: str, messages: list[Message], upto: int = 99) -> list[tuple[int, str, int]]:
    batches = folded(envelope, "first", upto, COLUMNS, messages)
    rows = pa.Table.from_batches(batches, schema=SCHEMA).to_pylist()
    return sorted((row["id"], row["name"], row["_diff"]) for row in rows)


THREE = [
    [(1, "a", 1), (2, "b", 1)],
    [(1, "a", -1), (1, "A", 1), (3, "c", 1)],
    [(2, "b", -1)],
]


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_a_key_holds_what_its_last_message_says(envelope: str) -> None:
    assert read(envelope, sent(envelope, *THREE)) == [(1, "A", 1), (3, "c", 1)]


def test_changes_add_up() -> None:
    assert read("changes", sent("changes", *THREE)) == sorted(row for each in THREE for row in each)


@pytest.mark.parametrize("envelope", ["changes", "debezium"])
def test_what_came_later_is_left_out_as_far_as_messages_tell(envelope: str) -> None:
    messages = sent(envelope, *THREE)
    assert read(envelope, messages, upto=0) == [(1, "a", 1), (2, "b", 1)]


@pytest.mark.parametrize("envelope", ["changes", "debezium"])
def test_other_lineages_are_left_out(envelope: str) -> None:
    old = sent(envelope, [(1, "old", 1)], lineage="other")
    assert read(envelope, old + sent(envelope, [(2, "b", 1)])) == [(2, "b", 1)]


def test_keys_that_hold_a_row_are_told() -> None:
    found = keys_held([*sent("upsert", *THREE), Message(0, 9, None, b"{}")])
    assert found == [b'{"id":1}', b'{"id":3}']


def test_keys_whose_last_message_names_another_writer_are_left_out() -> None:
    ours = sent("debezium", [(1, "a", 1), (2, "b", 1), (3, "c", 1)])
    theirs = [
        Message(0, 10, b'{"id":2}', ours[1].value.replace(b'"table":"out"', b'"table":"other"')),
        Message(0, 11, b'{"id":7}', ours[1].value.replace(b'"name":"shop"', b'"name":"else"')),
        Message(0, 12, b"8", b'{"op":"c","source":{"connector":"mongodb","name":"shop"}}'),
    ]
    unnamed = Message(0, 13, b"9", b'{"id":9}')
    held = keys_held([*ours, *theirs, unnamed], ("shop", "out"))
    assert held == [b'{"id":1}', b'{"id":3}', b"9"]
    assert len(keys_held([*ours, *theirs, unnamed])) == 6


def test_a_key_that_moved_to_another_partition_is_the_later_one() -> None:
    (old,), (new,) = sent("upsert", [(1, "old", 1)]), sent("upsert", [(1, "new", 1)])
    moved = Message(1, 0, new.key, new.value, timestamp_ms=old.timestamp_ms + 1)
    assert read("upsert", [old, moved]) == read("upsert", [moved, old]) == [(1, "new", 1)]


@pytest.mark.parametrize("envelope", ["changes", "debezium", "upsert"])
@pytest.mark.parametrize("value", [b"x", b'{"id": "text"}', b"[]"])
def test_what_is_not_of_this_sink_is_named(envelope: str, value: bytes) -> None:
    with pytest.raises(SinkStoppedError, match=r"none of this sink|no message of this sink"):
        read(envelope, [Message(0, 5, b"k", value)])
