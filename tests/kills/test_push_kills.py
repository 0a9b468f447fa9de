"""Rows that are pushed over HTTP: once answered they are never lost, whoever is killed then."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kills import history
from tests.kills.inputs import generated
from tests.kills.pushing import Producers
from tests.kills.racing import PACED, SEED, Racing
from tests.kills.shop import program

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(3600)]


def test_every_push_that_was_answered_counts_once_whoever_is_killed(
    tmp_path: Path, cycles: int, seed: int | None
) -> None:
    chosen = SEED if seed is None else seed
    race: Racing | None = None

    def urls() -> list[str]:
        alive = [] if race is None else [life for life in race.replicas if not life.killed]
        return [url for url in (life.url() for life in alive) if url is not None]

    producers = Producers(3, urls, chosen)
    race = Racing(
        tmp_path,
        seed=chosen,
        text=program({**PACED, "orders": ("http", {"format": "json", "envelope": "upsert"})}),
        given={**generated(), "orders": producers.pushes},
        words=("serve", "--port", "0"),
    )
    try:
        race.start()
        for _ in range(cycles):
            race.strike_at_random()
        producers.stop(race.patience_s)
        race.finish()
        sealed = history.pushed(race.watch.history())
    finally:
        race.close()
    assert not race.outcome.wrong, "\n".join([str(race.outcome.facts()), *race.outcome.wrong[:10]])
    assert {each: len(rows) - 1 for each, rows in producers.pushes.rows.items()} == sealed
    assert producers.answered == sealed, "every push was answered, and is on record"
    assert all(len(pushes) > 1 for pushes in producers.pushes.rows.values()), producers.told
