"""Clerks reach what they are there for, and their journal is judged."""

import logging

import pytest

from strandline.testing import clerks
from strandline.testing.cases import CASES, Case
from strandline.testing.checkers import HistoryError
from strandline.testing.seeds import unreached
from strandline.testing.simulation import Simulation


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.simulation
def test_the_histories_reach_what_they_are_there_for():
    wanted = ["a commit came late", "a journal was cut", "a clerk was fenced", "crash"]
    assert unreached(CASES["journal"], *wanted) == []


def calm(people, judge):
    off = tuple(CASES["naps"].off)
    return Case("calm", people, faults_ms=200, off=off, clean=False, judge=judge)


def test_what_anybody_saw_wrong_fails_the_history():
    def people(world):
        clerks.clerks(world)
        clerks.witness_of(world).wrong.append("somebody saw something")

    with Simulation(1) as sim, pytest.raises(HistoryError, match="somebody saw something"):
        calm(people, clerks.judge)(sim)


def test_an_entry_that_nobody_can_load_fails_the_history():
    def judge(world):
        witness = clerks.witness_of(world)
        witness.scan = lambda _key, _start, _limit: witness.versions[2:]
        clerks.judge(world)

    with Simulation(1) as sim, pytest.raises(HistoryError, match="what is left can't be loaded"):
        calm(clerks.clerks, judge)(sim)
