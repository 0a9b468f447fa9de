"""Why a part can't be read."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError, LeaseLostError, NotAppliedError, NotFoundError
from strandline.handles.write import Writer
from strandline.reading.descriptor import PartDescriptor
from strandline.reading.diagnose import diagnose
from strandline.reading.snapshot import take_snapshot
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.store.memory import MemoryConsensus
from strandline.testing.lab import Lab

DAMAGE = CorruptionError("it is damaged")


class AbsentConsensus(MemoryConsensus):
    """Never answers a read."""

    def scan(self, *_: object) -> object:
        raise NotAppliedError("nobody is there")


@pytest.fixture
def case(lab: Lab) -> tuple[Machine, str, PartDescriptor]:
    env = lab.env(inline_max_bytes=0, diagnose_ms=200, read_deadline_ms=2_000)
    machine = lab.machine(env=env)
    leases = lab.leases(env)
    Writer(machine, leases.writer(machine)).append(pa.table({"id": [1], "name": ["x"]}))
    (part,) = take_snapshot(machine, leases, None).parts()
    return machine, leases.own_reader(machine).id, part


def test_s49_an_object_that_is_there_is_damaged(case):
    machine, reader, part = case
    assert diagnose(machine, reader, part, DAMAGE) is DAMAGE


def test_s49_a_reader_that_is_gone_has_lost_its_lease(lab, case):
    machine, _, part = case
    lab.blob.delete(part.piece.key)
    found = diagnose(machine, "r" + "0" * 32, part, DAMAGE)
    assert isinstance(found, LeaseLostError)
    assert part.piece.key in str(found)


@pytest.mark.parametrize("anew", [False, True])
def test_a_shard_that_was_dropped_is_told_from_a_lost_lease(lab, case, anew):
    machine, reader, part = case
    machine.demand(c.Drop())
    if anew:
        lab.machine()
    lab.blob.delete(part.piece.key)
    assert isinstance(diagnose(machine, reader, part, DAMAGE), NotFoundError)


def test_s49_a_reader_that_is_listed_was_not_protected(lab, case):
    machine, reader, part = case
    lab.blob.delete(part.piece.key)
    found = diagnose(machine, reader, part, DAMAGE)
    assert isinstance(found, CorruptionError)
    assert "hold did not protect" in str(found)
    assert found.__cause__ is DAMAGE


def test_s49_without_an_answer_the_diagnosis_ends_all_the_same(lab, case):
    machine, reader, part = case
    lab.blob.delete(part.piece.key)
    here = machine.env
    machine.env = replace(here, consensus=AbsentConsensus(lab.clock))
    found = diagnose(machine, reader, part, DAMAGE)
    machine.env = here
    assert "could not be found out" in str(found)


def test_other_errors_stand(case):
    machine, reader, part = case
    error = NotAppliedError("later")
    assert diagnose(machine, reader, part, error) is error
