"""Lets two replicas race while they are killed and stopped at random moments.

Killed with SIGKILL, one or both; stopped (SIGSTOP) for moments or for longer than all leases, and
let go on. Measures how long the survivor takes to its next commit; then every table and view at 50
sampled times is compared with plain dictionaries. A violation, or a survivor that takes longer than
it may, is an exit code of 1.

    make bench NAME=replicas
    make bench NAME=replicas ARGS="--cycles 200 --engine spark"
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from report import Point, finish, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.kills.racing import SEED, SURVIVE_S, Racing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--cycles", type=int, default=60)
    parser.add_argument("--engine", choices=["arrow", "spark"], default="arrow")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the store stays")
    options = parser.parse_args()
    cycles = 8 if options.quick else options.cycles
    engine = "spark:1" if options.engine == "spark" else "arrow"
    with tempfile.TemporaryDirectory(prefix="replicas-") as scratch:
        folder: Path = options.folder or Path(scratch)
        outcome = Racing(folder / "race", seed=options.seed, engine=engine).run(cycles)
    for what in outcome.wrong:
        print(f"VIOLATION {what}")
    rows = [[what, f"{count:,}"] for what, count in outcome.facts().items()]
    show(f"replicas, {options.engine}, seed {options.seed}", ["what", "how many"], rows)
    wrong = len(outcome.wrong)
    slowest = max(outcome.survived_s, default=0.0)
    undisturbed = max(outcome.undisturbed_s, default=0.0)
    goal = f"0 violations in {sum(outcome.done.values())} cycles"
    points = [
        Point("replicas: divergence", wrong, 0, wrong, goal, not wrong),
        Point(
            "replicas: slowest survivor, seconds",
            slowest,
            undisturbed,
            slowest,
            f"<= {SURVIVE_S:g} s",
            0 < slowest <= SURVIVE_S,
        ),
    ]
    finish(points)
    return 0 if all(point.met for point in points) else 1


if __name__ == "__main__":
    sys.exit(main())
