"""What a filter keeps, what it refuses, and that statistics never rule out a row it keeps."""

import datetime as dt
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import SchemaError
from strandline.model.schema import Schema
from strandline.parts.filters import Filter, parse_filter
from strandline.parts.prune import stats_rows, stats_table
from strandline.parts.stats import encode_stats, measure

NAN = math.nan
SCHEMA = Schema.create(
    pa.schema(
        [
            ("i", pa.int32()),
            ("f", pa.float32()),
            ("s", pa.string()),
            ("b", pa.binary()),
            ("o", pa.bool_()),
            ("n", pa.decimal128(9, 2)),
            ("t", pa.timestamp("us")),
            ("z", pa.timestamp("us", "UTC")),
            ("d", pa.date32()),
            ("l", pa.list_(pa.int64())),
            ("u", pa.duration("us")),
            ("h", pa.float16()),
            ("x", pa.binary(2)),
            ("c", pa.time32("ms")),
        ]
    )
)


def column_filter(name: str, op: str, value: object = None) -> Filter:
    return parse_filter([(name, op, value)], SCHEMA)


def table_of(name: str, values: list[object]) -> pa.Table:
    columns = {
        field.name: pa.array(values, field.type)
        if field.name == name
        else pa.nulls(len(values), field.type)
        for field in SCHEMA.fields
    }
    return pa.table(columns, schema=SCHEMA.arrow())


def kept(name: str, values: list[object], op: str, value: object = None) -> list[object]:
    return column_filter(name, op, value).apply(table_of(name, values))[name].to_pylist()


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("=", 2, [2]),
        ("==", 2, [2]),
        ("!=", 2, [1, 3]),
        ("<", 2, [1]),
        ("<=", 2, [1, 2]),
        (">", 2, [3]),
        (">=", 2, [2, 3]),
        ("in", [1, 3, 9], [1, 3]),
        ("in", [], []),
        ("not in", [1, 3], [2]),
        ("not in", [], [1, 2, 3]),
        ("is null", None, [None]),
        ("is not null", None, [1, 2, 3]),
        ("not null", None, [1, 2, 3]),
    ],
)
def test_nulls_match_nothing_but_is_null(op: str, value: object, expected: list[object]):
    assert kept("i", [1, 2, None, 3], op, value) == expected


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("=", NAN, ["nan"]),
        ("!=", NAN, [1.0, -0.0]),
        ("<", NAN, [1.0, -0.0]),
        ("<=", NAN, [1.0, -0.0, "nan"]),
        (">", NAN, []),
        (">=", NAN, ["nan"]),
        (">", 0.5, [1.0, "nan"]),
        (">=", 1, [1.0, "nan"]),
        ("<", 0.5, [-0.0]),
        ("=", 0.0, [-0.0]),
        ("!=", 1.0, [-0.0, "nan"]),
        ("in", [NAN, 1.0], [1.0, "nan"]),
        ("in", [1.0], [1.0]),
        ("not in", [NAN], [1.0, -0.0]),
        ("not in", [1.0], [-0.0, "nan"]),
        ("is not null", None, [1.0, -0.0, "nan"]),
    ],
)
def test_nan_equals_itself_and_is_greater_than_every_number(
    op: str, value: object, expected: list[object]
):
    found = kept("f", [1.0, -0.0, NAN, None], op, value)
    assert [v if v == v else "nan" for v in found] == expected  # noqa: PLR0124


def test_narrow_floats_compare_as_the_numbers_they_are():
    assert kept("f", [0.1], ">", 0.1) == [np.float32(0.1)]
    assert kept("f", [0.1], "=", 0.1) == []


UTC = dt.UTC
VALUES: dict[str, list[object]] = {
    "s": ["a", "b", "é"],
    "b": [b"", b"a", b"\xff"],
    "o": [False, True, True],
    "n": [decimal.Decimal("-1.50"), decimal.Decimal(0), decimal.Decimal("2.25")],
    "t": [dt.datetime(2020, 1, day) for day in (1, 2, 3)],  # noqa: DTZ001
    "z": [dt.datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)],
    "d": [dt.date(2020, 1, day) for day in (1, 2, 3)],
    "u": [dt.timedelta(seconds=n) for n in (1, 2, 3)],
    "h": [0.5, 1.0, 2.0],
    "x": [b"aa", b"ab", b"zz"],
    "c": [dt.time(1), dt.time(2), dt.time(3)],
}


