"""What a program declares: plain values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.model.ids import valid_name
from strandline.views.declared import Table
from strandline.views.parse import parse

COLUMNS = pa.schema([("k", pa.int64())])


@pytest.mark.parametrize(("key", "envelope"), [((), "append"), (("k",), "upsert")])
def test_a_table_with_a_key_is_upserted_unless_it_says_otherwise(key, envelope):
    assert Table("t", COLUMNS, "http", key).envelope == envelope
    assert Table("t", COLUMNS, "http", key, envelope="debezium").envelope == "debezium"


def test_lines_are_no_part_of_what_is_declared():
    assert Table("t", COLUMNS, "http", line=1) == Table("t", COLUMNS, "http", line=2)


def test_shards_have_names_that_a_store_takes():
    program = parse(
        "CREATE TABLE t (k INT) USING http; CREATE MATERIALIZED VIEW v AS SELECT k FROM t"
    )
    table, view = program.tables[0], program.views[0]
    assert table.shard("shop") == "shop.t"
    assert table.errors_shard("shop") == "shop.t_errors"
    assert view.shard("shop") == f"shop.v.p{view.plan_hash[:12]}"
    for name in (table.errors_shard("shop"), view.shard("shop"), view.errors_shard("shop")):
        assert valid_name(name)
