"""Each column is read as the schema of its message says, as PostgreSQL's connector writes them."""

import base64
import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest

from strandline.connectors.connect_schema import schema_in, written_key, written_row
from strandline.connectors.incoming import decode
from strandline.connectors.raw import raw_batch
from strandline.connectors.reading import reading
from strandline.connectors.values import Notation

DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
NOON = dt.datetime(2026, 3, 1, 12, 30, 15, 123456)  # noqa: DTZ001 - a column without a zone
MICROS = 1_772_368_215_123_456
DAY = 20_513
COLUMNS = {
    "id": pa.int64(),
    "born": pa.date32(),
    "opens": pa.time64("us"),
    "placed": pa.timestamp("us"),
    "second": pa.timestamp("us"),
    "seen": pa.timestamp("us", "UTC"),
    "price": pa.decimal128(10, 2),
    "any": pa.decimal128(20, 4),
    "took": pa.duration("us"),
    "days": pa.list_(pa.date32()),
}
VARIABLE = {
    "type": "struct",
    "fields": [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ],
    "name": "io.debezium.data.VariableScaleDecimal",
    "version": 1,
}
ROW = [
    {"type": "int64", "optional": False, "default": 0, "field": "id"},
    {"type": "int32", "name": DEBEZIUM + "Date", "version": 1, "field": "born"},
    {"type": "int64", "name": DEBEZIUM + "MicroTime", "version": 1, "field": "opens"},
    {"type": "int64", "name": DEBEZIUM + "MicroTimestamp", "version": 1, "field": "placed"},
    {"type": "int64", "name": DEBEZIUM + "Timestamp", "version": 1, "field": "second"},
    {"type": "string", "name": DEBEZIUM + "ZonedTimestamp", "version": 1, "field": "seen"},
    {
        "type": "bytes",
        "name": CONNECT + "Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "field": "price",
    },
    VARIABLE | {"field": "any"},
    {"type": "int64", "name": DEBEZIUM + "MicroDuration", "version": 1, "field": "took"},
    {
        "type": "array",
        "items": {"type": "int32", "name": DEBEZIUM + "Date", "version": 1},
        "field": "days",
    },
]
VALUES = {
    "id": 1,
    "born": DAY,
    "opens": 45_015_123_456,
    "placed": MICROS,
    "second": MICROS // 1000,
    "seen": "2026-03-01T12:30:15.123456Z",
    "price": base64.b64encode((-1050).to_bytes(2, "big", signed=True)).decode(),
    "any": {"scale": 3, "value": base64.b64encode((1500).to_bytes(2, "big")).decode()},
    "took": 90_000_000,
    "days": [DAY, None],
}
SAID = {
    "id": 1,
    "born": NOON.date(),
    "opens": NOON.time(),
    "placed": NOON,
    "second": NOON.replace(microsecond=123000),
    "seen": NOON.replace(tzinfo=dt.UTC),
    "price": decimal.Decimal("-10.50"),
    "any": decimal.Decimal("1.5000"),
    "took": dt.timedelta(seconds=90),
    "days": [NOON.date(), None],
}


