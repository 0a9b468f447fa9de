"""What a source sends becomes rows and errors; it never raises."""

import io
import json
import time

import fastavro
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings, strategies as st

from strandline.connectors import incoming
from strandline.connectors.generator import recipe
from strandline.connectors.incoming import ERRORS, decode, out_schema
from strandline.connectors.raw import raw_batch, typed_schema
from strandline.connectors.reading import reading

from .writing import EVERY, PLAIN, written

SCHEMA = pa.schema(
    [pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False), ("lsn", pa.int64())]
)


def decoded(values, keys=None, schema=SCHEMA, key=("id",), **options):
    values = [json.dumps(v).encode() if isinstance(v, dict) else v for v in values]
    how = reading(schema, key, options)
    found = decode(raw_batch(values, "p", range(10, 10 + len(values)), keys=keys), how)
    found.table.validate(full=True)
    assert found.table.schema == out_schema(how)
    return found, how


def good(found, how):
    return found.rows(how).select([*how.schema.names, "_delete"]).to_pydict()


def test_good_rows_have_their_columns_and_their_order():
    found, how = decoded([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    assert found.rows(how).to_pylist() == [
        {
            "id": 1, "name": "a", "lsn": None, "_delete": False, "_keep": None, "_order0": "p",
            "_order1": 10,
        },
        {
            "id": 2, "name": "b", "lsn": None, "_delete": False, "_keep": None, "_order0": "p",
            "_order1": 11,
        },
    ]  # fmt: skip
    ordered, by = decoded([{"id": 1, "name": "a", "lsn": 5}], sequenceBy="lsn")
    row = ordered.rows(by).to_pylist()[0]
    assert (row["_order0"], row["_order1"], row["_order2"]) == (5, "p", 10)


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        (b"not json", None, "malformed"),
        (b"", None, "truncated"),
        (b'{"id": 1, "name": "\xff"}', None, "utf-8"),
        ({"id": "x", "name": "a"}, None, "$.id"),
        ({"id": 1}, None, "column 'name' is null"),
        ({"name": "a"}, None, "key's column 'id' is null"),
        (None, None, "key's column 'id' is null"),
        (None, b"zz", "key's column 'id' is null"),
        ({"id": 2**63, "name": "a"}, None, "column 'id'"),
        (b"[" * 100_000, None, ""),
    ],
)
def test_a_value_that_can_not_be_decoded_is_an_error_row(value, key, reason):
    found, how = decoded([{"id": 8, "name": "a"}, value], [None, key])
    assert found.rows(how)["id"].to_pylist() == [8]
    wrong = found.table.filter(found.table["_error"].is_valid()).to_pylist()
    assert len(wrong) == 1
    assert reason in wrong[0]["_error"]
    assert wrong[0]["_raw"] == (json.dumps(value).encode() if isinstance(value, dict) else value)
    assert wrong[0]["_offset"] == 11


def healed(found):
    """The errors that are left if the last word on each id counts."""
    last = {}
    for row in sorted(found.errors().to_pylist(), key=lambda row: row["_order1"]):
        last[row["id"]] = None if row["_delete"] else row["value"]
    return {key: value for key, value in last.items() if value is not None}


