"""From a user's DataFrame to the columns that tasks take."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

from strandline.errors import SchemaError, UsageError
from strandline.model.schema import Schema
from strandline.spark.incoming import Meaning, to_append, to_look_up, to_upsert

SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("my `v`", pa.string())]), ("k",))


@pytest.fixture
def frame(spark):
    return spark.createDataFrame([("a", 1, None)], "`my ``v``` string, k long, gone boolean")


def test_columns_come_in_the_tables_order_whatever_their_names(frame):
    assert to_append(frame.drop("gone"), SCHEMA, timed=False).columns == ["k", "my `v`"]
    with pytest.raises(SchemaError, match="no column 'gone'"):
        to_append(frame, SCHEMA, timed=False)
    with pytest.raises(SchemaError, match="leave _time out"):
        to_append(frame.withColumnRenamed("gone", "_time"), SCHEMA, timed=False)


def test_expressions_become_columns_and_null_does_not_delete(frame):
    meaning = Meaning.of(["k", "-k", F.lit(1)], "gone")
    chosen = to_upsert(frame, SCHEMA, meaning, timed=False)
    assert chosen.columns == ["k", "my `v`", "_delete", "_order0", "_order1", "_order2"]
    assert tuple(chosen.collect()[0]) == (1, "a", False, 1, -1, 1)


def test_a_column_used_only_in_a_column_expression_may_be_extra(frame):
    meaning = Meaning.of(None, F.col("gone"))
    assert to_upsert(frame, SCHEMA, meaning, timed=False).columns == ["k", "my `v`", "_delete"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [(None, ()), ("k", ("k",)), (["k", "my `v`"], ("k", "my `v`")), ("-k", ()), (["k", "-k"], ())],
)
def test_an_order_is_compared_with_what_is_stored_only_if_it_is_all_columns(given, stored):
    assert Meaning.of(given, None).stored(SCHEMA) == stored


def test_a_sort_order_is_refused_before_a_job_takes_it(frame):
    for order in (F.col("k").desc(), F.col("k").asc_nulls_last(), "k DESC", "k desc nulls first"):
        with pytest.raises(UsageError, match=r"sequenceBy 'k .* is a sort order"):
            to_upsert(frame, SCHEMA, Meaning.of(order, "gone"), timed=False)
    named = frame.withColumn("a desc", F.lit(1))
    for order in ("a desc", "`a desc`", F.col("a desc"), "concat(`a desc`, ' desc')"):
        assert to_upsert(named, SCHEMA, Meaning.of(order, "gone"), timed=False).columns[-1:] == [
            "_order0"
        ]


def test_only_the_key_is_taken_of_rows_to_look_up(frame):
    assert to_look_up(frame, SCHEMA).columns == ["k"]
    with pytest.raises(SchemaError, match="the keys lack 'k'"):
        to_look_up(frame.drop("k"), SCHEMA)
