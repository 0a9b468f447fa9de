"""Two replicas of one pipeline race, and are killed and stopped at random moments.

    a cycle     both run ─► kill -9 one, or both, or stop one for a while (SIGSTOP, SIGCONT)
    killed      the frontier moves on without it, and how long that takes is measured; it is
                started again
    stopped     longer than its leases, or not; it goes on by itself, without a restart, and
                is where the other one is
    the end     both stop in order; then the numbers, and every collection beside plain Python

A process that is stopped while it holds SQLite's write lock keeps everybody from writing until it
goes on: no lock of a file knows better. That is told apart, and counted.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kills import history
from tests.kills.fleet import LEASE_MS, Fleet, Life, patience_s
from tests.kills.inputs import Given, generated
from tests.kills.judge import against_oracle
from tests.kills.shop import GENERATED, program
from tests.kills.waiting import Waiting
from tests.kills.watch import NAME, Watch, sampled

from strandline.store.locate import who_writes

SEED = 20_261_117
SAMPLES = 50
SURVIVE_S = 5.0
"""The promise: so long after the other one was killed, the survivor has moved on."""
KINDS = {"kill one": 50, "stop one shortly": 15, "stop one beyond its leases": 25, "kill both": 10}
ALONE = ("stop the first, kill the second", "stop the second, kill the first")
"""What happens only where a test names it."""
PAUSE_S = 3.0
PACED = {
    table: ("generator", {**options, "rowsPerSecond": "100"})
    for table, options in GENERATED.items()
}


@dataclass(slots=True)
class Outcome:
    """What a race did, and what was wrong."""

    done: Counter[str] = field(default_factory=Counter)
    survived_s: list[float] = field(default_factory=list)
    """From a kill to the next commit of the survivor."""
    waited_s: list[float] = field(default_factory=list)
    """How much of each of these the survivor was ready, and others had the processors."""
    undisturbed_s: list[float] = field(default_factory=list)
    """Between two commits of both, just before: what this machine does at its best."""
    locked: int = 0
    """How often the one that was stopped held the lock of the store."""
    transactions: int = 0
    reads: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def slowest_s(self) -> float:
        """The longest that a survivor took, of its own time."""
        pairs = zip(self.survived_s, self.waited_s, strict=True)
        return max((took - waited for took, waited in pairs), default=0.0)

    def facts(self) -> dict[str, float]:
        """All of it, in the order in which people want to see it."""
        return {
            "transactions": self.transactions,
            **{f"  {kind}": count for kind, count in sorted(self.done.items())},
            "stopped within a write": self.locked,
            "slowest survivor, seconds": round(max(self.survived_s, default=0.0), 2),
            "slowest undisturbed, seconds": round(max(self.undisturbed_s, default=0.0), 2),
            "reads on the way": self.reads,
            "seconds": round(self.seconds, 1),
            "violations": len(self.wrong),
        }


class Racing:
    """A race in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = SEED,
        engine: str = "arrow",
        text: str | None = None,
        given: Mapping[str, Given] | None = None,
        fleets: Sequence[Fleet] | None = None,
        more: Mapping[str, Callable[[], None]] | None = None,
        words: Sequence[str] = ("run", "--rows", "20", "--delay", "50"),
    ) -> None:
        """`fleets` start the first and the second replica, each where it lives; `more` are other
        things that happen, by name, as often as kills; `words` are the command of a replica."""
        self._random = random.Random(seed)
        self._seed, self._engine = seed, engine
        self.patience_s = patience_s(engine)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / f"{NAME}.sql"
        self._file.write_text(text or program(PACED))
        self._given = given or generated()
        self._words = list(words)
        self._more = dict(more or {})
        self._kinds = KINDS | dict.fromkeys(self._more, KINDS["kill one"])
        self._store = folder / "lake"
        self.watch = Watch(self._store, seed)
        one = Fleet(folder / "said")
        self._fleets = list(fleets) if fleets is not None else [one, one]
        self.replicas: list[Life] = []
        self.outcome = Outcome()

    # What a test or a benchmark calls.

    def run(self, cycles: int) -> Outcome:
        began = time.monotonic()
        try:
            self.start()
            for _ in range(cycles):
                self.strike_at_random()
            self.finish()
        finally:
            self.close()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def start(self) -> None:
        self.replicas = [self._start(0), self._start(1)]
        self._both_run()

    def strike_at_random(self) -> None:
        kinds, weights = list(self._kinds), list(self._kinds.values())
        self.strike(self._random.choices(kinds, weights)[0])

    def strike(self, kind: str) -> None:
        """One thing happens to one of them, or to both, and all is well again afterwards."""
        if self.outcome.wrong:
            return
        self.outcome.done[kind] += 1
        victim = self._random.randrange(2)
        time.sleep(self._random.uniform(0, 0.3))
        self.watch.look()
        if kind in self._more:
            self._more[kind]()
            self._moves(kind)
        elif kind in ALONE:
            self._stop_and_kill_the_other(ALONE.index(kind))
        elif kind.startswith("kill"):
            self._kill(victim, both=kind == "kill both")
        else:
            low, high = (0.05, 0.6) if kind == "stop one shortly" else (1.2, 2.5)
            self._stop(victim, self._random.uniform(low, high) * LEASE_MS / 1000)
        self._both_run()

    def finish(self) -> None:
        """Both stop in order, and then everything is looked at."""
        self.stop()
        if not self.outcome.wrong:
            self.outcome.wrong += self._verdict()
        self.outcome.reads = self.watch.reads

    def stop(self) -> None:
        """Both stop in order."""
        for life in self.replicas:
            life.signal(signal.SIGTERM, group=False)
        for life in self.replicas:
            self._until(lambda life=life: not life.alive(), f"replica {life.number} did not stop")
            if not life.ended_well():
                self._wrong(f"a replica did not stop in order: {life.last_words()}")

    def close(self) -> None:
        for fleet in self._fleets:
            fleet.close()
        self.watch.close()

    # What happens.

    def _start(self, place: int) -> Life:
        verb, *options = self._words
        words = [verb, str(self._file), "--store", str(self._store), "--json", *options]
        if self._random.random() < 0.2:
            # The name of one that was killed is free only once it is silent, and that takes 5 s.
            words += ["--replica", "ab"[place]]
        return self._fleets[place].start(self._engine, words)

    def _kill(self, victim: int, *, both: bool) -> None:
        self.outcome.undisturbed_s.append(self._moves("undisturbed"))
        self.replicas[victim].kill(group=self._random.random() < 0.5)
        if both:
            self.replicas[1 - victim].kill()
            self.replicas[1 - victim] = self._start(1 - victim)
        else:
            self._survives(1 - victim)
        self.replicas[victim] = self._start(victim)

    def _survives(self, left: int) -> None:
        waiting = Waiting(self.replicas[left].pid)
        self.outcome.survived_s.append(self._moves("the survivor"))
        self.outcome.waited_s.append(waiting.seconds())

    def _stop_and_kill_the_other(self, stopped: int) -> None:
        """It goes on at the moment at which it is left alone (S27)."""
        life, other = self.replicas[stopped], self.replicas[1 - stopped]
        life.signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        other.kill()
        life.signal(signal.SIGCONT)
        self._survives(stopped)
        self.replicas[1 - stopped] = self._start(1 - stopped)

    def _stop(self, victim: int, seconds: float) -> None:
        life = self.replicas[victim]
        life.signal(signal.SIGSTOP)
        stopped, before = time.monotonic(), self.watch.committed()

        def locked() -> bool:
            held = who_writes(str(self._store))
            return held is not None and (held.pid, held.stopped) == (life.pid, True)

        def moved() -> bool:
            return self.watch.committed() > before + 1

        self._until(lambda: moved() or locked(), "one is stopped and holds no lock: the other")
        self.outcome.locked += locked()
        time.sleep(max(0.0, seconds - (time.monotonic() - stopped)))
        life.signal(signal.SIGCONT)
        self._moves("after a pause")
        self._is_where_the_others_are(life)

    def _is_where_the_others_are(self, life: Life) -> None:
        """It says of itself that it runs, and that it has seen what was committed by now."""
        if life.url() is not None:
            return  # Whoever serves says less; who pushes to it knows.
        target = self.watch.committed()

        def holds() -> bool:
            last = life.events()[-1]
            return last.get("state") == "running" and (last.get("committed") or 0) >= target

        self._until(holds, f"replica {life.number} did not catch up by itself")

    def _moves(self, who: str) -> float:
        """How long it takes until something is committed."""
        began, before = time.monotonic(), self.watch.committed()
        self._until(lambda: self.watch.committed() > before, f"{who}: nothing is committed")
        return time.monotonic() - began

    def _both_run(self) -> None:
        for life in self.replicas:
            self._until(lambda life=life: life.ran(), f"replica {life.number} does not run")

    def _until(self, holds: Callable[[], bool], sentence: str) -> None:
        if self.outcome.wrong:
            return
        met = self.watch.wait(lambda: holds() or bool(self._fallen()), self.patience_s)
        for life in self._fallen():
            self._wrong(f"a replica ended by itself: {life.last_words()}")
        if not met:
            words = "\n".join(life.last_words() for life in self.replicas)
            self._wrong(f"{sentence} within {self.patience_s} s\n{words}")

    def _fallen(self) -> list[Life]:
        """Replicas that are gone although nobody killed them or told them to stop."""
        return [
            life for life in self.replicas if not (life.killed or life.alive() or life.ended_well())
        ]

    def _wrong(self, what: str) -> None:
        self.outcome.wrong.append(what)

    def _verdict(self) -> Iterator[str]:
        told = self.watch.history()
        self.outcome.transactions = len(told)
        yield from history.gaps(told)
        times = sampled(SAMPLES, len(told), self._seed)
        yield from against_oracle(self.watch, told, self._given, times)
        self.watch.look_again()
        yield from self.watch.wrong
