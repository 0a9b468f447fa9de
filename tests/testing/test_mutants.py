"""Mutants are planted, caught, and gone afterwards."""

import pytest

from strandline.errors import InvariantError
from strandline.testing import mutants
from strandline.testing.cases import CASES, Case
from strandline.testing.mutants import BrokenMutantError, Mutant, Planting, all_mutants, catch


class Shipped:
    def answer(self) -> int:
        return 42


def wrong(planting: Planting) -> None:
    planting.swap(Shipped, "answer", lambda self: 41)


@pytest.fixture
def toy(monkeypatch):
    """A case that fails where the answer is wrong and the seed is at least 3."""

    class Toy(Case):
        def __call__(self, sim):
            if sim.seed >= 3 and Shipped().answer() != 42:
                raise InvariantError("the answer is wrong")

    monkeypatch.setitem(CASES, "toy", Toy("toy", people=lambda world: None))


def test_a_planted_mutant_is_gone_afterwards_whatever_happens():
    mutant = Mutant("wrong", "the answer", "toy", wrong)
    seen = []
    with pytest.raises(ZeroDivisionError), mutants.planted(mutant):
        seen.append(Shipped().answer() // (Shipped().answer() - 41))
    with mutants.planted(mutant):
        seen.append(Shipped().answer())
    assert [*seen, Shipped().answer()] == [41, 42]


def test_the_first_seed_that_catches_a_mutant_is_told(toy):
    assert catch(Mutant("wrong", "the answer", "toy", wrong), range(1, 10)) == 3
    assert catch(Mutant("wrong", "the answer", "toy", wrong), range(1, 3)) is None
    assert catch(Mutant("right", "nothing", "toy", lambda planting: None), range(1, 10)) is None


def test_a_mutant_that_can_not_run_proves_nothing(monkeypatch):
    class Failing(Case):
        def __call__(self, sim):
            sim.node("p").start("t", lambda: Shipped().answer(1))
            sim.run()

    monkeypatch.setitem(CASES, "toy", Failing("toy", people=lambda world: None))
    with pytest.raises(BrokenMutantError):
        catch(Mutant("wrong", "the answer", "toy", wrong), [1])


def test_a_name_that_is_not_there_can_not_be_replaced():
    with pytest.raises(KeyError):
        Planting().swap(Shipped, "question", None)


def test_the_bank_is_large_and_its_names_are_unique():
    names = [mutant.name for mutant in all_mutants()]
    assert len(names) == len(set(names))
    assert len(names) >= 36


@pytest.mark.simulation
@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_still_fits_the_code_it_is_planted_in(mutant):
    """Raises `BrokenMutantError` where it does not; whether one seed catches it is chance."""
    catch(mutant, [1])