@pytest.mark.parametrize(
    ("values", "keys", "left"),
    [
        ([b"bad", {"id": 1, "name": "a"}], [b"1", b"1"], {}),
        ([b"bad", {"id": 1, "name": "a"}], [b"1", b"2"], {b"1": b"bad"}),
        ([b"bad", None], [b"1", b"1"], {}),
        ([{"id": 1, "name": "a"}, b"bad"], [b"1", b"1"], {b"1": b"bad"}),
        ([{"id": 1}, {"id": 1, "name": "a"}], None, {}),
        ([{"id": 1}, {"id": 2, "name": "a"}], None, {b"1": b'{"id": 1}'}),
        ([b"bad", {"id": 1, "name": "a"}], None, {b"at\x1fp\x1f10": b"bad"}),
        ([{"id": 1, "name": 5}, {"id": 1, "name": "a"}], None, {}),
        ([{"id": 1, "name": 5}, {"id": 2, "name": "a"}], None, {b"1": b'{"id": 1, "name": 5}'}),
        ([{"id": 1, "name": 5}, {"id": 1, "_delete": True}], None, {}),
        (
            [{"id": 1, "name": 5}, {"id": 1, "name": "a"}],
            [b"k", None],
            {b"k": b'{"id": 1, "name": 5}'},
        ),
        (
            [{"id": 2**63, "name": 5}],
            None,
            {b"at\x1fp\x1f10": b'{"id": 9223372036854775808, "name": 5}'},
        ),
        ([{"id": None, "name": 5}], None, {b"at\x1fp\x1f10": b'{"id": null, "name": 5}'}),
    ],
)
def test_an_error_is_healed_by_the_next_good_value_of_its_key(values, keys, left):
    found, _ = decoded(values, keys)
    assert healed(found) == left
    assert found.errors().schema.names[: len(ERRORS)] == ERRORS.names


@pytest.mark.parametrize(
    ("bad", "good", "options"),
    [
        (b"x,1,a", b"5,1,a", {"format": "csv", "csv.columns": "lsn,id,name"}),
        (b"1,a,x", b"1,a,5", {"format": "csv"}),
        ({"id": 1, "name": "a", "x": 1, "lsn": "y"}, {"id": 1, "name": "a"}, {"newColumns": "add"}),
        (
            {"op": "u", "before": {"id": 1, "name": 5}, "after": {"id": 1, "name": 6}},
            {"op": "d", "before": {"id": 1}},
            {"envelope": "debezium"},
        ),
        (
            {"payload": {"op": "d", "before": {"id": 1}, "source": {"lsn": "x"}}},
            {"op": "c", "after": {"id": 1, "name": "a"}, "source": {"lsn": 1}},
            {"envelope": "debezium", "sequenceBy": "lsn"},
        ),
    ],
)
def test_an_error_is_known_by_its_key_where_that_can_be_read(bad, good, options):
    found, _ = decoded([bad], **options)
    assert found.errors()["id"].to_pylist() == [b"1"]
    found, _ = decoded([bad, good], **options)
    assert found.table["_error"].null_count == 1
    assert healed(found) == {}


def test_an_error_of_a_table_without_keys_is_known_by_its_place():
    found, _ = decoded([{"id": 1, "name": 5}], key=())
    assert found.errors()["id"].to_pylist() == [b"at\x1fp\x1f10"]


def test_keys_that_a_row_leaves_out_come_from_the_message():
    found, how = decoded(
        [{"name": "a"}, None, {"id": 7, "name": "b"}, None],
        [b'{"id":5}', b"6", b"8", b'{"payload":9}'],
    )
    assert good(found, how) == {
        "id": [5, 6, 7, 9],
        "name": ["a", None, "b", None],
        "lsn": [None] * 4,
        "_delete": [False, True, False, True],
    }


