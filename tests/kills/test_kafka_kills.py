"""Replicas that read a real broker and a folder: drivers and the broker are killed under load."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.kills.feeding import PARTITIONS, Feed
from tests.kills.inputs import file_of
from tests.kills.racing import SEED, Racing
from tests.kills.shop import program

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]


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


def run(broker, topics, folder: Path, seed: int, engine: str, cycles: int) -> None:
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
        )
        try:
            race.start()
            race.strike("kill the broker")
            for _ in range(cycles):
                race.strike_at_random()
            takes_all(race, feed)
            race.finish()
        finally:
            race.close()
    assert not race.outcome.wrong, "\n".join([str(race.outcome.facts()), *race.outcome.wrong[:10]])


@pytest.mark.slow
@pytest.mark.chaos
def test_s72_drivers_and_the_broker_are_killed_and_every_row_counts_once(
    broker, topics, tmp_path: Path, cycles: int, seed: int | None
) -> None:
    run(broker, topics, tmp_path, SEED if seed is None else seed, "arrow", cycles)
