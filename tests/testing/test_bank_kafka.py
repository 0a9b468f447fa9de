"""Simulated histories catch mutants of this bank; by night all of them are tried."""

import logging

import pytest

from strandline.testing.bank_kafka import BANK
from strandline.testing.cases import CASES
from strandline.testing.mutants import catch

SLICE = [
    "first_progress_record_counts",
    "last_message_decides",
    "older_producer_is_not_shut_out",
    "progress_follows_in_a_transaction_of_its_own",
    "progress_goes_ahead_in_a_transaction_of_its_own",
    "progress_is_read_uncommitted",
    "silence_is_taken_for_yes",
    "store_tells_of_no_older_lineage",
]
"""What is caught within a few histories."""


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.simulation
@pytest.mark.parametrize("name", SLICE)
def test_a_mutant_is_caught_early(name):
    (mutant,) = [each for each in BANK if each.name == name]
    assert catch(mutant, range(1, 61)) is not None


@pytest.mark.simulation
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", BANK, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught_within_60_seeds(mutant):
    assert catch(mutant, range(1, 61)) is not None


def test_every_mutant_says_what_it_breaks_and_where_that_shows():
    assert len({mutant.name for mutant in BANK}) == len(BANK) >= 12
    assert all(mutant.breaks and mutant.case in CASES for mutant in BANK)
    assert set(SLICE) <= {mutant.name for mutant in BANK}
