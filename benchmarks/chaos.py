"""Kills real processes under load and counts lies: `make chaos CYCLES=200`.

Fourteen processes write, race, replicate, read, subscribe, compact and collect one store in a
folder. In every cycle something is killed with SIGKILL: a process, a process with the helper that
keeps its leases, the helper alone, or everything; others are stopped for longer than a lease.
What each of them was told is compared with what is in the store. Ends with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from report import Point, finish, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.chaos.chaos import SEED, Chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--folder", type=Path, help="where the store and the journals stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        folder: Path = options.folder or Path(scratch)
        outcome = Chaos(folder / "run", options.seed).run(options.cycles)
    for what in outcome.violations:
        print(f"VIOLATION {what}")
    rows = [[what, f"{count:,}"] for what, count in outcome.facts().items()]
    show(f"chaos, seed {options.seed}", ["what", "how many"], rows)
    wrong = len(outcome.violations)
    goal = f"0 violations in {outcome.cycles} cycles"
    finish([Point("chaos", wrong, 0, wrong, goal, not wrong)])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
