"""Where the updates of some keys lie in a block."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import SchemaError, UsageError
from strandline.model.schema import Schema
from strandline.parts import layout
from strandline.parts.layout import lay_out, places_of
from strandline.parts.lookup import Keys, find, rows_equal, take_rows

NAN = float("nan")
COLUMNS = pa.schema([("v", pa.int64()), ("g", pa.string()), ("k", pa.int32())])
SCHEMA = Schema.create(COLUMNS, ("k", "g"))

# Every type that a key may have, with values that differ in one way that matters.
KEYS = [
    *((kind, [-128, 0, 127]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, [0, 1, 255]) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    (pa.bool_(), [True, False]),
    (pa.string(), ["", "a", "a\0", "ä"]),
    (pa.large_string(), ["", "a", "b"]),
    (pa.binary(), [b"", b"\0", b"\0\0"]),
    (pa.large_binary(), [b"", b"x", b"y"]),
    (pa.binary(2), [b"ab", b"ac"]),
    (pa.decimal128(9, 2), [Decimal("1.10"), Decimal("-1.10"), Decimal(0)]),
    (pa.decimal256(60, 2), [Decimal(10) ** 50, Decimal(0)]),
    (pa.date32(), [-1, 0, 1]),
    *((kind, [0, 1]) for kind in (pa.time32("ms"), pa.time64("us"), pa.time64("ns"))),
    *((pa.timestamp(unit), [-1, 0, 1]) for unit in ("ms", "us", "ns")),
    (pa.timestamp("us", "Europe/Berlin"), [0, 1]),
    *((pa.duration(unit), [-1, 0]) for unit in ("s", "ms", "us", "ns")),
]


def rows(keys: list[tuple[int, str]]) -> pa.Table:
    columns = {"v": range(len(keys)), "g": [g for _, g in keys], "k": [k for k, _ in keys]}
    return pa.table(columns, schema=SCHEMA.arrow())


def block_of(table: pa.Table, schema: Schema, chunk: int = 0) -> tuple[pa.Table, np.ndarray]:
    laid = lay_out(table, schema)
    assert laid.places is not None
    return chunked(laid.updates, chunk), laid.places


def chunked(table: pa.Table, size: int) -> pa.Table:
    """The same rows in chunks of this size; some are empty, as filters leave them."""
    if not size:
        return table.combine_chunks()
    pieces = [table.slice(at, size) for at in range(0, table.num_rows, size)]
    return pa.concat_tables([table.slice(0, 0), *pieces, table.slice(0, 0)])


KEY = st.tuples(st.integers(0, 6), st.sampled_from(["", "a", "b"]))


@settings(deadline=None)
@given(st.lists(KEY, max_size=30), st.lists(KEY, max_size=8), st.sampled_from([0, 1, 3]))
def test_all_updates_of_wanted_keys_are_found_and_no_others(
    held: list[tuple[int, str]], wanted: list[tuple[int, str]], size: int
):
    block, places = block_of(rows(held), SCHEMA, size)
    found = find(block, places, Keys.of(rows(wanted), SCHEMA))
    expected = [
        at for at, row in enumerate(block.to_pylist()) if (row["k"], row["g"]) in set(wanted)
    ]
    assert found.tolist() == expected


@settings(deadline=None)
@given(st.lists(KEY, max_size=12), st.lists(KEY, max_size=8), st.sampled_from([0, 2]))
def test_keys_that_share_a_place_are_told_apart(
    held: list[tuple[int, str]], wanted: list[tuple[int, str]], size: int
):
    def crowded(table: pa.Table, _schema: Schema) -> np.ndarray:
        return (table["k"].to_numpy() % 2).astype(np.uint64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "places_of", crowded)
        block, places = block_of(rows(held), SCHEMA, size)
        keys = Keys.of(rows(wanted), SCHEMA)
        found = find(block, places, keys)
    assert [(key["k"], key["g"]) for key in keys.values.to_pylist()] == sorted(
        set(wanted), key=lambda key: (key[0] % 2, key)
    )
    assert found.tolist() == [
        at for at, row in enumerate(block.to_pylist()) if (row["k"], row["g"]) in set(wanted)
    ]


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_a_key_may_have_every_type_that_a_schema_allows(kind: pa.DataType, values: list[object]):
    schema = Schema.create(pa.schema([("key", kind)]), ("key",))
    assert schema.field("key").type == kind
    table = pa.table([pa.array(values * 3, kind)], schema=schema.arrow())
    block, places = block_of(table, schema)
    for at in range(len(values)):
        one = table.slice(at, 1)
        found = find(block, places, Keys.of(one, schema))
        assert len(found) == 3
        assert take_rows(block, found)["key"].unique().equals(one["key"].chunk(0))


def test_keys_are_distinct_and_lie_as_updates_do():
    keys = Keys.of(rows([(n % 5, "x") for n in range(40)]), SCHEMA)
    assert len(keys) == 5
    assert keys.values.column_names == ["k", "g"]
    assert (keys.places[1:] > keys.places[:-1]).all()
    assert keys.places.tolist() == places_of(keys.values, SCHEMA).tolist()


def test_keys_in_another_type_are_taken_for_those_of_the_schema():
    given_keys = pa.table(
        {"g": pa.array(["a"]).dictionary_encode(), "k": pa.array([1], pa.int64())}
    )
    block, places = block_of(rows([(1, "a"), (2, "a")]), SCHEMA)
    found = find(block, places, Keys.of(given_keys, SCHEMA))
    assert take_rows(block, found)["k"].to_pylist() == [1]


def test_keys_between_two_places_include_both_ends():
    keys = Keys.of(rows([(n, "") for n in range(9)]), SCHEMA)
    inner = keys.between(int(keys.places[2]), int(keys.places[5]))
    assert inner.places.tolist() == keys.places[2:6].tolist()
    assert inner.values.equals(keys.values.slice(2, 4))
    assert len(keys.between(0, 2**64 - 1)) == 9
    assert len(keys.between(int(keys.places[2]) + 1, int(keys.places[3]) - 1)) == 0


REFUSED = [
    (pa.table({"k": pa.array([1, None], pa.int32()), "g": ["a", "b"]}), r"row 1 .* null in 'k'"),
    (pa.table({"k": pa.array([1], pa.int32())}), "no single column 'g'"),
    (pa.table({"k": [2**40], "g": ["a"]}), "not every int64 fits int32"),
    (pa.table({"k": [1.5], "g": ["a"]}), "can't be taken for int32"),
]


@pytest.mark.parametrize(("given_keys", "why"), REFUSED)
def test_what_is_no_key_is_refused(given_keys: pa.Table, why: str):
    with pytest.raises(SchemaError, match=why):
        Keys.of(given_keys, SCHEMA)


def test_without_a_key_nothing_can_be_found_by_one():
    with pytest.raises(UsageError, match="no key"):
        Keys.of(rows([]), Schema.create(COLUMNS))


def test_only_places_and_the_keys_of_hits_are_read():
    held = [(n, "x") for n in range(4096)]
    block, places = block_of(rows(held), SCHEMA)
    looked_at: list[int] = []

    class Watched(np.ndarray):
        def searchsorted(self, *args: object, **named: object) -> object:
            looked_at.append(self.size)
            return super().searchsorted(*args, **named)

        def __getitem__(self, at: object) -> object:
            raise AssertionError("the places were copied")

    find(block, places.view(Watched), Keys.of(rows([(7, "x")]), SCHEMA))
    assert looked_at == [4096, 4096]


@pytest.mark.parametrize("size", [0, 1, 2, 5])
@pytest.mark.parametrize("positions", [[], [0], [4, 0, 4], [3, 2, 1], [0, 1, 2, 3, 4]])
def test_rows_are_taken_from_any_chunks_in_any_order(size: int, positions: list[int]):
    table = rows([(n, str(n)) for n in range(5)])
    wanted = np.array(positions, np.int64)
    found = take_rows(chunked(table, size), wanted)
    assert found.schema.equals(table.schema)
    assert found.equals(table.take(pa.array(wanted)))


EQUALS = [
    (pa.float64(), 0.0, -0.0, True),
    (pa.float64(), NAN, NAN, True),
    (pa.float64(), NAN, 0.0, False),
    (pa.float64(), NAN, None, False),
    (pa.float32(), 1.5, 1.5, True),
    (pa.float16(), np.float16(NAN), np.float16(NAN), True),
    (pa.float16(), np.float16(1), np.float16(2), False),
    (pa.int64(), None, None, True),
    (pa.int64(), None, 0, False),
    (pa.string(), "", None, False),
    (pa.decimal256(50, 2), Decimal("1.10"), Decimal("1.10"), True),
]


@pytest.mark.parametrize(("kind", "one", "other", "expected"), EQUALS)
def test_values_are_equal_as_the_row_hash_sees_it(
    kind: pa.DataType, one: object, other: object, *, expected: bool
):
    mine = pa.table({"x": pa.array([one], kind), "same": [1]})
    theirs = pa.table({"x": pa.array([other], kind), "same": [1]})
    assert rows_equal(mine, theirs).tolist() == [expected]
    assert rows_equal(theirs, mine).tolist() == [expected]
