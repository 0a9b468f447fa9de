"""A schema changes only by adding, and rows fit it without loss or are refused by name."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import CorruptionError, SchemaError
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN, Field, Schema

PLAIN = pa.schema([("k", pa.int64()), ("v", pa.string())])


def schema(key: tuple[str, ...] = (), **columns: pa.DataType) -> Schema:
    return Schema.create(pa.schema(list(columns.items())), key)


def not_null(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


# --- create


# R20
def test_r20_columns_get_ids_from_one_on_in_their_order():
    made = Schema.create(pa.schema([not_null("k", pa.int64()), ("v", pa.string())]), ["k"])
    assert made.version == 1
    assert made.fields == (
        Field(1, "k", pa.int64(), nullable=False),
        Field(2, "v", pa.string(), nullable=True),
    )
    assert made.key == ("k",)
    assert made.key_fields() == made.fields[:1]


REFUSED = [
    ([], (), "at least one column"),
    ([(TIME_COLUMN, pa.int64())], (), "'_time' is ours"),
    ([("_Diff", pa.int64())], (), "'_Diff' is ours"),
    ([("a", pa.int64()), ("a", pa.int64())], (), "'a' and 'a' are the same"),
    ([("a", pa.int64()), ("A", pa.int64())], (), "'a' and 'A' are the same"),
    ([("", pa.int64())], (), "'' is refused"),
    ([("a\nb", pa.int64())], (), r"'a\\nb' is refused"),
    ([("a\x1b[31m", pa.int64())], (), "is refused"),
    ([("a", pa.int64())], ("b",), "no column 'b'"),
    ([("a", pa.int64())], ("a", "a"), "names a column twice"),
    ([("a", pa.int64())], "a", "write \\('a',\\)"),
    ([("a", pa.float32())], ("a",), "'a' of type float can't be part of a key.*NaN"),
    ([("a", pa.list_(pa.int8()))], ("a",), "'a' of type .* can't be part of a key.*nested"),
    ([("a", pa.null())], (), "'a'.*has no type"),
    ([("a", pa.month_day_nano_interval())], (), "'a'.*is refused"),
    ([("a", pa.sparse_union([pa.field("x", pa.int8())]))], (), "'a'.*is refused"),
    ([("a", pa.uuid())], (), "'a'.*extension type.*use fixed_size_binary\\[16\\]"),
    ([("a", pa.list_(pa.uuid()))], (), "'a'.*extension type"),
    ([("a", pa.struct([]))], (), "'a'.*struct without fields"),
    ([("a", pa.struct([("x", pa.int8()), ("X", pa.int8())]))], (), "'a'.*'x' and 'X'"),
    ([("a", pa.list_view(pa.int8()))], (), "'a'.*is refused"),
    ([("a", pa.map_(pa.string(), pa.null()))], (), "'a'.*has no type"),
    ([("a", pa.list_(pa.binary(0)))], (), "'a'.*Parquet can't hold it: use binary"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "key", "reason"), REFUSED)
def test_r21_what_cannot_be_a_schema_is_refused_with_the_reason(
    columns: list[tuple[str, pa.DataType]], key: tuple[str, ...], reason: str
):
    # R21
    with pytest.raises(SchemaError, match=reason):
        Schema.create(pa.schema(columns), key)


def test_something_else_than_an_arrow_schema_is_refused():
    with pytest.raises(SchemaError, match="pyarrow Schema, not dict"):
        Schema.create({"a": "int"})


def test_declaring_an_encoding_again_changes_nothing():
    declared = pa.schema([("c", pa.dictionary(pa.int8(), pa.string())), ("d", pa.date64())])
    made = Schema.create(declared)
    assert [each.type for each in made.fields] == [pa.string(), pa.date32()]
    assert made.evolve(declared) is made


# --- Arrow forms


def test_arrow_forms_carry_field_ids_and_the_two_columns_of_ours():
    made = schema(k=pa.int64(), v=pa.string())
    assert made.arrow().names == ["k", "v"]
    assert [f.metadata[b"PARQUET:field_id"] for f in made.arrow()] == [b"1", b"2"]
    time, diff = made.updates().field(TIME_COLUMN), made.updates().field(DIFF_COLUMN)
    assert made.updates().names == ["k", "v", "_time", "_diff"]
    assert (time.type, time.nullable, diff.type, diff.nullable) == (
        pa.int64(), False, pa.int64(), False,
    )  # fmt: skip
    assert time.metadata[b"PARQUET:field_id"] == b"2147483001"
    assert diff.metadata[b"PARQUET:field_id"] == b"2147483002"


INSTANT = dt.datetime(2024, 2, 29, 12, 30, 1, tzinfo=dt.UTC)
SAMPLES: list[tuple[pa.DataType, object]] = [
    (pa.bool_(), True),
    *((kind, 100) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, 200) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    *((kind, 1.5) for kind in (pa.float16(), pa.float32(), pa.float64())),
    (pa.date64(), INSTANT.date()),
    (pa.time32("s"), INSTANT.time()),
    (pa.time32("ms"), INSTANT.time()),
    (pa.time64("us"), INSTANT.time()),
    (pa.time64("ns"), INSTANT.time()),
    *((pa.timestamp(unit), INSTANT.replace(tzinfo=None)) for unit in ("s", "ms", "us", "ns")),
    (pa.timestamp("us", "Europe/Berlin"), INSTANT),
    *((pa.duration(unit), dt.timedelta(seconds=5)) for unit in ("s", "ms", "us", "ns")),
    (pa.decimal32(5, 2), Decimal("1.25")),
    (pa.decimal128(38, 2), Decimal("-1.25")),
    (pa.decimal256(76, 2), Decimal("1.25")),
    *((kind, "text") for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, b"four") for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4))),
    (pa.dictionary(pa.int8(), pa.string()), "text"),
    *((kind, [1, None]) for kind in (pa.list_(pa.int8()), pa.large_list(pa.int8()),
                                     pa.list_(pa.int8(), 2))),
    (pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))]), {"x": 1, "y": ["a"]}),
    (pa.map_(pa.string(), pa.int8()), [("a", 1), ("b", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sample"), SAMPLES, ids=[str(kind) for kind, _ in SAMPLES])
def test_rows_of_every_type_come_back_from_parquet_as_they_were(kind: pa.DataType, sample: object):
    made = schema(c=kind)
    rows = made.accepts(pa.table({"c": pa.array([sample, None], kind)}))
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    found = pq.read_table(sink)
    assert found.schema.equals(made.arrow())
    assert found.schema.field(0).metadata[b"PARQUET:field_id"] == b"1"
    assert found.equals(rows)
    assert row_base(found, made.ids).tolist() == row_base(rows, made.ids).tolist()


# --- evolve

WIDENINGS = [
    (pa.int8(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.uint8(), pa.uint32()),
    (pa.float16(), pa.float32()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(5, 2), pa.decimal128(20, 2)),
    (pa.decimal128(5, 2), pa.decimal256(50, 2)),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
]


@pytest.mark.parametrize(("old", "new"), WIDENINGS, ids=str)
def test_r23_a_type_may_widen_and_no_row_hash_changes(old: pa.DataType, new: pa.DataType):
    # R23
    before = schema(k=pa.int64(), c=old)
    after = before.evolve(pa.schema([("k", pa.int64()), ("c", new)]))
    assert (after.version, after.field("c").type, after.ids) == (2, new, before.ids)
    sample = {"f": 1.5, "h": 1.5, "d": Decimal("1.25"), "s": "text", "b": b"text"}
    value = sample.get(str(old)[0], 100)
    rows = pa.table({"k": [1, 2], "c": pa.array([value, None], old)})
    moved = after.migrate(rows, before.fields)
    assert moved.schema.equals(after.arrow())
    assert moved.to_pylist() == rows.to_pylist()
    assert row_base(moved, after.ids).tolist() == row_base(rows, before.ids).tolist()


def test_new_columns_are_appended_with_new_ids_wherever_they_are_declared():
    first = schema(k=pa.int64(), v=pa.string())
    second = first.evolve(pa.schema([("n", pa.int8()), ("v", pa.string()), ("k", pa.int64())]))
    assert [(f.id, f.name) for f in second.fields] == [(1, "k"), (2, "v"), (3, "n")]
    assert second.version == 2


def test_a_not_null_column_may_allow_nulls_later():
    first = Schema.create(pa.schema([not_null("k", pa.int64())]))
    assert first.evolve(pa.schema([("k", pa.int64())])).fields[0].nullable


def test_declaring_what_is_there_changes_nothing():
    first = schema(("k",), k=pa.int64(), v=pa.string())
    assert first.evolve(PLAIN) is first
    assert first.evolve(first.arrow(), key=["k"]) is first


NOT_ADDITIVE = [
    ([("k", pa.int64())], None, "'v' is missing.*dropped or renamed"),
    ([("k", pa.int64()), ("w", pa.string())], None, "'v' is missing"),
    ([("k", pa.int32()), ("v", pa.string())], None, "'k' can't change from int64 to int32"),
    ([("k", pa.uint64()), ("v", pa.string())], None, "'k' can't change"),
    ([("k", pa.float64()), ("v", pa.string())], None, "'k' can't change"),
    ([("k", pa.int64()), ("v", pa.binary())], None, "'v' can't change from string to binary"),
    ([("k", pa.int64()), not_null("v", pa.string())], None, "'v' can't become not-null"),
    ([*PLAIN, not_null("n", pa.int8())], None, "new column 'n' can't be not-null"),
    ([*PLAIN, ("V", pa.int8())], None, "'v' and 'V' are the same"),
    ([*PLAIN, ("_time", pa.int64())], None, "'_time' is ours"),
    ([*PLAIN], ("v",), "key can't change from 'k' to 'v'"),
    ([*PLAIN], (), "key can't change"),
]


@pytest.mark.parametrize(("columns", "key", "reason"), NOT_ADDITIVE)
def test_r22_a_change_that_is_not_additive_is_refused_with_the_reason(
    columns: list[pa.Field], key: tuple[str, ...] | None, reason: str
):
    # R22
    with pytest.raises(SchemaError, match=reason):
        schema(("k",), k=pa.int64(), v=pa.string()).evolve(pa.schema(columns), key)


NOT_WIDER = [
    (pa.date32(), pa.timestamp("us")),
    (pa.decimal128(5, 2), pa.decimal128(6, 3)),
    (pa.decimal128(5, 2), pa.decimal128(4, 2)),
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.uint8(), pa.int16()),
    (pa.large_string(), pa.string()),
    (pa.float64(), pa.float32()),
    (pa.binary(4), pa.binary()),
    (pa.list_(pa.int8()), pa.list_(pa.int16())),
    (pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int8()), ("y", pa.int8())])),
]


@pytest.mark.parametrize(("old", "new"), NOT_WIDER, ids=str)
def test_a_type_that_is_not_wider_is_refused(old: pa.DataType, new: pa.DataType):
    with pytest.raises(SchemaError, match="'c' can't change from"):
        schema(c=old).evolve(pa.schema([("c", new)]))


# --- accepts


def test_rows_are_brought_into_the_order_and_types_of_the_schema():
    made = schema(("k",), k=pa.int64(), v=pa.string())
    rows = pa.table({"v": pa.array(["a", None]).dictionary_encode(), "k": pa.array([1, 2], "int8")})
    accepted = made.accepts(rows)
    assert accepted.schema.equals(made.arrow(), check_metadata=True)
    assert accepted.to_pylist() == [{"k": 1, "v": "a"}, {"k": 2, "v": None}]


LOSSLESS = [
    (pa.array([1, None], pa.int64()), pa.int8()),
    (pa.array([1], pa.uint64()), pa.int64()),
    (pa.array([1.5], pa.float32()), pa.float64()),
    (pa.array(["a"], pa.large_string()), pa.string()),
    (pa.array(["a", None], pa.string_view()), pa.string()),
    (pc.run_end_encode(pa.array(["a", "a", None])), pa.string()),
    (pa.array([b"ab"], pa.binary()), pa.binary(2)),
    (pa.nulls(2), pa.struct([("x", pa.list_(pa.int8()))])),
    (pa.array([1000], pa.timestamp("ns")), pa.timestamp("us")),
    (pa.array([1], pa.timestamp("us", "Europe/Berlin")), pa.timestamp("us", "UTC")),
    (pa.array([Decimal("1.20")]), pa.decimal128(10, 1)),
    (pa.array([[1], None], pa.large_list(pa.int64())), pa.list_(pa.int8())),
    (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), pa.list_(pa.int8())),
    (pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), pa.list_(pa.string())),
    (pa.array([{"x": 1}]), pa.struct([("x", pa.int8())])),
    (pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.int64())), pa.map_("string", "int8")),
]  # fmt: skip


@pytest.mark.parametrize(("column", "kind"), LOSSLESS, ids=lambda c: str(getattr(c, "type", c)))
def test_values_that_have_an_equal_in_the_column_are_accepted(column: pa.Array, kind: pa.DataType):
    accepted = schema(c=kind).accepts(pa.table({"c": column})).column("c")
    assert accepted.type == kind
    assert [_plain(x) for x in accepted.to_pylist()] == [_plain(x) for x in column.to_pylist()]


def _plain(value: object) -> object:
    return value.timestamp() if isinstance(value, dt.datetime) else value


LOSSY = [
    (pa.array([1, 300]), pa.int8()),
    (pa.array([2**63], pa.uint64()), pa.int64()),
    (pa.array([-1]), pa.uint8()),
    (pa.array([1.0]), pa.int64()),
    (pa.array([1]), pa.float64()),
    (pa.array([1.5]), pa.float32()),
    (pa.array(["1"]), pa.int64()),
    (pa.array([1]), pa.string()),
    (pa.array([True]), pa.int8()),
    (pa.array(["a"]), pa.binary()),
    (pa.array([b"a"]), pa.string()),
    (pa.array([b"abc"]), pa.binary(2)),
    (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
    (pa.array([2**62], pa.timestamp("ms")), pa.timestamp("ns")),
    (pa.array([1], pa.timestamp("us")), pa.timestamp("us", "UTC")),
    (pa.array([1], pa.timestamp("us", "UTC")), pa.timestamp("us")),
    (pa.array([1], pa.date32()), pa.timestamp("us")),
    (pa.array([1], pa.date64()), pa.date32()),
    (pa.array([Decimal("1.25")]), pa.decimal128(10, 1)),
    (pa.array([Decimal("999.9")]), pa.decimal128(3, 1)),
    (pa.array([[1]]), pa.list_(pa.int8(), 1)),
    (pa.array([[1]], pa.list_(pa.int8(), 1)), pa.list_(pa.int8(), 2)),
    (pa.array([[1], None], pa.list_view(pa.int8())), pa.list_(pa.int8())),
    (pa.array([[300]]), pa.list_(pa.int8())),
    (pa.array([{"x": 1}]), pa.struct([("y", pa.int64())])),
    (pa.array([{"x": 1, "y": 2}]), pa.struct([("x", pa.int64())])),
    (pa.array([[1]]), pa.map_(pa.int64(), pa.int64())),
    (pa.array([1]), pa.list_(pa.int64())),
]


@pytest.mark.parametrize(("column", "kind"), LOSSY, ids=lambda c: str(getattr(c, "type", c)))
def test_values_that_would_change_are_refused_with_the_column(column: pa.Array, kind: pa.DataType):
    with pytest.raises(SchemaError, match=r"column 'c' of the rows: .*: cast it first"):
        schema(c=kind).accepts(pa.table({"c": column}))


MISFITS = [
    (pa.table({"k": [1]}), "lack 'v'"),
    (pa.table({"k": [1], "V": ["a"]}), "lack 'v'"),
    (pa.table({"k": [1], "v": ["a"], "w": [1]}), "no column 'w'"),
    (pa.table({"k": [1], "v": ["a"], "_time": [1]}), "no column '_time'"),
    (pa.table([[1], ["a"], ["b"]], names=["k", "v", "v"]), "several columns 'v'"),
    (
        pa.table({"k": [1, None, None], "v": ["a"] * 3}),
        "'k' is part of the key and row 1 .*one of 2",
    ),
    (pa.table({"k": pa.chunked_array([[1, 2], [3, None]]), "v": ["a"] * 4}), "row 3 "),
    ([{"k": 1, "v": "a"}], "pyarrow Table, not list"),
]


@pytest.mark.parametrize(("rows", "reason"), MISFITS)
def test_rows_that_do_not_fit_are_refused_by_name(rows: pa.Table, reason: str):
    with pytest.raises(SchemaError, match=reason):
        schema(("k",), k=pa.int64(), v=pa.string()).accepts(rows)


def test_a_null_in_a_column_declared_not_null_is_refused_with_its_row():
    made = Schema.create(pa.schema([not_null("n", pa.int64())]))
    with pytest.raises(SchemaError, match="'n' is declared not-null and row 2 "):
        made.accepts(pa.table({"n": [1, 2, None]}))
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([5, None]))
    with pytest.raises(SchemaError, match="row 1 "):
        made.accepts(pa.table({"n": hidden}))


def test_rows_whose_buffers_are_too_short_are_refused():
    # A stream that claims 999 rows and brings the bytes of 77: reading it checks nothing.
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("c", pa.int64())])) as writer:
        writer.write_table(pa.table({"c": pa.array([0] * 77, pa.int64())}))
    lying = sink.getvalue().replace((77).to_bytes(8, "little"), (999).to_bytes(8, "little"))
    rows = pa.ipc.open_stream(lying).read_all()
    assert rows.num_rows == 999
    with pytest.raises(SchemaError, match="not valid Arrow"):
        schema(c=pa.int64()).accepts(rows)


def test_no_rows_are_accepted_too():
    made = schema(("k",), k=pa.int64(), v=pa.string())
    assert made.accepts(made.arrow().empty_table()).num_rows == 0


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.sampled_from(["int8", "uint16", "int32"]))
def test_integers_are_accepted_exactly_if_all_of_them_fit(numbers: list[int], kind: str):
    bounds = np.iinfo(kind)
    made = schema(c=pa.type_for_alias(kind))
    rows = pa.table({"c": pa.array(numbers, pa.int64())})
    if all(bounds.min <= number <= bounds.max for number in numbers):
        assert made.accepts(rows).column("c").to_pylist() == numbers
    else:
        with pytest.raises(SchemaError):
            made.accepts(rows)


# --- migrate


def test_old_rows_are_brought_forward_by_field_id():
    first = schema(k=pa.int8(), v=pa.string())
    second = first.evolve(pa.schema([*first.arrow(), ("n", pa.list_(pa.int8()))]))
    third = second.evolve(pa.schema([("k", pa.int64()), *list(second.arrow())[1:]]))
    rows = pa.table(
        {"k": pa.array([1, 2], "int8"), "v": ["a", "b"], "_time": [3, 4], "_diff": [1, -1]}
    )
    moved = third.migrate(rows, first.fields)
    assert moved.schema.equals(third.updates(), check_metadata=True)
    assert moved.to_pylist() == [
        {"k": 1, "v": "a", "n": None, "_time": 3, "_diff": 1},
        {"k": 2, "v": "b", "n": None, "_time": 4, "_diff": -1},
    ]
    base = row_base(rows.select(["k", "v"]), first.ids).tolist()
    assert row_base(moved.select(list(third.names)), third.ids).tolist() == base


def test_only_the_columns_that_are_asked_for_need_to_be_there():
    first = schema(k=pa.int64(), v=pa.string())
    second = first.evolve(pa.schema([*PLAIN, ("n", pa.int8())]))
    moved = second.migrate(pa.table({"v": ["a"]}), first.fields, columns=["n", "v"])
    assert moved.to_pylist() == [{"n": None, "v": "a"}]
    with pytest.raises(SchemaError, match="no column 'x'"):
        second.migrate(pa.table({"v": ["a"]}), first.fields, columns=["x"])


DAMAGED = [
    (pa.table({"k": [1]}), "no single column 'v'"),
    (pa.table({"k": ["one"], "v": ["a"]}), "stored column 'k'"),
]


@pytest.mark.parametrize(("rows", "reason"), DAMAGED)
def test_stored_rows_that_are_not_what_they_say_are_corrupt(rows: pa.Table, reason: str):
    made = schema(k=pa.int64(), v=pa.string())
    with pytest.raises(CorruptionError, match=reason):
        made.migrate(rows, made.fields)


# --- wire


def every_type() -> Schema:
    columns = [(f"c{i}", kind) for i, (kind, _) in enumerate(SAMPLES)]
    first = Schema.create(pa.schema([not_null("k", pa.string()), *columns]), ["k"])
    return first.evolve(pa.schema([*first.arrow(), ("later", pa.int8())]))


@pytest.mark.parametrize(
    "kind", [pa.binary(0), pa.list_(pa.int32(), 0), pa.decimal128(5, -2)], ids=str
)
def test_a_type_that_is_not_declared_any_more_is_read_where_it_is_stored(kind: pa.DataType):
    older = Schema(1, (Field(1, "a", kind),))
    assert Schema.from_wire(older.to_wire()) == older


def test_a_schema_survives_its_wire_form():
    made = every_type()
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(made.to_wire()))
    found = Schema.from_wire(wire)
    assert found == made
    assert found.updates().equals(made.updates(), check_metadata=True)


PICKLED = pa.schema(
    [
        pa.field(
            "a",
            pa.int64(),
            metadata={
                "ARROW:extension:name": "arrow.py_extension_type",
                "ARROW:extension:metadata": "cos\nsystem\n(S'false'\ntR.",
            },
        )
    ]
)
GOOD = schema(a=pa.int64()).to_wire()
BROKEN: list[tuple[dict[str, object], str]] = [
    ({}, "version"),
    ({**GOOD, "version": "1"}, "version"),
    ({**GOOD, "version": 0}, "version 0"),
    ({**GOOD, "ids": [1, 2]}, "zip"),
    ({**GOOD, "ids": ["1"]}, "field ids"),
    ({**GOOD, "ids": [0]}, "field ids"),
    ({**GOOD, "key": ["b"]}, "no column"),
    ({**GOOD, "nullable": True}, "nullable"),
    ({**GOOD, "arrow": b""}, "can't be read"),
    ({**GOOD, "arrow": b"\xff" * 99}, "can't be read"),
    ({**GOOD, "arrow": GOOD["arrow"][:-9]}, "can't be read"),
    ({**GOOD, "arrow": pa.schema([("a", pa.uuid())]).serialize().to_pybytes()}, "extension"),
    ({**GOOD, "arrow": pa.schema([("_time", pa.int8())]).serialize().to_pybytes()}, "is ours"),
    ({**GOOD, "arrow": pa.schema([("a", pa.date64())]).serialize().to_pybytes()}, "kept as"),
]


@pytest.mark.parametrize(("wire", "reason"), BROKEN)
def test_a_wire_form_that_is_damaged_is_corrupt(wire: dict[str, object], reason: str):
    with pytest.raises(CorruptionError, match=reason):
        Schema.from_wire(wire)


def test_x3_a_pickle_in_the_wire_form_is_never_loaded(monkeypatch: pytest.MonkeyPatch):
    loaded = []
    monkeypatch.setattr("pickle.loads", loaded.append)
    wire = {**GOOD, "arrow": PICKLED.serialize().to_pybytes()}
    try:
        found = Schema.from_wire(wire)
    except CorruptionError:
        pass
    else:
        assert found.field("a").type == pa.int64()
    assert loaded == []