def schema(fields=ROW):
    """What Debezium writes before each message of `public.orders`, where Connect lets it."""
    name = "shop.public.orders"
    row = {"type": "struct", "fields": fields, "optional": True, "name": f"{name}.Value"}
    source = [
        {"type": "string", "optional": False, "field": "version"},
        {"type": "string", "optional": False, "field": "connector"},
        {"type": "int64", "optional": False, "field": "ts_ms"},
        {"type": "string", "optional": False, "field": "schema"},
        {"type": "int64", "optional": True, "field": "lsn"},
    ]
    return {
        "type": "struct",
        "fields": [
            row | {"field": "before"},
            row | {"field": "after"},
            {
                "type": "struct",
                "fields": source,
                "optional": False,
                "name": "io.debezium.connector.postgresql.Source",
                "field": "source",
            },
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
        "optional": False,
        "name": f"{name}.Envelope",
        "version": 2,
    }


def message(after, fields=ROW, op="c", before=None):
    source = {"version": "3.0.0.Final", "connector": "postgresql", "ts_ms": MICROS // 1000}
    payload = {"before": before, "after": after, "source": source | {"schema": "public", "lsn": 7}}
    return json.dumps({"schema": schema(fields), "payload": payload | {"op": op}}).encode()


def rows_of(values, columns=COLUMNS, keys=None, key=("id",), **options):
    how = reading(pa.schema(columns), key, {"envelope": "debezium"} | options)
    found = decode(raw_batch(values, "p", range(len(values)), keys=keys), how)
    found.table.validate(full=True)
    assert found.table["_error"].drop_null().to_pylist() == []
    return found.rows(how).to_pylist(), found


def of(row):
    return {name: row[name] for name in COLUMNS}


@pytest.mark.parametrize("options", [{}, {"numberUnit": "s", "decimals": "base64"}])
def test_each_declared_column_is_read_as_its_message_says(options):
    (row,), _ = rows_of([message(VALUES)], **options)
    assert of(row) == SAID


def test_messages_of_one_batch_may_say_it_differently():
    millis = [
        each | {"name": CONNECT + "Timestamp"} if each["field"] == "placed" else
        {"type": "string", "field": "price"} if each["field"] == "price" else each
        for each in ROW
    ]  # fmt: skip
    other = VALUES | {"id": 2, "placed": MICROS // 1000, "price": "3.25"}
    bare = {"op": "c", "before": None, "after": {"id": 3, "placed": MICROS // 1000, "price": 4.5}}
    last = VALUES | {"id": 4}
    values = [message(VALUES), message(other, millis), json.dumps(bare).encode(), message(last)]
    rows, _ = rows_of(values)
    coarse = NOON.replace(microsecond=123000)
    assert [(row["id"], row["placed"], str(row["price"])) for row in rows] == [
        (1, NOON, "-10.50"),
        (2, coarse, "3.25"),
        (3, coarse, "4.50"),
        (4, NOON, "-10.50"),
    ]


def test_what_connect_calls_dates_and_times_are_days_and_milliseconds():
    fields = [
        {"type": "int64", "field": "id"},
        {"type": "int32", "name": CONNECT + "Date", "field": "born"},
        {"type": "int32", "name": CONNECT + "Time", "field": "opens"},
        {"type": "int64", "name": CONNECT + "Timestamp", "field": "placed"},
        {"type": "int64", "name": DEBEZIUM + "NanoTimestamp", "field": "second"},
    ]
    after = {"id": 1, "born": DAY, "opens": 45_015_123, "placed": MICROS // 1000}
    (row,), _ = rows_of([message(after | {"second": MICROS * 1000}, fields)], numberUnit="s")
    assert (row["born"], row["opens"]) == (NOON.date(), NOON.time().replace(microsecond=123000))
    assert (row["placed"], row["second"]) == (NOON.replace(microsecond=123000), NOON)


def test_days_may_be_timestamps_and_whole_timestamps_dates():
    columns = {"id": pa.int64(), "born": pa.timestamp("us"), "placed": pa.date32()}
    after = {"id": 1, "born": DAY, "placed": DAY * 86_400_000_000}
    (row,), _ = rows_of([message(after)], columns)
    assert (row["born"], row["placed"]) == (dt.datetime(2026, 3, 1), NOON.date())  # noqa: DTZ001
    how = reading(pa.schema(columns), ("id",), {"envelope": "debezium"})
    found = decode(raw_batch([message(after | {"placed": MICROS})], "p", range(1)), how)
    assert found.table["_error"].to_pylist() == ["column 'placed': a number of us is no whole day"]


def test_new_columns_get_the_types_that_the_message_says():
    columns = {"id": pa.int64()}
    _, found = rows_of([message(VALUES)], columns, newColumns="add")
    assert found.fresh == {
        "born": pa.date32(),
        "opens": pa.int64(),
        "placed": pa.timestamp("us"),
        "second": pa.timestamp("us"),
        "seen": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(10, 2),
        "took": pa.int64(),
    }
    (row,), again = rows_of([message(VALUES)], columns | found.fresh, newColumns="add")
    assert again.fresh == {}
    assert {name: row[name] for name in ("born", "placed", "seen", "price")} == {
        name: SAID[name] for name in ("born", "placed", "seen", "price")
    }


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_key_of_a_deletion_is_read_as_its_schema_says(wrapped):
    columns = {"placed": pa.timestamp("us"), "id": pa.int64()}
    fields = [{"type": "int64", "name": DEBEZIUM + "MicroTimestamp", "field": "placed"}]
    if wrapped:
        key = {"schema": {"type": "struct", "fields": fields}, "payload": {"placed": MICROS}}
    else:
        key = {"schema": fields[0], "payload": MICROS}
    gone = message(None, fields, op="d", before={"placed": MICROS})
    rows, _ = rows_of([gone, None], columns, [json.dumps(key).encode()] * 2, ("placed",))
    assert [(row["placed"], row["_delete"]) for row in rows] == [(NOON, True)] * 2


def test_an_error_is_known_by_the_key_as_its_schema_says():
    fields = [
        {"type": "int64", "name": DEBEZIUM + "MicroTimestamp", "field": "placed"},
        {"type": "int64", "field": "id"},
    ]
    columns = {"placed": pa.timestamp("us"), "id": pa.int64()}
    how = reading(pa.schema(columns), ("placed",), {"envelope": "debezium"})
    values = [message({"placed": MICROS, "id": id_}, fields) for id_ in ("x", 5)]
    found = decode(raw_batch(values, "p", range(2)), how)
    bad, good = found.table["_id"].to_pylist()
    assert bad == good == b"2026-03-01 12:30:15.123456"


def test_a_sequence_of_the_source_is_written_as_the_options_say():
    columns = COLUMNS | {"ts_ms": pa.timestamp("us"), "placed": pa.timestamp("us")}
    (row,), _ = rows_of([message(VALUES)], columns, sequenceBy="ts_ms")
    assert row["_order0"] == NOON.replace(microsecond=123000)
    (row,), _ = rows_of([message(VALUES)], columns, sequenceBy="placed")
    assert row["_order0"] == NOON


def test_where_no_message_says_so_a_column_may_have_a_unit_of_its_own():
    after = {name: VALUES[name] for name in ("id", "born", "placed", "second")}
    bare = json.dumps({"op": "c", "after": after | {"born": DAY * 86_400}}).encode()
    options = {"numberUnit.placed": "us", "numberUnit.born": "s"}
    (row,), _ = rows_of([bare], **options)
    assert (row["placed"], row["second"], row["born"]) == (
        SAID["placed"],
        SAID["second"],
        SAID["born"],
    )


@pytest.mark.parametrize(
    "broken",
    [b"[]", b"7", b'{"fields": 7}', b'{"fields": [{"field": "after", "fields": [7]}]}', b"null"],
)
def test_a_schema_that_is_none_says_nothing(broken):
    assert written_row(broken, lambda _: Notation()).notations == {}
    written_key(broken, "id", lambda _: Notation())
    value = b'{"schema": %b, "payload": {"op": "c", "after": {"id": 1}}}' % broken
    assert schema_in(value) == broken
    (row,), _ = rows_of([value])
    assert row["id"] == 1


def test_x11_a_schema_that_is_nested_too_deeply_says_nothing():
    deep = b'{"schema": %b%b, "payload": {"id": 1}}' % (b'{"items":' * 9_000, b"}" * 9_000)
    how = reading(pa.schema(COLUMNS), ("id",), {"envelope": "debezium"})
    found = decode(raw_batch([deep, None], "p", range(2), keys=[deep, deep]), how)
    assert found.table["_error"].is_valid().to_pylist() == [True, True]


def test_a_message_without_a_schema_has_none():
    for value in (
        b'{"op": "c"}',
        b'{"source": {"schema": "public"}, "op": "c"}',
        b"{",
        b'"schema"',
    ):
        assert schema_in(value) is None
    assert schema_in(b'{"schema": {"a": 1}}') is None
