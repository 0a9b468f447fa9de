"""One small value in the store: the newest counts, and only the newest is kept."""

from __future__ import annotations

import msgspec
import pytest

from strandline.errors import CorruptionError, MaybeAppliedError
from strandline.model.ids import SeqNo
from strandline.pipeline.register import Register
from strandline.store.consensus import CasResult, Versioned
from strandline.testing.lab import Lab


class Value(msgspec.Struct, frozen=True, array_like=True):
    number: int


@pytest.fixture
def lab():
    made = Lab()
    yield made
    made.close()


def test_a_value_is_changed_by_what_is_there(lab):
    one, two = (Register(lab.env(), "control/x", "control", Value) for _ in range(2))
    assert one.read() is None
    assert one.change(lambda old: Value(1 if old is None else old.number + 1)) == Value(1)
    assert two.change(lambda old: Value(1 if old is None else old.number + 1)) == Value(2)
    assert one.read() == Value(2)
    assert len(lab.consensus.scan("control/x", SeqNo(0), 10)) == 1


def test_the_same_again_writes_nothing(lab):
    register = Register(lab.env(), "control/x", "control", Value)
    register.change(lambda _: Value(7))
    before = lab.consensus.head("control/x")
    register.change(lambda _: Value(7))
    assert lab.consensus.head("control/x") == before


def test_a_lost_answer_is_looked_up_and_not_applied_twice(lab):
    env = lab.env()
    register = Register(env, "control/x", "control", Value)
    lost = []

    def compare_and_set(key: str, new: Versioned) -> CasResult:
        result = type(env.consensus).compare_and_set(env.consensus, key, new)
        if not lost:
            lost.append(new)
            raise MaybeAppliedError("no answer")
        return result

    env.consensus.compare_and_set = compare_and_set
    assert register.change(lambda old: old or Value(1)) == Value(1)
    assert lost
    assert lab.consensus.head("control/x").seqno == SeqNo(0)


def test_a_value_of_another_key_is_refused(lab):
    Register(lab.env(), "control/x", "control", Value).change(lambda _: Value(7))
    data = lab.consensus.head("control/x").data
    lab.consensus.compare_and_set("control/y", Versioned(SeqNo(0), data))
    with pytest.raises(CorruptionError):
        Register(lab.env(), "control/y", "control", Value).read()