def test_debezium_in_one_piece():
    messages = [
        {"op": "c", "after": {"id": 1, "name": "a"}, "source": {"lsn": 3}},
        {
            "op": "u",
            "after": {"id": 1, "name": "__debezium_unavailable_value"},
            "source": {"lsn": 4},
        },
        {"op": "d", "before": {"id": 1, "name": "a", "lsn": 0}, "source": {"lsn": 9}},
        None,
        {"op": "t"},
        {"op": "c", "after": {"id": 2, "name": "b", "age": 5}, "ts_ms": 1, "lsn": 11},
    ]
    found, how = decoded(messages, envelope="debezium", sequenceBy="lsn", newColumns="add")
    rows = found.rows(how).to_pylist()
    assert [(r["id"], r["_order0"], r["_delete"], r["_keep"]) for r in rows] == [
        (1, 3, False, None), (1, 4, False, ["name"]), (1, 9, True, None), (2, 11, False, None)
    ]  # fmt: skip
    errors = found.table.filter(found.table["_error"].is_valid())
    assert errors.select(["_offset", "_error"]).to_pylist() == [
        {
            "_offset": 14,
            "_error": "op t has no 'lsn', so no place in the order that sequenceBy gives",
        }
    ]
    assert not found.truncations(how).num_rows
    assert found.fresh == {"age": pa.int64()}


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ({"id": 1, "_delete": True}, {}),
        ({"op": "d", "before": {"id": 1, "name": "a"}}, {"envelope": "debezium"}),
        ({"op": "d", "before": {"id": 1}, "source": {"ts_ms": 5}}, {"envelope": "debezium"}),
    ],
)
def test_a_deletion_without_a_place_in_the_order_is_an_error_and_not_lost(message, options):
    found, how = decoded([message], sequenceBy="lsn", **options)
    assert found.rows(how).num_rows == 0
    (error,) = found.errors().to_pylist()
    assert (error["id"], error["_delete"]) == (b"1", False)
    assert error["reason"] == (
        "a deletion has no 'lsn', so no place in the order that sequenceBy gives"
    )
    placed = {**message, "lsn": 7} if "id" in message else {**message, "source": {"lsn": 7}}
    found, how = decoded([message, placed], sequenceBy="lsn", **options)
    assert found.rows(how)["_delete"].to_pylist() == [True]
    assert healed(found) == {}


def test_typed_values_that_nobody_could_read_again_are_errors_of_their_rows():
    names = pa.array([b"a", b"\xff", b"c"], pa.binary())
    at = pa.array([0, 0, 10**18], pa.int64()).cast(pa.timestamp("us"))
    columns = [pa.array([1, 2, 3]), pa.Array.from_buffers(pa.string(), 3, names.buffers()), at]
    fields = [pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("at", at.type)]
    places = [pa.array(["p"] * 3), pa.array([0, 1, 2])]
    rows = pa.RecordBatch.from_arrays([*columns, *places], schema=typed_schema(fields))
    how = reading(pa.schema(fields), ("id",), {})
    found = decode(rows, how)
    found.table.validate(full=True)
    assert found.rows(how)["id"].to_pylist() == [1]
    errors = {row["id"]: row["reason"] for row in found.errors().to_pylist() if row["reason"]}
    assert errors == {
        b"2": "column 'name': its text is no UTF-8",
        b"3": "column 'at': it lies outside of the years 1 to 9999; see option numberUnit",
    }


def test_after_the_table_has_evolved_new_fields_are_read():
    wider = SCHEMA.append(pa.field("age", pa.int64()))
    found, how = decoded([{"id": 1, "name": "a", "age": 5}], schema=wider, newColumns="add")
    assert found.rows(how)["age"].to_pylist() == [5]
    assert found.fresh == {}


def test_csv_rows_follow_the_first_line_of_their_file():
    how = reading(SCHEMA, ("id",), {"format": "csv"})
    one = raw_batch([b"1,a", b"2"], "f1", [8, 12], header=("csv.columns", b'["id","name"]'))
    two = raw_batch([b'"b, c",x,3'], "f2", [9], header=("csv.columns", b'["name","other","id"]'))
    found = decode(pa.Table.from_batches([one, two]), how)
    assert found.rows(how).select(["id", "name"]).to_pydict() == {
        "id": [1, 3],
        "name": ["a", "b, c"],
    }
    assert [e for e in found.table["_error"].to_pylist() if e] == ["1 cells in a row of 2 columns"]


