"""Kills real processes under load, and checks that nobody was lied to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.chaos.chaos import SEED, Chaos


@pytest.mark.chaos
@pytest.mark.process
@pytest.mark.timeout(7200)
def test_nothing_is_lost_or_told_wrong_while_processes_are_killed(
    tmp_path: Path, cycles: int, seed: int | None
) -> None:
    outcome = Chaos(tmp_path / "run", SEED if seed is None else seed).run(cycles)
    sys.stdout.writelines(f"  {what:<32} {count:>10,}\n" for what, count in outcome.facts().items())
    assert not outcome.violations, "\n".join(outcome.violations[:20])
    assert outcome.kills >= cycles
