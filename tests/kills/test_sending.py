"""G13: messages and hard kills; nothing twice, nothing lost, nothing out of order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.kills.sending import SEED, Sending

pytestmark = [pytest.mark.process, pytest.mark.chaos, pytest.mark.timeout(3600)]


EACH = ("stop one beyond its leases", "kill the broker", "kill one", "kill both", "kill the broker")
"""The smallest form. Whoever is stopped comes back as a zombie, and then one of both is killed."""


def sent(sending: Sending, messages: int, kills: int, kinds: Sequence[str] = ()) -> None:
    outcome = sending.run(messages, kills, kinds)
    assert not outcome.wrong, "\n".join([str(outcome), *outcome.wrong[:10]])
    assert outcome.messages >= messages
    assert (outcome.duplicates, outcome.losses, outcome.reorderings) == (0, 0, 0)
    assert outcome.hard == kills


def test_s78_what_leaves_for_kafka_leaves_once_whoever_is_killed(
    broker, topics, tmp_path: Path, seed: int | None
) -> None:
    made = Sending(tmp_path, broker, topics, seed=SEED if seed is None else seed)
    sent(made, 5_000, len(EACH), EACH)


@pytest.mark.slow
def test_s78_as_often_as_it_is_told_to(
    broker, topics, tmp_path: Path, cycles: int, seed: int | None
) -> None:
    made = Sending(tmp_path, broker, topics, seed=SEED if seed is None else seed)
    sent(made, 1_000 * cycles, cycles)


@pytest.mark.slow
def test_what_is_planted_is_caught(broker, topics, tmp_path: Path, seed: int | None) -> None:
    """A judge that never finds anything proves nothing.

    Transactions are large, so that most kills come in the middle of a delivery.
    """
    found = Sending(
        tmp_path,
        broker,
        topics,
        seed=SEED if seed is None else seed,
        rows=500,
        engine="arrow!intent_is_taken_for_done",
    ).run(20_000, 20)
    assert found.losses > 0, str(found)
    assert found.wrong
