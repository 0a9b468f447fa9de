"""The runs with kills have teeth: pipelines with one thing wrong are caught."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kills.killing import Killing, Plan

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "mutant", ["commit_before_landing", "positions_move_twice", "state_is_one_time_too_old"]
)
def test_a_pipeline_with_one_thing_wrong_is_caught(mutant: str, tmp_path: Path) -> None:
    plan = Plan(kills=40, transactions=60, engine=f"arrow!{mutant}", beside="arrow", most=3)
    outcome = Killing(tmp_path, plan).run()
    assert outcome.wrong, outcome.facts()
