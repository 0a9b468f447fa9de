"""Runs one scenario under many seeds, and says which ones failed and what was reached."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.testing.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class SeedsFailedError(AssertionError):
    """A scenario failed; the message names the seeds, and the first failure is its cause."""


@dataclass(slots=True)
class SeedReport:
    """What came of the seeds that were run."""

    seeds: int = 0
    steps: int = 0
    failures: dict[int, Exception] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def never(self, *labels: str) -> list[str]:
        """Those labels of `Simulation.sometimes` that no seed reached."""
        return [label for label in labels if not self.seen[label]]


def try_seeds(
    scenario: Callable[[Simulation], None], seeds: Iterable[int], *, failures_max: int = 1
) -> SeedReport:
    """Run the scenario once per seed until so many have failed; report, never raise.

    A scenario gets an open simulation, and fails by raising. This is how a planted bug is
    shown to be caught; a test of correct code wants `run_seeds`.
    """
    report = SeedReport()
    for seed in seeds:
        report.seeds += 1
        with Simulation(seed) as sim:
            try:
                scenario(sim)
            except Exception as error:
                report.failures[seed] = error
        report.steps += sim.steps
        report.seen += sim.seen
        if len(report.failures) >= failures_max:
            break
    return report


def run_seeds(
    scenario: Callable[[Simulation], None], seeds: Iterable[int], *, failures_max: int = 5
) -> SeedReport:
    """Run the scenario once per seed; raise if any failed, naming each failing seed."""
    report = try_seeds(scenario, seeds, failures_max=failures_max)
    if report.failures:
        numbers = ", ".join(str(seed) for seed in report.failures)
        first = next(iter(report.failures.values()))
        raise SeedsFailedError(
            f"failed with seed {numbers} (of {report.seeds} seeds run); the first: {first}"
        ) from first
    return report


def unreached(
    scenario: Callable[[Simulation], None], *labels: str, least: int = 1, most: int = 200
) -> list[str]:
    """Run seeds until every label was seen, at least and at most so many; those never seen.

    How soon a seed reaches something changes with every line of the code it runs. A test that
    counts on a fixed few of them fails by chance after a change that broke nothing.
    """
    seen: Counter[str] = Counter()
    missing = list(labels)
    for seed in range(1, most + 1):
        seen += run_seeds(scenario, [seed]).seen
        missing = [label for label in labels if not seen[label]]
        if seed >= least and not missing:
            break
    return missing
