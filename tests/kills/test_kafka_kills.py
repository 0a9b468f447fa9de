"""Replicas that read a real broker and a folder: drivers and the broker are killed under load."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.kills.feeding import PARTITIONS, Feed
from tests.kills.inputs import file_of
from tests.kills.racing import ALONE, SEED, SURVIVE_S, Outcome, Racing
from tests.kills.shop import program

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]

SPARK = (pytest.mark.spark, pytest.mark.xdist_group("cluster"))


@contextmanager
def fed(broker, topics, folder: Path, seed: int) -> Iterator[Feed]:
    feed = Feed(broker.address, topics.make(PARTITIONS), folder / "incoming", seed)
    try:
        yield feed
    finally:
        feed.stop(60)


def takes_all(race: Racing, feed: Feed) -> None:
    """Every row that the broker and the folder have is in the tables, in the end."""
    feed.stop(race.patience_s)
    assert not feed.troubles

    def holds() -> bool:
        positions = race.watch.journal.refresh().positions
        taken = positions.get("orders", {})
        files = {file_of(each) for each in positions.get("customers", {})}
        return feed.ends().items() <= taken.items() and feed.files() <= files

    assert race.watch.wait(holds, race.patience_s), race.watch.journal.refresh().positions


def run(
    broker, topics, folder: Path, seed: int, engine: str, strikes: Sequence[str | None]
) -> Outcome:
    """What happens, by name, one after the other; `None` is anything."""
    chance = random.Random(seed)

    def kill_the_broker() -> None:
        broker.kill()
        time.sleep(chance.uniform(0, 1.5))
        broker.start()

    with fed(broker, topics, folder, seed) as feed:
        race = Racing(
            folder,
            seed=seed,
            engine=engine,
            text=program(feed.using(broker.address)),
            given=feed.given,
            more={"kill the broker": kill_the_broker},
            words=["run", "--delay", "50", "--rows", "20" if engine == "arrow" else "1000"],
        )
        try:
            race.start()
            for kind in strikes:
                race.strike_at_random() if kind is None else race.strike(kind)
            takes_all(race, feed)
            race.finish()
        finally:
            race.close()
    assert not race.outcome.wrong, "\n".join([str(race.outcome.facts()), *race.outcome.wrong[:10]])
    assert race.outcome.done.total() == len(strikes)
    return race.outcome


def test_s72_a_driver_of_two_and_the_broker_are_killed_and_every_row_counts_once(
    broker, topics, tmp_path: Path, seed: int | None
) -> None:
    """The smallest form: once each."""
    chosen = SEED if seed is None else seed
    run(broker, topics, tmp_path, chosen, "arrow", ["kill one", "kill the broker", "kill both"])


def test_s27_whichever_of_two_on_a_broker_stood_still_survives_the_other_within_5_s(
    broker, topics, tmp_path: Path, seed: int | None
) -> None:
    chosen = SEED if seed is None else seed
    outcome = run(broker, topics, tmp_path, chosen, "arrow", ALONE)
    assert len(outcome.survived_s) == len(ALONE)
    assert outcome.slowest_s() <= SURVIVE_S, outcome.facts()


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("engine", ["arrow", pytest.param("spark:1", marks=SPARK)])
def test_s72_drivers_and_the_broker_are_killed_and_every_row_counts_once(
    broker, topics, tmp_path: Path, cycles: int, seed: int | None, engine: str
) -> None:
    """A life of Spark takes ten times as long to begin, so it gets a tenth of the cycles; and a
    transaction of it, so each takes more rows, or it would never have taken all."""
    chosen = SEED if seed is None else seed
    most = cycles if engine == "arrow" else cycles // 10
    run(broker, topics, tmp_path, chosen, engine, ["kill the broker", "kill one", *[None] * most])
