"""Intakes without rows cost no job; orders share what there is to read."""

from __future__ import annotations

import pytest
from tests.spark.transactions import Transactions, message

import strandline
from strandline.model.digest import Digest
from strandline.pipeline.compute import Intake
from strandline.spark.intakes import Intakes
from strandline.spark.jobs import Jobs
from strandline.spark.premises import Desks, Premises
from strandline.spark.resolves import Wanted, resolve_all
from strandline.testing.computing import ArrowComputer

TEXT = "CREATE TABLE t (id BIGINT, PRIMARY KEY (id)) USING generator;"


@pytest.fixture
def shop(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        made = Transactions(store, TEXT, ArrowComputer(store))
        yield made
        made.close()


@pytest.mark.parametrize("intakes", [(), (Intake("e", "t"),)])
def test_what_brings_nothing_costs_no_job(shop, intakes):
    desks = Desks(shop.store)
    jobs = Jobs(None, "", 2)
    with Premises(desks, shop.work(*intakes)) as premises:
        came = Intakes(premises, jobs, str).take()
        assert came.inputs == {intake.endpoint: Digest.ZERO for intake in intakes}
        assert resolve_all(premises, jobs, [Wanted("t", came.rows.get("t", []))]) == {}
    assert jobs.count == 0
    desks.close()


@pytest.mark.spark
def test_each_piece_is_read_once_by_not_too_many_tasks(shop, spark):
    desks = Desks(shop.store)
    jobs = Jobs(spark, "", 2)
    chunks = [[message(key, {"id": key})] for key in range(9)]
    with Premises(desks, shop.work(shop.staged("t", *chunks))) as premises:
        came = Intakes(premises, jobs, str).take()
        assert came.inputs["of.t"].count == 9
        assert len(came.rows["t"]) == 4
        assert sum(answer.rows_in for answer in came.rows["t"]) == 9
    assert jobs.count == 1
    desks.close()