def test_typed_rows_are_cast_or_become_errors():
    schema = typed_schema([pa.field("id", pa.decimal128(20, 0)), pa.field("name", pa.string())])
    rows = [
        {"id": 1, "name": "a", "_partition": "p", "_offset": 0},
        {"id": 10**19, "name": "b", "_partition": "p", "_offset": 1},
        {"id": 3, "name": None, "_partition": "p", "_offset": 2},
    ]
    how = reading(SCHEMA, ("id",), {"format": "parquet", "newColumns": "add"})
    found = decode(pa.Table.from_pylist(rows, schema), how)
    assert found.rows(how)["id"].to_pylist() == [1]
    assert [bool(each) for each in found.table["_error"].to_pylist()] == [False, True, True]
    wider = pa.Table.from_pylist(rows[:1], schema).append_column("x", [["y"]])
    assert decode(wider, how).fresh == {"x": pa.string()}


def test_the_generators_deletions_need_only_their_key():
    made = recipe({"columns": "id bigint, name string", "deletes": "0.5"})
    how = reading(SCHEMA, ("id",), {})
    found = decode(made.rows(0, 100), how)
    assert found.rows(how).num_rows == 100
    assert found.rows(how)["_delete"].to_pylist() == made.rows(0, 100)["_delete"].to_pylist()


def test_changes_that_are_appended_keep_how_often():
    schema = typed_schema(list(SCHEMA), pa.field("_diff", pa.int64()))
    rows = [{"id": 1, "name": "a", "_partition": "t", "_offset": 3, "_diff": -2}]
    how = reading(SCHEMA, (), {})
    found = decode(pa.Table.from_pylist(rows, schema), how)
    assert found.appended(how)["_diff"].to_pylist() == [-2]
    plain, how = decoded([{"id": 1, "name": "a"}], key=())
    assert plain.appended(how).to_pylist() == [{"id": 1, "name": "a", "lsn": None, "_diff": 1}]


def test_nothing_makes_nothing():
    found, how = decoded([])
    assert found.rows(how).num_rows == 0
    csv = reading(SCHEMA, ("id",), {"format": "csv"})
    assert decode(raw_batch([], "p", []), csv).table.num_rows == 0


CASES = [("json", each) for each in EVERY] + [("csv", each) for each in PLAIN]


def cell(value):
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "" if value is None else '"' + text.replace('"', '""') + '"'


@settings(deadline=None, max_examples=15, phases=[Phase.explicit, Phase.generate])
@given(st.data())
@pytest.mark.parametrize(("form", "kind"), CASES, ids=str)
def test_rows_of_every_type_survive_their_format(form, kind, data):
    schema = pa.schema([("a b", kind), ("c", pa.int64())])
    drawn = data.draw(st.lists(EVERY[kind] | st.none(), min_size=1, max_size=4))
    if form == "json":
        values = [json.dumps({"a b": written(each), "c": 1}).encode() for each in drawn]
    else:
        values = [f"{cell(written(each))},1".encode() for each in drawn]
    found, how = decoded(values, schema=schema, key=(), format=form)
    assert [each for each in found.table["_error"].to_pylist() if each] == []
    is_map = pa.types.is_map(kind)
    expected = [[*each.items()] if is_map and each is not None else each for each in drawn]
    got = found.appended(how)["a b"].to_pylist()
    assert repr(got) == repr(pa.array(expected, kind).to_pylist())


AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "lsn", "type": ["null", "long"]},
    ],
}


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(["json", "csv", "avro"]),
    st.sampled_from(["append", "upsert", "debezium"]),
    st.lists(
        st.tuples(st.binary(max_size=20), st.integers(0, 90), st.none() | st.binary()), max_size=5
    ),
)
def test_mangled_bytes_are_error_rows_and_never_raise(kind, envelope, noises):
    envelope = "upsert" if kind == "csv" and envelope == "debezium" else envelope
    row = {"id": 1, "name": "a", "lsn": 3}
    whole = {"op": "u", "before": None, "after": row, "source": {"lsn": 4}}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, AVRO, row)
    value = {
        "json": json.dumps(whole if envelope == "debezium" else row).encode(),
        "csv": b'1,"a",3',
        "avro": stream.getvalue(),
    }[kind]
    values = [
        value[: at % len(value)] + noise + value[at % len(value) + 1 :] for noise, at, _ in noises
    ]
    found, how = decoded(
        [*values, None], [*(key for _, _, key in noises), b"1"], format=kind, envelope=envelope,
        **{"avro.schema": json.dumps(AVRO)},
    )  # fmt: skip
    assert found.table.num_rows <= len(values) + 1
    assert found.rows(how).num_rows + found.table["_error"].is_valid().to_pylist().count(True) == (
        found.table.num_rows
    )


