"""What the simulator finds: steps per second, and how many seeds each planted bug survives.

Every mutant of the bank is a wrong variant of the shipped code; a seed that makes its case fail
has caught it. The shipped code itself must survive every seed.

    make bench NAME=simulator
    make bench NAME=simulator ARGS="--seeds 1000 --mutants ''"   # by night: seeds only
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from multiprocessing import get_context
from typing import TYPE_CHECKING, TypeVar

from report import Point, finish, show

from strandline.testing import CASES, Mutant, all_mutants, catch, try_seeds

if TYPE_CHECKING:
    from collections.abc import Iterator

Result = TypeVar("Result")

WITHIN = 300
"""A mutant that survives this many seeds is not caught."""
WANTED = 30


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=25, help="of each case, of the shipped code")
    parser.add_argument("--first", type=int, default=1_000, help="the first of these seeds")
    parser.add_argument("--within", type=int, default=WITHIN, help="seeds to catch a mutant in")
    parser.add_argument("--mutants", default=None, help="only those whose name contains this")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    wanted = options.mutants
    chosen = [m for m in all_mutants() if wanted is None or (wanted and wanted in m.name)]
    with get_context("spawn").Pool(options.workers, _quiet) as pool:
        seeds = [(name, options.first, options.seeds) for name in sorted(CASES)]
        runs = followed("cases", len(seeds), pool.imap(_case, seeds))
        names = [(mutant.name, options.within) for mutant in chosen]
        caught = followed("mutants", len(names), pool.imap(_mutant, names))
    steps, seconds = _show_seeds(runs)
    points = [_speed(steps, seconds), _clean(runs)]
    if chosen:
        points.append(_show_mutants(chosen, caught))
    finish(points)


def _quiet() -> None:
    logging.disable(logging.CRITICAL)


def followed(what: str, total: int, results: Iterator[Result]) -> list[Result]:
    """All results, with a line of progress on standard error for each."""
    found = []
    for result in results:
        found.append(result)
        print(f"{what}: {len(found)} of {total}", file=sys.stderr)
    return found


def _case(arguments: tuple[str, int, int]) -> tuple[str, int, int, float, list[int]]:
    return run_case(*arguments)


def _mutant(arguments: tuple[str, int]) -> tuple[str, int | None, float]:
    return run_mutant(*arguments)


def run_case(name: str, first: int, count: int) -> tuple[str, int, int, float, list[int]]:
    """Seeds, steps, seconds and failing seeds of one case."""
    begin = time.perf_counter()
    report = try_seeds(CASES[name], range(first, first + count), failures_max=count)
    seconds = time.perf_counter() - begin
    return name, report.seeds, report.steps, seconds, sorted(report.failures)


def run_mutant(name: str, within: int) -> tuple[str, int | None, float]:
    """The seed that caught a mutant, and the seconds that took."""
    (mutant,) = [each for each in all_mutants() if each.name == name]
    begin = time.perf_counter()
    seed = catch(mutant, range(1, within + 1))
    return name, seed, time.perf_counter() - begin


def _show_seeds(runs: list[tuple[str, int, int, float, list[int]]]) -> tuple[int, float]:
    rows = [
        [name, str(seeds), f"{steps:,}", f"{steps / seconds:,.0f}", _seeds(failed)]
        for name, seeds, steps, seconds, failed in runs
    ]
    show("shipped code", ["case", "seeds", "steps", "steps/s", "failing seeds"], rows)
    return sum(run[2] for run in runs), sum(run[3] for run in runs)


def _show_mutants(chosen: list[Mutant], caught: list[tuple[str, int | None, float]]) -> Point:
    by_name = {mutant.name: mutant for mutant in chosen}
    rows = [
        [
            name,
            by_name[name].breaks,
            by_name[name].case,
            "NOT CAUGHT" if seed is None else str(seed),
        ]
        for name, seed, _ in sorted(caught, key=lambda each: (each[1] is not None, each[1] or 0))
    ]
    show("mutants", ["mutant", "breaks", "case", "caught by seed"], rows)
    found = sum(seed is not None for _, seed, _ in caught)
    worst = max((seed for _, seed, _ in caught if seed is not None), default=0)
    return Point(
        f"mutants caught (worst needed {worst} seeds)",
        ours=found,
        peer=len(caught),
        ratio=found / len(caught),
        goal=f"all, of at least {WANTED}",
        met=found == len(caught) >= WANTED,
    )


def _speed(steps: int, seconds: float) -> Point:
    # 10,000 steps a second and core is what the plan was made with.
    rate = steps / seconds
    return Point("simulator", rate, 10_000, rate / 10_000, "told, no goal", met=True)


def _clean(runs: list[tuple[str, int, int, float, list[int]]]) -> Point:
    seeds, failed = sum(run[1] for run in runs), sum(len(run[4]) for run in runs)
    ratio = (seeds - failed) / seeds
    return Point("seeds passed", seeds - failed, seeds, ratio, "all", met=failed == 0)


def _seeds(failed: list[int]) -> str:
    return ", ".join(str(seed) for seed in failed) or "none"


if __name__ == "__main__":
    main()
