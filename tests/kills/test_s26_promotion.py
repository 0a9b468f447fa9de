"""S26 for pipelines, with real processes: a new program looks on, lags, and is promoted.

The old generation writes without a pause. The new one has a view more, reads only, and stands still
for most of the time. Then it is promoted while the old one writes, which ends as fenced.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.kills import history
from tests.kills.fleet import Fleet, Life, patience_s
from tests.kills.inputs import generated
from tests.kills.judge import against_oracle
from tests.kills.racing import PACED
from tests.kills.shop import program
from tests.kills.watch import NAME, Watch

from strandline.journal.record import Commit
from strandline.store.locate import who_writes

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

RICH = "CREATE MATERIALIZED VIEW rich AS SELECT id, amount FROM orders WHERE amount > 700000;\n"
AHEAD = 15
SHARE = 0.4
ALONE_S = 1.0
"""How long it is alone with what it has not looked at yet."""


def stands_still(pid: int) -> bool:
    """Whether every thread of a process has heard that it is to stop: that takes a moment."""
    stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(each.rpartition(")")[2].split()[0] == "T" for each in stats)


class Before:
    """The collections that both programs have: as long as there is something, they are there."""

    def __init__(self, watch: Watch) -> None:
        self.content, self.digest = watch.content, watch.digest
        self.collections = lambda: [each for each in watch.collections() if "rich" not in each]


class Generations:
    """Processes of two programs on one store. Close it."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "lake")
        self.files = {}
        for which, text in (("old", program(PACED)), ("new", program(PACED) + RICH)):
            self.files[which] = folder / f"{which}.sql"
            self.files[which].write_text(text)
        self.watch = Watch(folder / "lake")
        self._fleet = Fleet(folder / "said")

    def start(self, which: str, *more: str) -> Life:
        words = ["run", str(self.files[which]), "--store", self.url, "--name", NAME, "--json"]
        return self._fleet.start("arrow", [*words, "--rows", "5", "--delay", "20", *more])

    def promote(self) -> None:
        words = ["promote", self.url, NAME, str(self.files["new"])]
        life = self._fleet.start("arrow", words)
        self.until(lambda: not life.alive())
        assert life.ended_well(), life.last_words()

    def until(self, holds: Callable[[], bool]) -> None:
        words = [life.last_words() for life in self._fleet.lives]
        assert self.watch.wait(holds, patience_s("arrow")), "\n".join(words)

    def halt(self, life: Life) -> None:
        """Stop a process, but not where it holds the lock of the store, which stops everybody."""
        while True:
            life.signal(signal.SIGSTOP)
            self.until(lambda: stands_still(life.pid))
            held = who_writes(self.url)
            if held is None or held.pid != life.pid:
                return
            life.signal(signal.SIGCONT)
            time.sleep(0.01)

    def written(self) -> tuple[object, ...]:
        """What is on record, and every batch of every shard; leases do not count."""
        store = self.watch._store
        batches = {name: store.machine(name).refresh().batches for name in store.shards()}
        return self.watch.journal.refresh().lsn, batches

    def close(self) -> None:
        self._fleet.close()
        self.watch.close()


@pytest.fixture
def generations(tmp_path: Path) -> Iterator[Generations]:
    made = Generations(tmp_path)
    yield made
    made.close()


def looked(life: Life) -> int:
    """How many transactions it says that it has looked at."""
    told = [each["audit"] for each in life.events() if each.get("audit")]
    audit = told[-1] if told else {}
    return sum(audit.get(name) or 0 for name in ("verified", "inputs"))


def test_s26_a_read_only_process_of_a_new_program_is_promoted_and_there_is_no_gap(
    generations: Generations,
) -> None:
    watch = generations.watch
    old = generations.start("old")
    generations.until(lambda: watch.committed() >= AHEAD)
    cold = generations.start("new", "--read-only")
    generations.until(lambda: looked(cold) >= 1)
    # It gets less than half of the time, and lags.
    while watch.committed() < 2 * AHEAD:
        generations.halt(cold)
        time.sleep(0.3 * (1 - SHARE))
        cold.signal(signal.SIGCONT)
        time.sleep(0.3 * SHARE)
    generations.halt(old)
    before = generations.written()
    time.sleep(ALONE_S)
    assert generations.written() == before, "it is read-only"
    old.signal(signal.SIGCONT)
    generations.promote()
    generations.until(lambda: not old.alive())
    assert "e2 was promoted, and this replica is older" in old.last_words()
    reached, taking = watch.committed(), generations.start("new")
    generations.until(lambda: watch.committed() >= reached + AHEAD)
    for life in (taking, cold):
        life.signal(signal.SIGTERM, group=False)
        generations.until(lambda life=life: not life.alive())
        assert life.ended_well(), life.last_words()
    told = watch.history()
    assert list(history.gaps(told)) == []
    epochs = [each.epoch for _, each in watch.journal.records() if isinstance(each, Commit)]
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2}
    assert list(against_oracle(Before(watch), told, generated(), range(len(told)))) == []
    last = len(told) - 1
    rich = {row[0] for row in watch.content("orders", last) if row[2] > 700_000}
    assert {row[0] for row in watch.content("rich", last)} == rich
    assert not watch.wrong
