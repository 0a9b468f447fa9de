"""Kills a pipeline again and again, and compares it with one that was never killed.

One replica with Spark commits at least 300 transactions and is killed with SIGKILL 100 times, at
random moments: while it starts, plans, computes, appends, commits. Then every journal digest, and
every table and view at 50 sampled times, byte for byte after sorting, is compared with a run that
was never killed, and with plain dictionaries. Each life has another number of cores and partitions.

    make bench NAME=replay                          100 kills with Spark, an hour
    make bench NAME=replay ARGS="--engine arrow"    100 kills with the reference engine, minutes
    make bench NAME=replay ARGS="--quick"           25 with the reference engine, 3 with Spark
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from orders import say
from report import Point, finish, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.kills.killing import SEED, Killing, Plan


def plans(options: argparse.Namespace) -> list[Plan]:
    if options.quick:
        return [
            Plan(25, 50, "arrow", seed=options.seed, most=3),
            Plan(3, 6, "spark", beside="arrow", seed=options.seed, most=2),
        ]
    return [Plan(options.kills, options.transactions, options.engine, seed=options.seed)]


def report_every_tenth(kills: int, committed: int) -> None:
    if not kills % 10:
        say(f"{kills} kills, {committed:,} transactions")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--transactions", type=int, default=300)
    parser.add_argument("--engine", choices=["arrow", "spark"], default="spark")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the stores stay")
    options = parser.parse_args()
    points = []
    for plan in plans(options):
        with tempfile.TemporaryDirectory(prefix="replay-") as scratch:
            folder: Path = options.folder or Path(scratch)
            outcome = Killing(folder / plan.engine, plan, report_every_tenth).run()
        for what in outcome.wrong:
            print(f"DIFFERENCE {what}")
        rows = [[what, f"{count:,}"] for what, count in outcome.facts().items()]
        show(f"replay, {plan.engine}, seed {plan.seed}", ["what", "how many"], rows)
        kills, done = sum(outcome.kills.values()), outcome.transactions
        met = not outcome.wrong and kills >= plan.kills and done >= plan.transactions
        goal = f"0 differences, {kills} kills, {done} transactions"
        wrong = len(outcome.wrong)
        points.append(Point(f"replay: {plan.engine}", wrong, 0, wrong, goal, met))
    finish(points)
    return 0 if all(point.met for point in points) else 1


if __name__ == "__main__":
    sys.exit(main())
