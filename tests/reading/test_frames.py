"""Rows go into other libraries as they are, or are refused by name."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from strandline.errors import SchemaError
from strandline.reading.frames import for_duckdb, for_polars

LARGE = pa.table({"d": pa.array([Decimal(10) ** 60, None], pa.decimal256(76, 2))})
SMALL = pa.table({"d": pa.array([Decimal("-1.25"), None], pa.decimal256(38, 2))})
HALF = pa.table({"h": pa.array([np.float16(1.5), np.float16(-0.0), None], pa.float16())})
NESTED = pa.table({"n": pa.array([[Decimal(1)], None], pa.list_(pa.decimal256(38, 2)))})


@pytest.mark.parametrize("held", [for_polars, for_duckdb])
def test_rows_that_are_held_as_they_are_stay_the_same_table(held):
    rows = pa.table({"k": [1, 2], "s": ["a", None], "l": [[1], None]})
    assert held(rows) is rows


@pytest.mark.parametrize("held", [for_polars, for_duckdb])
@pytest.mark.parametrize("rows", [LARGE, NESTED], ids=["large", "nested"])
def test_a_decimal_that_is_not_held_is_refused_by_name(held, rows: pa.Table):
    with pytest.raises(SchemaError, match=f"'{rows.column_names[0]}' is a .*decimal256"):
        held(rows)


def test_polars_gets_decimals_of_256_bits_that_fit_128():
    frame = pl.from_arrow(for_polars(SMALL))
    assert isinstance(frame, pl.DataFrame)
    assert frame["d"].to_list() == [Decimal("-1.25"), None]


def test_duckdb_gets_small_decimals_and_halves():
    assert duckdb.from_arrow(for_duckdb(SMALL)).fetchall() == [(Decimal("-1.25"),), (None,)]
    assert duckdb.from_arrow(for_duckdb(HALF)).fetchall() == [(1.5,), (-0.0,), (None,)]


def test_a_half_in_a_nested_type_is_refused_for_duckdb_alone():
    rows = pa.table({"n": pa.array([{"h": np.float16(1)}], pa.struct([("h", pa.float16())]))})
    assert for_polars(rows) is rows
    with pytest.raises(SchemaError, match="DuckDB can't hold"):
        for_duckdb(rows)
