"""Deliberately wrong variants of the shipped code, which simulated histories must catch.

Seeds alone prove nothing; what they would find does. A mutant replaces a function of the real
code by a wrong one while a case runs. A checker that has never objected to anything is worth
nothing, and neither is a workload that never reaches what a mutant breaks.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.testing.cases import CASES
from strandline.testing.seeds import try_seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_OUR_OWN_MISTAKES = (TypeError, AttributeError, NameError)


class BrokenMutantError(Exception):
    """A mutant that can't run proves nothing."""


class Planting:
    """Replaces attributes, and puts the originals back."""

    def __init__(self) -> None:
        self._originals: list[tuple[object, str, object]] = []

    def swap(self, owner: object, name: str, wrong: object) -> None:
        """Put `wrong` in the place of a module's function or a class's method."""
        originals = vars(owner)
        self._originals.append((owner, name, originals[name]))
        setattr(owner, name, wrong)

    def swap_all(self, owners: Iterable[object], name: str, wrong: object) -> None:
        """The same wherever the name was imported."""
        for owner in owners:
            self.swap(owner, name, wrong)

    def undo(self) -> None:
        while self._originals:
            owner, name, original = self._originals.pop()
            setattr(owner, name, original)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong variant: what it is called, what it breaks, and where that must come to light."""

    name: str
    breaks: str
    """The scenario, rule or promise."""
    case: str
    plant: Callable[[Planting], None]


def mutant(
    breaks: str, case: str, bank: list[Mutant]
) -> Callable[[Callable[[Planting], None]], Callable[[Planting], None]]:
    """Put a function that plants a mutant into a bank, under the function's name."""

    def add(plant: Callable[[Planting], None]) -> Callable[[Planting], None]:
        bank.append(Mutant(plant.__name__, breaks, case, plant))
        return plant

    return add


@contextmanager
def planted(wrong: Mutant) -> Iterator[None]:
    """The shipped code with this one thing wrong."""
    planting = Planting()
    try:
        wrong.plant(planting)
        yield
    finally:
        planting.undo()


def catch(wrong: Mutant, seeds: Iterable[int]) -> int | None:
    """The first of these seeds under which the mutant's case fails; `None` if none does."""
    with planted(wrong):
        report = try_seeds(CASES[wrong.case], seeds)
    for seed, error in report.failures.items():
        if isinstance(error.__cause__, _OUR_OWN_MISTAKES):
            raise BrokenMutantError(f"{wrong.name}: {error}") from error.__cause__
        return seed
    return None


def all_mutants() -> list[Mutant]:
    """The whole bank, in order of their names."""
    from strandline.testing import (  # noqa: PLC0415 - the banks import this module
        bank_appends,
        bank_emptying,
        bank_ingest,
        bank_journal,
        bank_kafka,
        bank_leases,
        bank_pipeline,
        bank_reads,
        bank_sinks,
        bank_upkeep,
    )

    banks = (
        bank_appends,
        bank_emptying,
        bank_ingest,
        bank_journal,
        bank_kafka,
        bank_leases,
        bank_pipeline,
        bank_reads,
        bank_sinks,
        bank_upkeep,
    )
    return sorted((each for bank in banks for each in bank.BANK), key=lambda each: each.name)
