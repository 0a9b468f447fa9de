"""What messages mean for their table."""

import base64
import io
import json

import fastavro
import pyarrow as pa
import pytest

from strandline.connectors.envelopes import Envelope, Event
from strandline.connectors.formats import Refused
from strandline.connectors.reading import reading

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("n", pa.int64()),
        ("b", pa.binary()),
        ("lsn", pa.int64()),
    ]
)
GONE = "__debezium_unavailable_value"


def read(message, **options):
    envelope = Envelope(reading(SCHEMA, ("id",), options))
    parsed = (None, ()) if message is None else envelope.parse(json.dumps(message).encode())
    event = envelope.read(*parsed)
    return event, envelope.fresh


def row(event):
    return (event.row.c0, event.row.c1, event.row.c2)


def debezium(message, **options):
    return read(message, envelope="debezium", **options)


@pytest.mark.parametrize("op", ["c", "r", "u"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_debezium_rows_are_what_their_key_holds(op, wrapped):
    message = {"op": op, "before": None, "after": {"id": 1, "text": "x"}, "source": {"lsn": 7}}
    event, _ = debezium({"schema": {"x": []}, "payload": message} if wrapped else message)
    assert (row(event), event.delete, event.keep) == ((1, "x", None), False, ())


@pytest.mark.parametrize(
    ("message", "options", "meaning"),
    [
        ({"op": "d", "before": {"id": 1}, "after": None}, {}, "delete"),
        ({"op": "d", "before": None}, {}, "delete"),
        (None, {}, "delete"),
        (None, {"sequenceBy": "lsn"}, "nothing"),
        ({"schema": None, "payload": None}, {}, "refused"),
        ({"op": "t", "before": None, "after": None}, {}, "truncate"),
        ({"op": "m"}, {}, "nothing"),
        ({"op": "x"}, {}, "refused"),
        ({}, {}, "refused"),
        ({"op": "c", "after": None}, {}, "refused"),
    ],
)
def test_debezium_operations(message, options, meaning):
    event, _ = debezium(message, **options)
    found = (
        "nothing" if event is None
        else "refused" if isinstance(event, Refused)
        else "delete" if event.delete
        else "truncate" if event.truncate
        else "row"
    )  # fmt: skip
    assert found == meaning


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("text", GONE), ("n", GONE), ("b", base64.b64encode(GONE.encode()).decode()), ("n", [GONE]),
    ],
)  # fmt: skip
def test_an_unavailable_value_keeps_what_the_row_has(column, value):
    after = {"id": 12345678901234567, "text": "x", "n": 5, column: value}
    event, fresh = debezium({"op": "u", "before": {"id": 1, column: value}, "after": after})
    assert event.keep == (column,)
    assert event.row.c0 == 12345678901234567
    assert getattr(event.row, f"c{SCHEMA.get_field_index(column)}") is None
    assert fresh == {}


def test_text_that_only_contains_the_word_is_text():
    event, _ = debezium({"op": "c", "after": {"id": 1, "text": f"it says {GONE}"}})
    assert (row(event), event.keep) == ((1, f"it says {GONE}", None), ())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, pa.int64()), (1.5, pa.float64()), ("x", pa.string()), (True, pa.bool_()),
        (None, None), ([1], None), ({"a": 1}, None),
    ],
)  # fmt: skip
def test_new_fields_are_told_with_the_type_that_they_seem_to_have(value, kind):
    message = {"op": "c", "after": {"id": 1, "text": "x", "new": value}}
    event, fresh = debezium(message, newColumns="add")
    assert row(event) == (1, "x", None)
    assert fresh == ({} if kind is None else {"new": kind})
    _, ignored = debezium(message)
    assert ignored == {}


def test_whole_numbers_and_fractions_of_a_new_field_make_fractions():
    envelope = Envelope(reading(SCHEMA, ("id",), {"newColumns": "add"}))
    for value in (b'{"id":1,"new":1}', b'{"id":1,"new":1.5}', b'{"id":1,"new":2,"_ours":1}'):
        envelope.parse(value)
    assert envelope.fresh == {"new": pa.float64()}


def test_a_new_field_in_a_row_that_is_wrong_anyway_is_refused_for_what_is_wrong():
    with pytest.raises(ValueError, match="Expected `int"):
        read({"id": "x", "new": 1}, newColumns="add")


@pytest.mark.parametrize(
    ("message", "options", "delete"),
    [
        ({"id": 1}, {}, False),
        ({"id": 1, "_delete": True}, {}, True),
        ({"id": 1, "_delete": False}, {}, False),
        ({"id": 1, "_delete": True, "new": 1}, {"newColumns": "add"}, True),
        (None, {}, True),
    ],
)
def test_upserts_hold_or_delete(message, options, delete):
    event, _ = read(message, **options)
    assert isinstance(event, Event)
    assert event.delete is delete


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"envelope": "append"}, "no row to append"),
        ({"sequenceBy": "lsn"}, "no place in the order"),
    ],
)
def test_a_null_that_means_nothing_is_refused(options, reason):
    event, _ = read(None, **options)
    assert reason in event.reason


def test_columns_of_csv_that_the_table_lacks_are_passed_over_or_told_as_text():
    for new, expected in (("ignore", {}), ("add", {"more": pa.string()})):
        plain = pa.schema([("id", pa.int64()), ("text", pa.string()), ("n", pa.int64())])
        how = reading(plain, ("id",), {"format": "csv", "newColumns": new})
        envelope = Envelope(how, ("id", "more", "_delete"))
        event = envelope.read(*envelope.parse(b"5,x,true"))
        assert (row(event), event.delete, envelope.fresh) == ((5, None, None), True, expected)


AVRO = {
    "type": "record", "name": "m", "fields": [
        {"name": "op", "type": "string"},
        {"name": "after", "type": {"type": "record", "name": "r", "fields": [
            {"name": "id", "type": "long"}, {"name": "text", "type": "string"},
            {"name": "new", "type": "double"},
        ]}},
    ],
}  # fmt: skip


def test_debezium_in_avro_keeps_and_tells_what_is_new():
    how = {"format": "avro", "envelope": "debezium", "avro.schema": json.dumps(AVRO)}
    how["newColumns"] = "add"
    envelope = Envelope(reading(SCHEMA, ("id",), how))
    for text, keep in (("x", ()), (GONE, ("text",))):
        stream = io.BytesIO()
        after = {"id": 1, "text": text, "new": 1.5}
        fastavro.schemaless_writer(stream, AVRO, {"op": "u", "after": after})
        event = envelope.read(*envelope.parse(stream.getvalue()))
        assert (event.row.c0, event.keep) == (1, keep)
    assert envelope.fresh == {"new": pa.float64()}