def test_x11_values_without_end_are_error_rows(monkeypatch):
    """Nesting that would exhaust the stack, and values that would exhaust memory."""
    monkeypatch.setattr(incoming, "VALUE_MAX", 100_000)
    monkeypatch.setattr(incoming, "KEPT_MAX", 10)
    deep = b'{"id": 1, "name": %s}' % (b"[" * 20_000 + b"]" * 20_000)
    values = [deep, b'{"id": 2, "name": "%s"}' % (b"x" * 100_000), b'{"id": 3, "name": "c"}']
    for envelope in ("upsert", "debezium"):
        found, how = decoded(values[:2], envelope=envelope)
        errors = found.table["_error"].to_pylist()
        assert errors[1] == f"it has {len(values[1])} bytes, and 100000 are taken"
        assert errors[0]
        assert found.table["_raw"].to_pylist() == [each[:10] for each in values[:2]]
        assert found.rows(how).num_rows == 0
    found, how = decoded(values)
    assert good(found, how)["id"] == [3]


BLOCK = {"version": "2.4.0.Final", "name": "shop", "sequence": '["1","2"]', "lsn": 5, "ts_ms": 9}


@pytest.mark.parametrize(
    ("name", "kind", "own", "expected"),
    [
        ("version", pa.int64(), 3, 3),
        ("version", pa.string(), "v3", "v3"),
        ("name", pa.string(), "n", "n"),
        ("sequence", pa.int64(), 3, 3),
        ("transaction", pa.int64(), 3, 3),
        ("op", pa.int64(), 3, 3),
        ("source", pa.int64(), 3, 3),
        # What orders events comes before what the row has, which deletions may not have.
        ("lsn", pa.int64(), 3, 5),
        ("ts_ms", pa.int64(), None, 9),
    ],
)
def test_a_sequence_of_the_tables_own_is_not_taken_for_another_thing_of_its_name(
    name, kind, own, expected
):
    schema = pa.schema([("id", pa.int64()), (name, kind)])
    row = {"id": 1} if own is None else {"id": 1, name: own}
    block = {"source": BLOCK, "transaction": {"id": "7"}}
    messages = [
        {"op": "u", "before": row, "after": row, **block},
        {"op": "d", "before": row, **block},
    ]
    for each in (messages, [{"schema": {}, "payload": message} for message in messages]):
        found, how = decoded(each, schema=schema, envelope="debezium", sequenceBy=name)
        assert found.table["_error"].null_count == 2
        assert found.rows(how)[name].to_pylist() == [expected] * 2
        assert found.rows(how)["_order0"].to_pylist() == [expected] * 2


def test_a_place_that_can_not_be_read_is_an_error_where_the_row_has_none():
    for row in ({"id": 1, "name": "a"}, {"id": 1, "name": "a", "lsn": None}):
        message = {"op": "c", "after": row, "source": {"lsn": "x"}}
        found, _ = decoded([message], envelope="debezium", sequenceBy="lsn")
        assert "$.source.lsn" in found.table["_error"].to_pylist()[0]


def test_x11_many_bad_values_cost_no_more_than_as_many_good_ones():
    values = [b'{"id": 1, "name": "a"}', b'{"id": 1, "name": 5}'] * 30_000
    begun = time.process_time()
    found, _ = decoded(values)
    assert found.table["_error"].null_count == 30_000
    assert time.process_time() - begun < 4, (
        "it takes 14 s where each is looked for in a set made anew"
    )
