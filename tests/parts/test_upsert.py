"""What rows that came in make of the rows that were there."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from strandline.errors import BoundsError, SchemaError, UsageError
from strandline.model.engine import Rules
from strandline.model.rowhash import row_base
from strandline.model.schema import Schema
from strandline.parts.layout import lay_out
from strandline.parts.upsert import Resolved, resolve

NAN = float("nan")
SCHEMA = Schema.create(
    pa.schema([("k", pa.int64()), ("v", pa.string()), ("s", pa.int32())]), ("k",)
)
STORED = Rules(("s",))
T0 = 10
"""The first time of everything that comes in."""


def incoming(rows: list[tuple], *, ordered: bool = True) -> pa.Table:
    """Rows of (key, value, order, time) or (key, None, order, time) for deletions."""
    table = pa.table(
        {
            "k": pa.array([r[0] for r in rows], pa.int64()),
            "v": pa.array([r[1] for r in rows], pa.string()),
            "s": pa.array([r[2] for r in rows], pa.int32()),
            "_time": pa.array([r[3] for r in rows], pa.int64()),
            "_delete": pa.array([r[1] is None for r in rows], pa.bool_()),
        }
    )
    return table.append_column("_order0", table["s"]) if ordered else table


def stored(rows: list[tuple]) -> pa.Table:
    return pa.table(
        [list(column) for column in zip(*rows, strict=True)] or [[], [], []], SCHEMA.names
    ).cast(SCHEMA.arrow())


def said(found: Resolved) -> list[str]:
    """The updates as text: `+1a@10` inserts the value a of key 1 at time 10."""
    return sorted(
        f"{'+' if u['_diff'] > 0 else '-'}{u['k']}{u['v']}@{u['_time']}"
        for u in found.updates.to_pylist()
    )


# What is there, what comes in, and what follows. Values None delete. Counts: superseded, late,
# unchanged. The numbers of rules are those of the module.
CASES = {
    "a new key is inserted (7)": ([], [(1, "a", 1, 10)], ["+1a@10"], (0, 0, 0)),
    "a key's row is replaced (7)": (
        [(1, "a", 1)],
        [(1, "b", 2, 10)],
        ["+1b@10", "-1a@10"],
        (0, 0, 0),
    ),
    "a key is deleted (7)": ([(1, "a", 1)], [(1, None, 2, 10)], ["-1a@10"], (0, 0, 0)),
    "other keys stay (7)": ([(1, "a", 1), (2, "b", 1)], [(2, None, 2, 10)], ["-2b@10"], (0, 0, 0)),
    "nothing comes in": ([(1, "a", 1)], [], [], (0, 0, 0)),
    "an equal row says nothing (6)": ([(1, "a", 1)], [(1, "a", 1, 10)], [], (0, 0, 1)),
    "an absent key is not deleted (6)": ([], [(1, None, 1, 10)], [], (0, 0, 1)),
    "the last of a time counts (2)": (
        [(1, "a", 1)],
        [(1, "x", 3, 10), (1, "y", 4, 10), (1, "z", 2, 10)],
        ["+1y@10", "-1a@10"],
        (2, 0, 0),
    ),
    "a deletion may be the last (2)": (
        [(1, "a", 1)],
        [(1, None, 4, 10), (1, "z", 2, 10)],
        ["-1a@10"],
        (1, 0, 0),
    ),
    "a row may follow a deletion (2)": (
        [(1, "a", 1)],
        [(1, None, 2, 10), (1, "z", 3, 10)],
        ["+1z@10", "-1a@10"],
        (1, 0, 0),
    ),
    "a null is the lowest order (2)": (
        [],
        [(1, "x", None, 10), (1, "y", -5, 10)],
        ["+1y@10"],
        (1, 0, 0),
    ),
    "a deletion is the last of one order (3)": (
        [],
        [(1, None, 4, 10), (1, "z", 4, 10)],
        [],
        (1, 0, 1),
    ),
    "every time has its updates (7)": (
        [(1, "a", 1)],
        [(1, "c", 3, 12), (1, "b", 2, 10), (1, None, 4, 15)],
        ["+1b@10", "+1c@12", "-1a@10", "-1b@12", "-1c@15"],
        (0, 0, 0),
    ),
    "a row that returns later returns (7)": (
        [(1, "a", 1)],
        [(1, None, 2, 10), (1, "a", 1, 11)],
        ["+1a@11", "-1a@10"],
        (0, 0, 0),
    ),
    "a row equal to the last time's says nothing (6)": (
        [(1, "a", 1)],
        [(1, "b", 2, 10), (1, "b", 2, 11), (1, "c", 2, 12)],
        ["+1b@10", "+1c@12", "-1a@10", "-1b@12"],
        (0, 0, 1),
    ),
    "two deletions are one (6)": (
        [(1, "a", 1)],
        [(1, None, 2, 10), (1, None, 3, 11)],
        ["-1a@10"],
        (0, 0, 1),
    ),
}


@pytest.mark.parametrize(("old", "came", "expected", "counts"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("rules", [Rules(), STORED])
def test_what_follows_from_what_comes_in(old, came, expected, counts, rules):
    for rows in (came, came[::-1]):
        found = resolve(incoming(rows), stored(old), SCHEMA, rules)
        assert said(found) == expected
        assert (found.superseded, found.late, found.unchanged) == counts


# As above, with rules.compare_stored; the order is a column of the shard.
LATE = {
    "lower than the stored row (5)": ([(1, "a", 5)], [(1, "b", 4, 10)], [], (0, 1, 0)),
    "as high as the stored row (5)": (
        [(1, "a", 5)],
        [(1, "b", 5, 10)],
        ["+1b@10", "-1a@10"],
        (0, 0, 0),
    ),
    "a deletion that is lower (5)": ([(1, "a", 5)], [(1, None, 4, 10)], [], (0, 1, 0)),
    "a null is lower than a number (5)": ([(1, "a", -5)], [(1, "b", None, 10)], [], (0, 1, 0)),
    "a stored null is lower than a number (5)": (
        [(1, "a", None)],
        [(1, "b", -5, 10)],
        ["+1b@10", "-1a@10"],
        (0, 0, 0),
    ),
    "lower than what came at an earlier time (5)": (
        [],
        [(1, "a", 5, 10), (1, "b", 4, 11), (1, "c", 6, 12)],
        ["+1a@10", "+1c@12", "-1a@12"],
        (0, 1, 0),
    ),
    "lower than one before the last (5)": (
        [(1, "a", 5)],
        [(1, "b", 4, 10), (1, "c", 3, 11), (1, "d", 5, 12)],
        ["+1d@12", "-1a@12"],
        (0, 2, 0),
    ),
    "a key that was deleted takes any (5)": (
        [(1, "a", 5)],
        [(1, None, 6, 10), (1, "b", 1, 11), (1, "c", 0, 12)],
        ["+1b@11", "-1a@10"],
        (0, 1, 0),
    ),
    "a late deletion leaves the order (5)": (
        [(1, "a", 5)],
        [(1, None, 4, 10), (1, "b", 3, 11)],
        [],
        (0, 2, 0),
    ),
    "the losers of a time are not late (2, 5)": (
        [(1, "a", 5)],
        [(1, "b", 4, 10), (1, "c", 3, 10)],
        [],
        (1, 1, 0),
    ),
    "keys have orders of their own (5)": (
        [(1, "a", 9), (2, "a", 1)],
        [(1, "b", 5, 10), (2, "b", 5, 10)],
        ["+2b@10", "-2a@10"],
        (0, 1, 0),
    ),
}


@pytest.mark.parametrize(("old", "came", "expected", "counts"), LATE.values(), ids=LATE.keys())
def test_a_stored_row_is_compared_if_the_rules_say_so(old, came, expected, counts):
    for rows in (came, came[::-1]):
        found = resolve(incoming(rows), stored(old), SCHEMA, STORED)
        assert said(found) == expected
        assert (found.superseded, found.late, found.unchanged) == counts


UNORDERED = {
    "different rows": ([(1, "x", 0, 10), (1, "y", 0, 10)], False),
    "a row and a deletion": ([(1, "x", 0, 10), (1, None, 0, 10)], False),
    "three, two of them equal": ([(1, "x", 0, 10), (1, "y", 0, 10), (1, "x", 0, 10)], False),
    "equal rows": ([(1, "x", 0, 10), (1, "x", 0, 10)], True),
    "deletions that hold different things": ([(1, None, 0, 10), (1, None, 7, 10)], True),
    "different times": ([(1, "x", 0, 10), (1, "y", 0, 11)], True),
    "different keys": ([(1, "x", 0, 10), (2, "y", 0, 10)], True),
}


@pytest.mark.parametrize(("came", "fine"), UNORDERED.values(), ids=UNORDERED.keys())
def test_without_an_order_nobody_guesses_which_row_is_the_last(came, fine):
    for rows in (came, came[::-1]):
        if fine:
            resolve(incoming(rows, ordered=False), stored([]), SCHEMA, Rules())
        else:
            with pytest.raises(UsageError, match=r"'k' = 1 has different rows at time 10"):
                resolve(incoming(rows, ordered=False), stored([]), SCHEMA, Rules())


def test_of_rows_of_one_order_the_greatest_row_hash_counts():
    rows = [(1, f"v{n}", 4, 10) for n in range(20)]
    table = incoming(rows)
    hashes = row_base(table.select(SCHEMA.names), SCHEMA.ids)
    expected = f"+1v{int(np.argmax(hashes))}@10"
    for order in (rows, rows[::-1]):
        assert said(resolve(incoming(order), stored([]), SCHEMA, Rules())) == [expected]


REFUSED = [
    (lambda t: t.set_column(0, "k", pa.nulls(2, pa.int64())), SchemaError, "null in 'k'"),
    (lambda t: t.drop_columns(["v"]), SchemaError, "no column 'v'"),
    (lambda t: t.drop_columns(["_time"]), SchemaError, "no column '_time'"),
    (lambda t: t.append_column("w", pa.array([1, 2])), SchemaError, "column 'w'"),
    (lambda t: t.append_column("v", pa.array([1, 2])), SchemaError, "column 'v'"),
    (lambda t: t.append_column("_order2", pa.array([1, 2])), SchemaError, "no column '_order1'"),
    (
        lambda t: t.set_column(1, "v", pa.array([1, 2])),
        SchemaError,
        "column 'v' of the rows: int64",
    ),
    (lambda t: t.set_column(3, "_time", pa.nulls(2, pa.int64())), BoundsError, "null in _time"),
    (lambda t: t.set_column(3, "_time", pa.array([1, -1])), BoundsError, "_time -1"),
    (
        lambda t: t.set_column(4, "_delete", pa.array([1, 0])),
        SchemaError,
        "_delete must be of type bool",
    ),
    (
        lambda t: t.set_column(5, "_order0", pa.array([[1], [2]])),
        UsageError,
        "can't be put in order",
    ),
]


@pytest.mark.parametrize(("spoil", "error", "why"), REFUSED)
def test_what_does_not_fit_is_refused_by_name(spoil, error, why):
    table = incoming([(1, "a", 1, 10), (2, "b", 1, 10)])
    resolve(table, stored([]), SCHEMA, Rules())
    with pytest.raises(error, match=why):
        resolve(spoil(table), stored([]), SCHEMA, Rules())


def test_two_live_rows_of_a_key_are_refused_by_name():
    for second in ("a", "b"):
        with pytest.raises(UsageError, match="more than one row of key 'k' = 1"):
            resolve(
                incoming([(1, "c", 1, 10)]), stored([(1, "a", 1), (1, second, 1)]), SCHEMA, Rules()
            )


def test_a_column_that_may_hold_no_null_may_in_deletions():
    columns = [pa.field("k", pa.string()), pa.field("v", pa.int64(), nullable=False)]
    schema = Schema.create(pa.schema(columns), ("k",))
    old = pa.table([["x"], [1]], schema=schema.arrow())
    came = pa.table({"k": ["x"], "v": pa.nulls(1, pa.int64()), "_time": [3], "_delete": [True]})
    assert resolve(came, old, schema, Rules()).updates.to_pylist() == [
        {"k": "x", "v": 1, "_time": 3, "_diff": -1}
    ]
    kept = came.set_column(3, "_delete", pa.nulls(1, pa.bool_()))
    with pytest.raises(SchemaError, match=r"row 0 .* null in 'v'"):
        resolve(kept, old, schema, Rules())


def test_the_rules_name_as_many_stored_columns_as_there_are_orders():
    for rules in (Rules(("s", "v")), Rules(("s",))):
        with pytest.raises(UsageError, match="can't be compared"):
            resolve(incoming([], ordered=len(rules.compare_stored) > 1), stored([]), SCHEMA, rules)


def test_a_shard_whose_columns_have_our_names_is_refused():
    schema = Schema.create(pa.schema([("k", pa.int64()), ("_delete", pa.bool_())]), ("k",))
    came = pa.table({"k": [1], "_delete": [True], "_time": [3]})
    with pytest.raises(SchemaError, match="'_delete' has a name that upserts use"):
        resolve(came, schema.arrow().empty_table(), schema, Rules())


def test_updates_lie_as_a_part_wants_them_and_bring_their_places_and_hashes():
    old = stored([(n, "old", 1) for n in range(50)])
    came = incoming([(n, None if n % 5 == 0 else "new", 2, 10 + n % 3) for n in range(25, 75)])
    found = resolve(came, old, SCHEMA, STORED)
    laid = lay_out(found.updates, SCHEMA)
    assert laid.order is None
    assert laid.places is not None
    assert found.places.tolist() == laid.places.tolist()
    rows = found.updates.select(SCHEMA.names)
    assert found.hashes.tolist() == row_base(rows, SCHEMA.ids).tolist()
    assert found.updates.schema.equals(SCHEMA.updates(), check_metadata=True)


# Every kind of value, each two of which are different, and some that are equal to the first.
VALUES = [
    (pa.float64(), [0.0, NAN, 1.5, None], [-0.0]),
    (pa.float32(), [NAN, 0.0, None], [NAN]),
    (pa.float16(), [np.float16(0.0), np.float16(1), None], [np.float16(-0.0)]),
    (pa.bool_(), [True, False, None], []),
    (pa.large_string(), ["", "a", None], []),
    (pa.large_binary(), [b"", b"a", None], []),
    (pa.binary(2), [b"ab", b"cd", None], []),
    (pa.decimal128(9, 2), [Decimal("1.10"), Decimal(-2), None], []),
    (pa.decimal256(50, 2), [Decimal("1.10"), Decimal(-2), None], []),
    (pa.date32(), [0, 1, None], []),
    (pa.time32("ms"), [0, 1, None], []),
    (pa.timestamp("ns"), [0, 1, None], []),
    (pa.timestamp("us", "+02:00"), [0, 1, None], []),
    (pa.duration("ms"), [0, 1, None], []),
    (pa.list_(pa.float64()), [[0.0], [NAN], [], [None], [0.0, 0.0], None], [[-0.0]]),
    (pa.large_list(pa.string()), [["a"], [], None], []),
    (pa.list_(pa.int8(), 2), [[1, 2], [2, 1], [None, 1], None], []),
    (pa.struct([("a", pa.float32())]), [{"a": 0.0}, {"a": None}, None], [{"a": -0.0}]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)], [("a", 2)], [], None], []),
    (pa.list_(pa.struct([("a", pa.list_(pa.int8()))])), [[{"a": [1]}], [{"a": []}], None], []),
]


@pytest.mark.parametrize(("kind", "different", "same"), VALUES, ids=[str(v[0]) for v in VALUES])
def test_rows_compare_as_the_row_hash_sees_them_in_every_type(kind, different, same):
    schema = Schema.create(pa.schema([("k", pa.string()), ("x", kind)]), ("k",))

    def table(value, **own):
        return pa.table({"k": ["a"], "x": pa.array([value], kind), **own})

    for one in different:
        for other in different:
            found = resolve(table(other, _time=[1]), table(one), schema, Rules())
            assert found.updates["_diff"].to_pylist() == ([] if one is other else [-1, 1])
    for other in same:
        found = resolve(table(other, _time=[1]), table(different[0]), schema, Rules())
        assert found.unchanged == 1
        twice = pa.concat_tables([table(x, _time=[1]) for x in (different[0], other)])
        assert resolve(twice, table(None).slice(0, 0), schema, Rules()).superseded == 1


def test_rows_whose_hashes_are_equal_are_compared_by_value(monkeypatch):
    monkeypatch.setattr(
        "strandline.parts.upsert.row_base", lambda rows, ids: np.zeros(rows.num_rows, np.uint64)
    )
    found = resolve(incoming([(1, "b", 1, 10)]), stored([(1, "a", 1)]), SCHEMA, Rules())
    assert said(found) == ["+1b@10", "-1a@10"]
    rows = [(1, "a", 1, 10), (1, "b", 1, 10)]
    with pytest.raises(UsageError, match="different rows"):
        resolve(incoming(rows, ordered=False), stored([]), SCHEMA, Rules())
