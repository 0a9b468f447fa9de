"""Fetching all of several parts."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from strandline.errors import CancelledError
from strandline.handles.write import Writer
from strandline.model.tasks import Event
from strandline.reading.descriptor import PartDescriptor
from strandline.reading.gather import Failed, gather
from strandline.reading.snapshot import take_snapshot
from strandline.shard.cancel import Cancel
from strandline.shard.env import Env
from strandline.store.memory import MemoryBlob
from strandline.testing.lab import Lab


class SlowBlob(MemoryBlob):
    """Answers when it is told to."""

    def __init__(self, objects: dict[str, bytes], go: Event) -> None:
        super().__init__(objects)
        self._go = go

    def get(self, key: str) -> bytes | None:
        self._go.wait(20_000)
        return super().get(key)


@pytest.fixture
def case(lab: Lab) -> tuple[Env, list[PartDescriptor]]:
    env = lab.env(inline_max_bytes=0)
    machine = lab.machine(env=env)
    leases = lab.leases(env)
    writer = Writer(machine, leases.writer(machine))
    for number in range(6):
        writer.append(pa.table({"id": [number], "name": ["x"]}))
    return env, take_snapshot(machine, leases, None).parts()


def test_rows_come_in_the_order_of_the_descriptors(case) -> None:
    env, parts = case
    for order in (parts, parts[::-1]):
        found = gather(env, "orders", order)
        assert [table["id"].to_pylist() for table in found] == [[p.piece.t_min] for p in order]


def test_nothing_is_fetched_for_nothing(case) -> None:
    assert gather(case[0], "orders", []) == []


def test_the_part_that_failed_is_named(lab: Lab, case) -> None:
    env, parts = case
    lab.blob.delete(parts[3].piece.key)
    found = gather(env, "orders", parts)
    assert isinstance(found, Failed)
    assert found.descriptor is parts[3]


def test_a_read_can_be_cancelled(lab: Lab, case) -> None:
    env, parts = case
    go = env.tasks.event()
    slow = replace(env, blob=SlowBlob(lab.blob._objects, go))
    cancel = Cancel(env.tasks.event())
    cancel.cancel()
    with pytest.raises(CancelledError):
        gather(slow, "orders", parts, cancel)
    go.set()
