"""The option deleteWhen."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import SchemaError, UsageError
from strandline.spark.source_delete import DeleteWhen, parse_delete_when


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("gone", DeleteWhen("gone", True)),
        ("gone = false", DeleteWhen("gone", False)),
        ("op = 'D'", DeleteWhen("op", "D")),
        ("op=='it''s'", DeleteWhen("op", "it's")),
        ("`my op` = 3", DeleteWhen("my op", 3)),
    ],
)
def test_conditions_are_columns_and_values(text, meant):
    assert parse_delete_when(text) == meant


@pytest.mark.parametrize("text", ["", "op > 3", "op = 'D' or true", "lower(op) = 'd'"])
def test_anything_else_is_left_to_table_upsert(text):
    with pytest.raises(UsageError, match=r"use table\.upsert"):
        parse_delete_when(text)


def test_rows_are_marked_and_nulls_are_not():
    rows = pa.table({"op": ["D", None, "U"], "n": pa.array([3, 4, None], pa.int32())})
    assert DeleteWhen("op", "D").marks(rows).tolist() == [True, False, False]
    assert DeleteWhen("n", 3).marks(rows).tolist() == [True, False, False]


def test_a_value_of_another_type_is_refused():
    with pytest.raises(SchemaError, match="deleteWhen compares column 'n'"):
        DeleteWhen("n", "D").marks(pa.table({"n": pa.array([3], pa.int32())}))
    with pytest.raises(SchemaError, match="deleteWhen compares column 'n'"):
        DeleteWhen("n", 10**23).marks(pa.table({"n": pa.array([3], pa.int32())}))


@pytest.mark.parametrize("column", [pa.array(["true"]), pa.array([1, 2])])
@pytest.mark.parametrize("value", [True, False])
def test_a_column_alone_is_a_boolean_one(column, value):
    with pytest.raises(SchemaError, match=r"names column 'op', .* not boolean: write which value"):
        DeleteWhen("op", value).marks(pa.table({"op": column}))
    told = pa.array([True, False, None])
    assert DeleteWhen("op", value).marks(pa.table({"op": told})).tolist() == [
        value,
        not value,
        False,
    ]
