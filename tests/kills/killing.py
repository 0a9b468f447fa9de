"""One replica, killed at random moments again and again, beside a run that is never killed.

    a life     start ─► wait until it has committed a few, or not ─► a random moment ─► kill -9
    the end    a last life finishes and stops in order
    then       every number, every digest and every table at sampled times, beside a run that
               was never killed, beside plain Python, and beside what was read on the way

Each transaction takes the same number of rows of endless sources, so both runs have the same
transactions. The same seed makes the same choices; when they strike is up to the machine.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.kills import history
from tests.kills.fleet import Fleet, Life, patience_s
from tests.kills.inputs import generated
from tests.kills.judge import against_oracle, against_other
from tests.kills.shop import program
from tests.kills.watch import NAME, Watch, sampled

SEED = 20_261_116
SAMPLES = 50
EARLY = 0.15
"""Which share of the lives ends at any moment from its start on, before it has done anything."""


BETWEEN = 0.25
"""Of the others, which share ends at the moment at which nothing is seen to be sealed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is killed, and how."""

    kills: int
    transactions: int
    """At least so many are committed in the end."""
    engine: str = "arrow"
    """`arrow`, maybe with a mutant (see `nursery`), or `spark`."""
    beside: str | None = None
    """The engine of the run that is never killed; the same one unless it is named."""
    seed: int = SEED
    rows: int = 10
    most: int = 5
    """A life commits so many before it ends, at most."""
    fresh_every: int = 10
    """Of the lives with the reference engine, every so many starts from nothing."""


@dataclass(slots=True)
class Outcome:
    """What a run did, and what was wrong."""

    kills: Counter[str] = field(default_factory=Counter)
    transactions: int = 0
    lives: int = 0
    reads: int = 0
    recovery_s: list[float] = field(default_factory=list)
    """From the start of a life to its first commit."""
    phases: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, float]:
        """All of it, in the order in which people want to see it."""
        return {
            "transactions": self.transactions,
            "kills": sum(self.kills.values()),
            **{f"  {kind}": count for kind, count in sorted(self.kills.items())},
            "lives": self.lives,
            "reads on the way": self.reads,
            "seconds from start to commit, median": round(_median(self.recovery_s), 2),
            **{f"seconds: {name}": round(spent, 1) for name, spent in self.phases.items()},
            "differences": len(self.wrong),
        }


def _median(times: list[float]) -> float:
    return statistics.median(times) if times else 0.0


class Killing:
    """A run in a folder of its own."""

    def __init__(
        self, folder: Path, plan: Plan, report: Callable[[int, int], None] | None = None
    ) -> None:
        """`report(kills, committed)` is called after each life."""
        self._report = report or (lambda kills, committed: None)
        self._folder = folder
        self._plan = plan
        self._random = random.Random(plan.seed)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / f"{NAME}.sql"
        self._file.write_text(program())
        self._fleet = Fleet(folder / "said")
        self._watch = Watch(folder / "killed", plan.seed)
        self._pace_s = 0.1 if plan.engine.startswith("arrow") else 1.0
        self._patience_s = patience_s(plan.engine)
        self.outcome = Outcome()

    def run(self) -> Outcome:
        try:
            began = time.monotonic()
            for kills in range(1, self._plan.kills + 1):
                if not self._one_life():
                    break
                self._report(kills, self._watch.committed())
            self._last_life()
            self._spent("killed", began)
            if not self.outcome.wrong:
                self._compare()
        finally:
            self._fleet.close()
            self._watch.close()
        return self.outcome

    # Lives.

    def _engine(self) -> str:
        if self._plan.engine.startswith("arrow"):
            return self._plan.engine
        return f"spark:{self._random.choice((1, 2, 4))}"

    def _start(self, *more: str, store: str = "killed", engine: str | None = None) -> Life:
        where = str(self._folder / store)
        words = ["run", str(self._file), "--store", where, "--rows", str(self._plan.rows)]
        fresh = len(self._fleet.lives) % self._plan.fresh_every == self._plan.fresh_every - 1
        self.outcome.lives += 1
        return self._fleet.start(
            engine or self._engine(), [*words, "--delay", "0", "--json", *more], fresh=fresh
        )

    def _one_life(self) -> bool:
        """Whether it did what it should until it was killed."""
        before, began = self._watch.committed(), time.monotonic()
        early = self._random.random() < EARLY
        share, wanted = self._random.random(), self._random.randint(1, self._plan.most)
        life = self._start()
        if early:
            self._linger(share * (_median(self.outcome.recovery_s) or 1.0))
        else:
            if not self._commits(life, before + 1):
                return False
            self.outcome.recovery_s.append(time.monotonic() - began)
            first = time.monotonic()
            if not self._commits(life, before + wanted):
                return False
            if wanted > 1:
                self._pace_s = (time.monotonic() - first) / (wanted - 1)
            self._watch.look()
            if self._random.random() < BETWEEN:
                # Between two transactions it is only for a moment.
                self._watch.wait(lambda: self._watch.sealed() is None, 1.0)
            else:
                self._linger(share * 2 * self._pace_s)
        # A driver alone, or together with what it started.
        life.kill(group=self._random.random() < 0.5)
        self._account(early=early)
        return not self.outcome.wrong

    def _account(self, *, early: bool) -> None:
        sealed = self._watch.sealed()
        kind = "while it started" if early else "at work"
        self.outcome.kills[f"{kind}, {'between' if sealed is None else 'within'} transactions"] += 1

    def _commits(self, life: Life, upto: int) -> bool:
        """Wait until so many are committed; all that is can be read as soon as it says it runs."""
        running = False

        def holds() -> bool:
            nonlocal running
            if not running and life.ran():
                running = True
                self._watch.look_at_all()
            return self._watch.committed() >= upto or not life.alive()

        done = self._watch.wait(holds, self._patience_s)
        if not life.alive():
            self.outcome.wrong.append(f"a replica ended by itself: {life.last_words()}")
        elif not done:
            self.outcome.wrong.append(
                f"nothing was committed for {self._patience_s} s: {life.last_words()}"
            )
        self.outcome.wrong += self._watch.wrong
        return not self.outcome.wrong

    def _linger(self, seconds: float) -> None:
        time.sleep(seconds)

    def _last_life(self) -> None:
        """Up to the end, and then a stop in order."""
        if self.outcome.wrong:
            return
        left = max(1, self._plan.transactions - self._watch.committed())
        life = self._start("--transactions", str(left))
        self._until_it_ends(life)
        self.outcome.transactions = self._watch.committed()

    def _until_it_ends(self, life: Life) -> None:
        said, moved = 0, time.monotonic()
        while not self._watch.wait(lambda: not life.alive(), 1.0):
            self._watch.look()
            if len(life.events()) > said:
                said, moved = len(life.events()), time.monotonic()
            if time.monotonic() - moved > self._patience_s:
                self.outcome.wrong.append(f"a replica stands: {life.last_words()}")
                return
        if not life.ended_well():
            self.outcome.wrong.append(f"a replica did not stop in order: {life.last_words()}")

    # The verdict.

    def _compare(self) -> None:
        began = time.monotonic()
        beside = self._plan.beside or self._plan.engine
        engine = "arrow" if beside == "arrow" else "spark:2"
        count = self.outcome.transactions
        never = self._start("--transactions", str(count), store="never", engine=engine)
        self._until_it_ends(never)
        began = self._spent("never killed", began)
        other = Watch(self._folder / "never")
        try:
            self.outcome.wrong += self._verdict(other)
        finally:
            other.close()
        self.outcome.reads = self._watch.reads
        self._spent("compared", began)

    def _verdict(self, other: Watch) -> Iterator[str]:
        told, untroubled = self._watch.history(), other.history()
        times = sampled(SAMPLES, len(told), self._plan.seed)
        yield from history.gaps(told)
        yield from self._boundaries(told)
        yield from history.differences(told, untroubled)
        yield from against_other(self._watch, other, times)
        yield from against_oracle(self._watch, told, generated(), times)
        self._watch.look_again()
        yield from self._watch.wrong

    def _boundaries(self, told: list[history.Transaction]) -> Iterator[str]:
        for each in told:
            start = each.t * self._plan.rows
            for endpoint, taken in each.taken.items():
                if taken != {"0": (start, start + self._plan.rows)}:
                    yield f"{each.t} takes {taken} of {endpoint}"

    def _spent(self, what: str, since: float) -> float:
        now = time.monotonic()
        self.outcome.phases[what] = now - since
        return now
