"""Simulated histories catch mutants of this bank; `make bench NAME=simulator` tries them all."""

import pytest

from strandline.testing.bank_reads import BANK
from strandline.testing.cases import CASES
from strandline.testing.mutants import catch

SLICE = [
    "arrivals_settle_the_oldest",
    "errors_are_progress",
    "merged_rows_are_no_changes",
    "merged_times_are_served",
    "one_press_stops_all",
]


@pytest.mark.simulation
@pytest.mark.parametrize("name", SLICE)
def test_a_mutant_is_caught_within_300_seeds(name):
    (mutant,) = [each for each in BANK if each.name == name]
    assert catch(mutant, range(1, 301)) is not None


@pytest.mark.slow
@pytest.mark.simulation
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", BANK, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught_within_300_seeds(mutant):
    assert catch(mutant, range(1, 301)) is not None


def test_every_mutant_says_what_it_breaks_and_where_that_shows():
    assert len({mutant.name for mutant in BANK}) == len(BANK)
    assert all(mutant.breaks and mutant.case in CASES for mutant in BANK)