@pytest.mark.parametrize("name", VALUES)
def test_every_type_can_be_compared(name: str):
    values = VALUES[name]
    assert kept(name, [*values, None], ">=", values[1]) == values[1:]
    assert kept(name, [*values, None], "<", values[1]) == [v for v in values if v < values[1]]
    assert kept(name, [*values, None], "in", values[:1]) == values[:1]
    assert kept(name, [*values, None], "!=", values[0]) == [v for v in values if v != values[0]]
    stats = encode_stats(
        measure([(f.id, table_of(name, values)[f.name]) for f in SCHEMA.fields], 3)
    )
    assert column_filter(name, "=", values[0]).matches(stats, 3)
    assert not column_filter(name, "<", values[0]).matches(stats, 3)
    assert not column_filter(name, ">", values[-1]).matches(stats, 3)


def test_wrapped_values_are_taken_for_what_they_are():
    assert kept("i", [1, 2], "=", np.int64(2)) == [2]
    assert kept("i", [1, 2], "in", np.array([2, 5])) == [2]
    assert kept("s", ["a"], "=", pa.scalar("a")) == ["a"]


def test_alternatives_are_joined_by_or():
    wanted = parse_filter([[("i", "=", 1)], [("i", ">", 2), ("i", "<", 4)]], SCHEMA)
    assert wanted.apply(table_of("i", [1, 2, 3, 4]))["i"].to_pylist() == [1, 3]
    assert wanted.columns == ("i",)


@pytest.mark.parametrize("spec", [None, []])
def test_no_conditions_keep_everything(spec: list[object] | None):
    rows = table_of("i", [1, None])
    assert parse_filter(spec, SCHEMA).apply(rows) is rows
    assert parse_filter(spec, SCHEMA).matches(b"", 5)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ([("nope", "=", 1)], "unknown column 'nope': there are i, f, s"),
        ([("i", "~", 1)], "operator '~'"),
        ([("i", ["="], 1)], "operator"),
        ([("i", "=", "1")], "column i is a int32: it can't be compared with '1'"),
        ([("i", "=", True)], "can't be compared with True"),
        ([("i", "=", 1.5)], "can't be compared with 1.5"),
        ([("i", "=", 2**40)], "can't hold"),
        ([("i", "=", None)], "use 'is null'"),
        ([("i", "in", [1, None])], "use 'is null'"),
        ([("i", "in", 5)], "takes a list"),
        ([("s", "in", "abc")], "takes a list"),
        ([("o", "=", 1)], "can't be compared with 1"),
        ([("n", "=", 1.5)], "can't be compared"),
        ([("n", "=", decimal.Decimal("1.555"))], "can't hold"),
        ([("t", "=", dt.datetime(2020, 1, 1, tzinfo=UTC))], "has a time zone"),
        ([("z", "=", dt.datetime(2020, 1, 1))], "has no time zone"),  # noqa: DTZ001
        ([("d", "=", dt.datetime(2020, 1, 1))], "can't be compared"),  # noqa: DTZ001
        ([("l", "=", [1])], "only 'is null'"),
        ([("i", "=")], "is not \\(column, op, value\\)"),
        (("i", "=", 1), "write a list"),
        ("i = 1", "write a list"),
        (5, "write a list"),
        ([("i", "=", 1), [("i", "=", 1)]], "list of such lists"),
        ([["i", "=", 1]], "is not \\(column, op, value\\)"),
    ],
)
def test_filters_that_can_not_be_right_are_refused(spec: object, words: str):
    with pytest.raises(SchemaError, match=words):
        parse_filter(spec, SCHEMA)  # type: ignore[arg-type]


def test_nested_columns_can_be_asked_for_null():
    assert kept("l", [[1], None], "is null") == [None]
    assert column_filter("l", "is null").matches(b"", 2)


