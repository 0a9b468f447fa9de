"""Simulated histories catch mutants of this bank; `make bench NAME=simulator` tries them all."""

import pytest

from strandline.testing.bank_pipeline import BANK
from strandline.testing.cases import CASES
from strandline.testing.mutants import catch

SLICE = [
    "aborted_handle_is_committed",
    "tombstones_are_ignored",
    "full_view_is_compared_with_itself",
]


@pytest.mark.simulation
@pytest.mark.parametrize("name", SLICE)
def test_a_mutant_is_caught_early(name):
    (mutant,) = [each for each in BANK if each.name == name]
    assert catch(mutant, range(1, 121)) is not None


@pytest.mark.slow
@pytest.mark.simulation
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", BANK, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught_within_60_seeds(mutant):
    assert catch(mutant, range(1, 61)) is not None


def test_every_mutant_says_what_it_breaks_and_where_that_shows():
    assert len({mutant.name for mutant in BANK}) == len(BANK) >= 18
    assert all(mutant.breaks and mutant.case in CASES for mutant in BANK)
