"""Tests of what every shell module of a process is given."""

from __future__ import annotations

import pytest

from strandline.errors import MaybeAppliedError, NotAppliedError, UsageError
from strandline.testing.lab import Lab


class Flaky:
    """Fails as told, then answers."""

    def __init__(self, *errors: type[Exception]) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)("planted")
        return "answer"


def test_a_patient_call_is_repeated_until_it_answers(lab: Lab) -> None:
    env = lab.env()
    call = Flaky(NotAppliedError, MaybeAppliedError, NotAppliedError)
    assert env.patient(call, shard="orders") == "answer"
    assert call.calls == 4
    assert env.metrics.value("retries", "orders") == 3


def test_patience_ends_at_the_deadline(lab: Lab) -> None:
    with pytest.raises(NotAppliedError):
        lab.env(read_deadline_ms=0).patient(Flaky(NotAppliedError))


def test_an_insistent_call_leaves_doubt_to_its_caller(lab: Lab) -> None:
    env = lab.env()
    assert env.insistent(Flaky(NotAppliedError)) == "answer"
    with pytest.raises(MaybeAppliedError):
        env.insistent(Flaky(MaybeAppliedError))


def test_other_errors_are_not_repeated(lab: Lab) -> None:
    call = Flaky(UsageError)
    with pytest.raises(UsageError):
        lab.env().patient(call)
    assert call.calls == 1