_SMALL = st.one_of(st.none(), st.integers(-3, 3))
_FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.0, -1.5, 0.1, NAN, math.inf]))
_TEXTS = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "a", "b", "a" * 32, "a" * 33, "a" * 40 + "b", "é" * 20, "\U0010ffff" * 10]
    ),
)
_OPS = ["=", "!=", "<", "<=", ">", ">="]


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, object]:
    name, values = draw(st.sampled_from([("i", _SMALL), ("f", _FLOATS), ("s", _TEXTS)]))
    op = draw(st.sampled_from([*_OPS, "in", "not in", "is null", "is not null"]))
    some = values.filter(lambda v: v is not None)
    if op in ("in", "not in"):
        return name, op, draw(st.lists(some, max_size=3))
    return name, op, None if op.startswith("is") else draw(some)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 4))
    rows = {
        name: draw(st.lists(values, min_size=count, max_size=count))
        for name, values in (("i", _SMALL), ("f", _FLOATS), ("s", _TEXTS))
    }
    return pa.table(
        [
            pa.array(rows[f.name], f.type) if f.name in rows else pa.nulls(count, f.type)
            for f in SCHEMA.fields
        ],
        schema=SCHEMA.arrow(),
    )


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.lists(conditions(), min_size=1, max_size=2), min_size=1, max_size=2),
    st.lists(tables(), min_size=1, max_size=3),
)
def test_a_pruned_part_never_holds_a_row_that_matches(
    spec: list[list[tuple[str, str, object]]], parts: list[pa.Table]
):
    wanted = parse_filter(spec, SCHEMA)
    known = [measure([(f.id, t[f.name]) for f in SCHEMA.fields], t.num_rows) for t in parts]
    rows = [t.num_rows for t in parts]
    stats = stats_table([*known, None], [*rows, 5], [(f.id, f.type) for f in SCHEMA.fields])
    may = wanted.prune(stats)
    impossible = any(v == [] or v != v for group in spec for _, _, v in group)  # noqa: PLR0124
    assert may[-1] or impossible, "a part without statistics was ruled out"
    for at, part in enumerate(parts):
        matching = wanted.apply(part).num_rows
        assert may[at] or not matching
        assert wanted.matches(encode_stats(known[at]), rows[at]) == may[at]
    again = stats_table(stats_rows(stats), [*rows, 5], [(f.id, f.type) for f in SCHEMA.fields])
    assert (wanted.prune(again) == may).all()


@settings(max_examples=300, deadline=None)
@given(conditions(), tables())
def test_rows_are_kept_exactly_as_spark_would(condition: tuple[str, str, object], rows: pa.Table):
    """The same rules once more, one value at a time and in plain Python."""
    name, op, value = condition
    column = rows[name].to_pylist()
    expected = [row for row, v in enumerate(column) if _spark(v, op, value)]
    numbered = rows.append_column("row", pa.array(range(len(column))))
    assert column_filter(name, op, value).apply(numbered)["row"].to_pylist() == expected


def _spark(value: object, op: str, other: object) -> bool:
    if op == "is null":
        return value is None
    if value is None:
        return False
    if op in ("is not null", "not in", "in"):
        listed = isinstance(other, list) and any(_rank(value) == _rank(o) for o in other)
        return op == "is not null" or listed == (op == "in")
    mine, theirs = _rank(value), _rank(other)
    outcomes = {
        "=": mine == theirs,
        "!=": mine != theirs,
        "<": mine < theirs,
        "<=": mine <= theirs,
        ">": mine > theirs,
        ">=": mine >= theirs,
    }
    return outcomes[op]


def _rank(value: object) -> tuple[int, object]:
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value.encode() if isinstance(value, str) else value)


def test_many_values_are_looked_for_as_the_range_they_span():
    stats = encode_stats(measure([(1, pa.array([500], pa.int32()))], 1))
    assert column_filter("i", "in", list(range(0, 1000, 7))).matches(stats, 1)
    assert not column_filter("i", "in", list(range(501, 1000))).matches(stats, 1)
    assert not column_filter("i", "in", [499, 501]).matches(stats, 1)
