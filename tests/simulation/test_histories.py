"""Whole histories under faults; every seed that ever failed is here for ever.

`make simulate SEED=n` replays one seed of every case and prints its options and last steps.
"""

import logging
import sys
from pathlib import Path

import pytest

from strandline.testing import CASES, Simulation, run_seeds
from strandline.testing.tables import rows

SEEDS = 6
"""Of each case, in CI: so that all of them take less than a minute on two cores."""
HEAVY = {"pipeline": 3, "rebirth": 2, "terms": 3, "publish": 4, "kafka_forgets": 4}
"""Fewer of those whose histories are long."""


class Kept:
    def __init__(self, case: str, seed: int) -> None:
        self.case = case
        self.seed = seed


KEPT = rows(Kept, "case seed\n" + (Path(__file__).parent / "seeds.txt").read_text(encoding="utf-8"))

pytestmark = pytest.mark.simulation


@pytest.fixture(autouse=True)
def _quiet():
    """Simulated troubles are logged like real ones, by the thousand."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", sorted(CASES))
def test_no_seed_breaks_a_promise(name, seed):
    if seed is None:
        seeds = HEAVY.get(name, SEEDS)
        report = run_seeds(CASES[name], range(1, seeds + 1))
        assert report.seeds == seeds
        return
    with Simulation(seed, keep_trace=True) as sim:
        try:
            CASES[name](sim)
        finally:
            told = f"case {name}, seed {seed}: {sim.steps} steps, {dict(sim.seen)}"
            sys.stdout.write("\n".join([told, *sim.trace_lines(40), ""]))


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.case}-{kept.seed}")
def test_a_seed_that_once_failed_passes(kept):
    run_seeds(CASES[kept.case], [kept.seed])


def test_the_histories_reach_what_they_are_there_for():
    seen = sum(
        (run_seeds(CASES[name], range(1, 6)).seen for name in ("shard", "timeline", "expiry")),
        start=run_seeds(CASES["replicas"], range(1, 3)).seen,
    )
    wanted = [
        "APPLIED", "MISMATCH", "UNKNOWN", "REFUSED", "crash", "suspend", "LeaseLostError",
        "SinceError", "MaybeAppliedError", "NotAppliedError", "fenced", "left a subscription",
        "a lie was found", "an intruder was refused",
    ]  # fmt: skip
    assert [label for label in wanted if not seen[label]] == []
