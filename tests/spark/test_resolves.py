"""All keyed collections of a transaction in one job."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.transactions import Transactions

import strandline
from strandline.spark import slices
from strandline.spark.instruction import Answer
from strandline.spark.jobs import Jobs
from strandline.spark.premises import Desks, Premises
from strandline.spark.resolves import Wanted, resolve_all
from strandline.testing.computing import ArrowComputer

TEXT = """
CREATE TABLE one (id BIGINT, PRIMARY KEY (id)) USING generator;
CREATE TABLE two (name STRING, PRIMARY KEY (name)) USING generator;
"""


def came(name, values):
    rows = pa.table({name: values, "_delete": [False] * len(values)})
    return [Answer(rows=slices.to_stream(rows))]


@pytest.mark.spark
def test_several_tables_are_one_job(tmp_path, spark):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        shop = Transactions(store, TEXT, ArrowComputer(store))
        desks, jobs = Desks(store), Jobs(spark, "", 2)
        wanted = [Wanted("one", came("id", [1, 2, 2])), Wanted("two", came("name", ["a"]))]
        with Premises(desks, shop.work()) as premises:
            loads = resolve_all(premises, jobs, wanted)
        assert jobs.count == 1
        found = {name: load.few.drop_columns(["_time"]).to_pylist() for name, load in loads.items()}
        assert sorted(found["one"], key=str) == [{"id": 1, "_diff": 1}, {"id": 2, "_diff": 1}]
        assert found["two"] == [{"name": "a", "_diff": 1}]
        desks.close()
        shop.close()
