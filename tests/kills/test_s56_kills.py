"""S56 with real processes: killed again and again, and the history is that of a run never killed.

Also, at every life: S58 (what was sealed is finished with exactly its rows), S66 (numbers go on)
and S75 (what is committed can be read at the moment at which it says that it runs). With Spark
each life has another number of cores, and other partitions: S57, S61.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kills.killing import SEED, Killing, Plan

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


def check(folder: Path, plan: Plan) -> None:
    outcome = Killing(folder, plan).run()
    assert not outcome.wrong, "\n".join([str(outcome.facts()), *outcome.wrong[:20]])
    assert sum(outcome.kills.values()) == plan.kills
    assert outcome.transactions >= plan.transactions


def test_s56_25_kills_change_nothing(tmp_path: Path, seed: int | None) -> None:
    check(tmp_path, Plan(kills=25, transactions=50, most=3, seed=SEED if seed is None else seed))


@pytest.mark.spark
@pytest.mark.xdist_group("cluster")
def test_s56_3_kills_of_a_driver_of_spark_change_nothing(tmp_path: Path, seed: int | None) -> None:
    """Beside a run of the reference engine: both have the same digests."""
    chosen = SEED if seed is None else seed
    plan = Plan(kills=3, transactions=4, engine="spark", beside="arrow", most=1, seed=chosen)
    check(tmp_path, plan)
