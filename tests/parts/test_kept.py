"""Columns that keep what their key's row has."""

import numpy as np
import pyarrow as pa
import pytest

from strandline.errors import SchemaError
from strandline.model.engine import Rules
from strandline.model.schema import Schema
from strandline.parts.kept import holders, keep_flags
from strandline.parts.upsert import resolve

SCHEMA = Schema.create(
    pa.schema([("k", pa.int64()), ("v", pa.string()), ("big", pa.string()), ("s", pa.int64())]),
    ("k",),
)
KEEP = ["big"]


def incoming(*rows):
    """Rows of (key, v, big, order, time, kept columns); v None deletes."""
    return pa.table(
        {
            "k": pa.array([r[0] for r in rows], pa.int64()),
            "v": pa.array([r[1] for r in rows], pa.string()),
            "big": pa.array([r[2] for r in rows], pa.string()),
            "s": pa.array([r[3] for r in rows], pa.int64()),
            "_time": pa.array([r[4] for r in rows], pa.int64()),
            "_delete": pa.array([r[1] is None for r in rows], pa.bool_()),
            "_order0": pa.array([r[3] for r in rows], pa.int64()),
            "_keep": pa.array([r[5] for r in rows], pa.list_(pa.string())),
        }
    )


def stored(*rows):
    names = SCHEMA.names
    return pa.Table.from_pylist([dict(zip(names, r, strict=True)) for r in rows], SCHEMA.arrow())


def inserted(found):
    updates = found.updates.to_pylist()
    return [(u["k"], u["v"], u["big"], u["_time"]) for u in updates if u["_diff"] > 0]


CASES = {
    "from the stored row": (
        [(1, "a", "XX", 1)], [(1, "b", None, 2, 5, KEEP)], [(1, "b", "XX", 5)],
    ),
    "from nothing": ([], [(1, "b", None, 2, 5, KEEP)], [(1, "b", None, 5)]),
    "from another key never": (
        [(2, "a", "XX", 1)], [(1, "b", None, 2, 5, KEEP)], [(1, "b", None, 5)],
    ),
    "from a row of the same time that did not last": (
        [(1, "a", "XX", 1)],
        [(1, "b", "YY", 2, 5, None), (1, "c", None, 3, 5, KEEP)],
        [(1, "c", "YY", 5)],
    ),
    "from an earlier time, over several rows that keep": (
        [],
        [(1, "b", "YY", 2, 5, None), (1, "c", None, 3, 6, KEEP), (1, "d", None, 4, 7, KEEP)],
        [(1, "b", "YY", 5), (1, "c", "YY", 6), (1, "d", "YY", 7)],
    ),
    "not from before a deletion": (
        [(1, "a", "XX", 1)],
        [(1, None, "ZZ", 2, 5, None), (1, "c", None, 3, 6, KEEP)],
        [(1, "c", None, 6)],
    ),
    "not from a row that came too late": (
        [(1, "a", "XX", 4)],
        [(1, "b", "YY", 2, 5, None), (1, "c", None, 5, 6, KEEP)],
        [(1, "c", "XX", 6)],
    ),
    "whatever it says itself": (
        [(1, "a", "XX", 1)], [(1, "b", "mine", 2, 5, KEEP)], [(1, "b", "XX", 5)],
    ),
    "several columns": (
        [(1, "a", "XX", 1)], [(1, "b", None, 2, 5, ["big", "v"])], [(1, "a", "XX", 5)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "came", "expected"), CASES.values(), ids=CASES.keys())
def test_a_kept_column_has_the_value_of_the_row_before(old, came, expected):
    rules = Rules(("s",))
    assert inserted(resolve(incoming(*came), stored(*old), SCHEMA, rules)) == expected
    backwards = resolve(incoming(*came[::-1]), stored(*old), SCHEMA, rules)
    assert inserted(backwards) == expected


def test_a_row_that_keeps_all_that_changed_says_nothing():
    old, came = stored((1, "a", "XX", 1)), incoming((1, "a", None, 1, 5, KEEP))
    found = resolve(came, old, SCHEMA, Rules())
    assert (found.updates.num_rows, found.unchanged) == (0, 1)


@pytest.mark.parametrize("wrong", ["k", "none"])
def test_only_columns_beside_the_key_can_be_kept(wrong):
    with pytest.raises(SchemaError, match=f"keeps '{wrong}'"):
        keep_flags(incoming((1, "a", None, 1, 5, [wrong])), SCHEMA)


def test_a_column_without_nulls_can_not_be_kept_from_nothing():
    fields = [("k", pa.int64()), ("v", pa.string())]
    strict = pa.schema([*fields, pa.field("big", pa.string(), nullable=False), ("s", pa.int64())])
    schema = Schema.create(strict, ("k",))
    old = pa.Table.from_pylist([{"k": 1, "v": "a", "big": "XX", "s": 1}], schema.arrow())
    fine = resolve(incoming((1, "b", None, 2, 5, KEEP)), old, schema, Rules())
    assert inserted(fine) == [(1, "b", "XX", 5)]
    with pytest.raises(SchemaError, match="'k' = 7 keeps 'big'"):
        resolve(incoming((7, "b", None, 2, 5, KEEP)), old, schema, Rules())


def test_nobody_holds_for_no_events():
    none = np.zeros(0, np.bool_)
    assert holders(np.zeros(0, np.int64), none, none).tolist() == []
    assert keep_flags(incoming((1, "a", None, 1, 5, None)), SCHEMA) == {}
