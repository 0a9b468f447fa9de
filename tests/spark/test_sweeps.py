"""Tombstones go after their period, by the transaction's own clock, in both engines alike."""

from __future__ import annotations

import pytest
from tests.spark.transactions import Transactions, message

import strandline
from strandline.errors import StrandlineError
from strandline.model.engine import Rules
from strandline.pipeline import meaning
from strandline.spark.computer import SparkComputer
from strandline.spark.premises import Desks, Premises
from strandline.spark.sweeps import swept_too
from strandline.testing import computing
from strandline.testing.computing import ArrowComputer

TEXT = """
CREATE TABLE t (id BIGINT, seq BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (sequenceBy 'seq', keepDeleted '1h');
CREATE TABLE other (id BIGINT, PRIMARY KEY (id)) USING generator;
"""
MINUTE_MS = 60_000


def event(key, seq, *, delete=False):
    return message(key, {"id": key, "seq": seq, **({"_delete": True} if delete else {})})


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as opened:
        yield opened


def history(shop):
    """What the table holds, and of which keys the deletion is known, after each transaction."""
    seen = []

    def then(minutes, *events, other=False):
        shop.clock += minutes * MINUTE_MS
        intakes = [shop.staged("t", list(events))] if events else []
        intakes += [shop.staged("other", [message(1, {"id": 1})])] if other else []
        shop.run(*intakes)
        rows = [row["id"] for row in shop.rows("t")]
        seen.append((rows, [row["id"] for row in shop.rows("t_tombs")]))

    then(0, event(1, 5), event(2, 5), event(3, 5))
    then(0, *(event(key, 9, delete=True) for key in (1, 2, 3)))
    then(59, event(1, 7))
    then(0, event(2, 8, delete=True), event(3, 10))
    then(2, event(1, 7))
    then(0, other=True)
    return seen


EXPECTED = [
    ([1, 2, 3], []),
    ([], [1, 2, 3]),
    # Late ones change nothing: neither what is gone, nor when that was.
    ([], [1, 2, 3]),
    ([3], [1, 2]),
    # The hour is over. What comes with the sweep is compared with nothing any more.
    ([1, 3], []),
    ([1, 3], []),
]


def test_old_tombstones_go_with_the_transaction_that_is_due(store, monkeypatch):
    monkeypatch.setattr(meaning, "SWEEP_EVERY", 1)
    shop = Transactions(store, TEXT, ArrowComputer(store))
    assert history(shop) == EXPECTED
    shop.close()


def test_between_two_sweeps_they_stay(store, monkeypatch):
    monkeypatch.setattr(meaning, "SWEEP_EVERY", 6)
    shop = Transactions(store, TEXT, ArrowComputer(store))
    # The sixth sweeps, though nothing comes for the table.
    assert history(shop) == [*EXPECTED[:4], ([3], [1, 2]), ([3], [])]
    shop.close()


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (computing, "sweep_before", lambda how, _, now_ms: now_ms if how.sequence_by else None),
        (computing, "sweep_before", lambda *_: None),
        # What goes would still be compared with, and what came would be buried by nobody.
        (computing.ArrowComputer, "_buried", lambda self, work, _: self._old(work, "t_tombs")),
        (meaning, "rules_of", lambda how, _: Rules(how.sequence_by, bury=True, buried_at=0)),
    ],
    ids=["too early", "never", "after what came", "by no clock"],
)
def test_a_wrong_sweep_is_caught(store, monkeypatch, owner, name, instead):
    monkeypatch.setattr(meaning, "SWEEP_EVERY", 1)
    monkeypatch.setattr(owner, name, instead)
    shop = Transactions(store, TEXT, ArrowComputer(store))
    # One history may even hold a tombstone that is retracted twice, and can't be read.
    with pytest.raises((AssertionError, StrandlineError)):
        assert history(shop) == EXPECTED
    shop.close()


def test_forever_is_for_ever(store, monkeypatch):
    monkeypatch.setattr(meaning, "SWEEP_EVERY", 1)
    shop = Transactions(store, TEXT.replace("1h", "forever"), ArrowComputer(store))
    assert history(shop)[-1] == ([3], [1, 2])
    shop.close()


@pytest.mark.spark
def test_spark_sweeps_what_the_reference_sweeps(store, spark, monkeypatch):
    monkeypatch.setattr(meaning, "SWEEP_EVERY", 1)
    with SparkComputer(store, spark, str) as computer:
        shop = Transactions(store, TEXT, computer)
        assert history(shop) == EXPECTED
        shop.close()


def test_what_has_no_tombstones_is_not_even_read(store):
    shop = Transactions(store, TEXT, ArrowComputer(store))
    desks = Desks(store)
    for _ in range(2):
        with Premises(desks, shop.work()) as premises:
            assert swept_too(premises, "t_tombs", None, 10**15).few is None
        shop.run()
    desks.close()
    shop.close()
