"""How long a pipeline stands still when its only replica is killed: from kill -9 to `running`.

A journal of 10,000 transactions is made without Spark, which computes the same. Then a replica with
Spark goes on with it, is killed in the middle of a transaction, and another process is started at
that moment. The clock ends when the new one says `running`, which it does not say before the
sealed transaction is finished. In turns with a journal of ten transactions, and in two forms: with
checkpoints as they come by themselves, and with none at all, where every record is read.

    make bench NAME=recovery
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from orders import median, parser, say, workspace
from report import Point, finish, show

import strandline
from strandline.pipeline.engine import PipelineEngine
from strandline.pipeline.settings import PipelineSettings
from strandline.spark import session
from strandline.spark.computer import SparkComputer
from strandline.testing.computing import ArrowComputer
from strandline.testing.engines import arrow_engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from strandline import Store
    from strandline.pipeline.pipeline import Pipeline

SQL = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '100', deletes '0.05', rowsPerSecond '0');
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 10;
"""
ROWS = 5
PATIENCE_S = 300
NEVER = 10**9


@dataclass(frozen=True, slots=True)
class Recovered:
    """One recovery, in seconds since the kill."""

    process: float
    """Python runs."""
    spark: float
    """Spark answers."""
    running: float


def settings(checkpoint_every: int) -> PipelineSettings:
    return PipelineSettings(rows_max=ROWS, delay_ms=0, checkpoint_every=checkpoint_every)


# ---- what a replica does


def run_replica(folder: str, checkpoint_every: int, cores: int) -> None:
    tell("process")
    session("recovery", master=f"local[{cores}]")
    tell("spark")
    with strandline.open(folder) as store:
        shop = store.pipeline("shop", SQL, settings=settings(checkpoint_every))
        shop.start()
        while (now := shop.here) is not None and now.state != "running":
            time.sleep(0.005)
        tell("running")
        sys.stdin.read()


def tell(what: str) -> None:
    print(json.dumps({"what": what, "at": time.monotonic()}), flush=True)


class Replica:
    """A replica in a process of its own. Use it with `with`."""

    def __init__(self, folder: Path, checkpoint_every: int, cores: int) -> None:
        told = ["--folder", str(folder), "--every", str(checkpoint_every), "--cores", str(cores)]
        self._log = folder.parent / "replica.log"
        with self._log.open("ab") as log:
            self.running = subprocess.Popen(
                [sys.executable, __file__, *told],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running.poll() is None:
            self.kill()

    def until(self, what: str) -> dict[str, float]:
        """When it said what, up to this."""
        assert self.running.stdout is not None
        said: dict[str, float] = {}
        for line in self.running.stdout:
            one = json.loads(line)
            said[one["what"]] = one["at"]
            if one["what"] == what:
                return said
        raise SystemExit(f"a replica ended: {self._log.read_text()[-4000:]}")

    def kill(self) -> None:
        os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait()


# ---- what is measured


def make(folder: Path, transactions: int, every: int, versions: Mapping[str, str]) -> None:
    """A journal as Spark would have made it, by the engine that needs no Spark."""

    def engine(store: Store) -> PipelineEngine:
        # They compute the same, digest for digest; so they may say that they are the same, too.
        computer = ArrowComputer(store, versions=versions)
        return PipelineEngine(computer, arrow_engine(store).answer)

    begin = time.perf_counter()
    with (
        strandline.open(str(folder)) as store,
        store.pipeline("shop", SQL, settings=settings(every), engine=engine) as shop,
    ):
        if every < NEVER:
            shop.run(transactions=transactions)
        # Steps take no checkpoint, not even at the end.
        while (shop.committed.time or 0) < transactions:
            shop.step()
    say(f"made {transactions:,} transactions in {time.perf_counter() - begin:.0f} s")


def recovered(folder: Path, checkpoint_every: int, cores: int) -> Recovered:
    """Kill a replica in the middle of a transaction, and start another."""
    with (
        strandline.open(str(folder), upkeep=False) as store,
        Replica(folder, checkpoint_every, cores) as first,
    ):
        first.until("running")
        wait_for_sealed(store.pipeline("shop"))
        killed = time.monotonic()
        first.kill()
    with Replica(folder, checkpoint_every, cores) as second:
        said = second.until("running")
    return Recovered(*(said[each] - killed for each in ("process", "spark", "running")))


def wait_for_sealed(shop: Pipeline) -> None:
    """Wait for a transaction after those that are there already; then for one that is sealed."""
    first = shop.committed.time or 0
    for _ in looking():
        if (shop.committed.time or 0) > first and shop.status().sealed is not None:
            return


def looking() -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(0.005)
    raise SystemExit(f"nothing happened for {PATIENCE_S} s")


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--transactions", type=int, default=10_000)
    made.add_argument("--folder", help="of a replica that this program starts")
    made.add_argument("--every", type=int, default=NEVER)
    options = made.parse_args()
    if options.folder:
        run_replica(options.folder, options.every, options.cores)
        return
    options.repeat = min(options.repeat, 3)
    if options.quick:
        options.transactions, options.repeat = 200, 1
    count = options.transactions
    cases = {
        "short": (10, NEVER),
        "with checkpoints": (count, PipelineSettings().checkpoint_every),
        "without a checkpoint": (count, NEVER),
    }
    times: dict[str, list[Recovered]] = {name: [] for name in cases}
    with workspace() as folder:
        versions = versions_here(folder / "first", options.cores)
        for name, (transactions, every) in cases.items():
            make(folder / name / "lake", transactions, every, versions)
        for number in range(options.repeat):
            for name, (_, every) in cases.items():
                found = recovered(folder / name / "lake", every, options.cores)
                say(f"round {number + 1}, {name}: {found}")
                times[name].append(found)
    tell_all(times, count)


def versions_here(folder: Path, cores: int) -> dict[str, str]:
    with strandline.open(str(folder)) as store:
        spark = session("recovery", master=f"local[{cores}]")
        try:
            with SparkComputer(store, spark, str) as computer:
                return dict(computer.versions)
        finally:
            spark.stop()


def tell_all(times: dict[str, list[Recovered]], count: int) -> None:
    steps = ("process", "spark", "running")
    medians = {
        name: [median([getattr(one, step) for one in found]) for step in steps]
        for name, found in times.items()
    }
    show(
        f"seconds since kill -9, journal of {count:,} transactions (short: 10)",
        ["journal", "Python runs", "Spark answers", "running", "of which Spark's start"],
        [
            [name, *(f"{value:.1f}" for value in found), f"{(found[1] - found[0]) / found[2]:.0%}"]
            for name, found in medians.items()
        ],
    )
    short = medians["short"][2]
    finish(
        [
            Point(
                f"recovery: seconds to running, {count:,} transactions {name}",
                found[2],
                short,
                found[2] / short,
                "<= 20 s",
                found[2] <= 20,
            )
            for name, found in medians.items()
            if name != "short"
        ]
    )


if __name__ == "__main__":
    main()
