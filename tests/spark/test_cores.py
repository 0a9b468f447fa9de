"""How much this machine does at once."""

from __future__ import annotations

import os

import pytest

from strandline.spark.cores import cores_for, cores_here


def test_a_process_that_may_use_one_core_has_one() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system does not bind processes to cores")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cores_here() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert cores_here() == len(before)


def test_the_machine_of_a_server_is_another_one() -> None:
    classic = type("SparkSession", (), {"__module__": "pyspark.sql.session"})
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    assert cores_for(classic()) == cores_here()
    assert cores_for(remote()) is None
