"""S26 for pipelines: a cold read-only generation that lags is promoted, and there is no gap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.shop import TEXT, rig_of, rows, run

from strandline.errors import FencedError
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.pipeline.auditor import Auditor
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import recorded, replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store

SPEED = 0.4
NEWER = {"engine": "the next one"}


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def _text(ahead: int) -> str:
    return TEXT.replace("rows '100'", f"rows '{ahead * 2}'")


def _newer(store: Store, text: str) -> Rig:
    computer = ArrowComputer(store, versions=NEWER)
    return replace(rig_of(store, text, rows_max=1), computer=computer)


def _written(lab: Lab, store: Store) -> tuple[object, ...]:
    """What is on record, and every batch of every shard; leases do not count."""
    batches = {name: store.machine(name).refresh().batches for name in store.shards()}
    return lab.consensus.head("journal/shop").seqno, batches


def _replaced(lab: Lab, ahead: int, seed: int) -> None:
    chance, text = random.Random(seed), _text(ahead)
    with new_store(lab) as old, new_store(lab) as new:
        running = Replica(rig_of(old, text, rows_max=1))
        running.step()
        running.step()
        looking = Auditor(_newer(new, text))
        fenced_at = ahead + chance.randrange(3)
        turn = 0
        while running.standing.next_t < fenced_at:
            turn += 1
            running.step()
            if chance.random() < SPEED and turn % 2:
                before = _written(lab, old)
                looking.step()
                assert _written(lab, old) == before, "it is read-only"
        for _ in range(chance.randrange(3)):
            running.step()
        reached = running.standing.next_t
        assert 0 < looking.audit.verified < reached
        looking.close()
        taking = Replica(_newer(new, text))
        taking.want(Want.PROMOTE)
        steps = 0
        while taking.standing.epoch < 2 or taking.standing.next_t <= reached:
            steps += taking.step() == 0
        # It does not matter how far it lagged: it goes on after the last commit.
        assert steps <= 10
        with pytest.raises(FencedError):
            running.step()
        run(taking)
        rig = _newer(new, text)
        history = list(recorded(rig.journal, 0, taking.standing.next_t))
        assert [each.sealed.t for each in history] == list(range(ahead * 2))
        epochs = [each.commit.epoch for each in history]
        assert epochs == sorted(epochs)
        assert set(epochs) == {1, 2}
        _equals_a_run_that_was_never_replaced(new, text, ahead * 2, chance)
        list(replay(rig, Planner(rig), 0, min(20, ahead)))
        running.close()
        taking.close()


def _equals_a_run_that_was_never_replaced(
    store: Store, text: str, count: int, chance: random.Random
) -> None:
    with new_store(Lab()) as alone:
        run(Replica(rig_of(alone, text, rows_max=1)))
        for at in sorted({*chance.sample(range(count), 5), count - 1}):
            for name in ("orders", "large", "totals"):
                assert rows(store, name, at) == rows(alone, name, at)


def test_s26_a_cold_read_only_generation_takes_over_without_a_gap(lab: Lab) -> None:
    _replaced(lab, 15, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_s26_a_thousand_transactions_ahead(lab: Lab, seed: int) -> None:
    _replaced(lab, 1_000, seed)
