"""What a reader sees of a shard."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import NotFoundError, SinceError
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described, pinned_view, time_at
from strandline.shard import command as c
from strandline.shard.leases import Leases
from strandline.shard.machine import Machine
from strandline.shard.moments import encode_moments, moments_key
from strandline.testing.lab import Lab


def _filled(lab: Lab, times: int, **settings: int) -> tuple[Machine, Leases]:
    env = lab.env(**settings)
    machine = lab.machine(env=env)
    leases = lab.leases(env)
    writer = Writer(machine, leases.writer(machine))
    for number in range(times):
        lab.clock.now = 1_000_000 + number * 1000
        writer.append(pa.table({"id": [number], "name": [f"n{number}"]}))
    return machine, leases


def test_s43_a_view_is_never_older_than_its_pin(lab: Lab) -> None:
    machine, leases = _filled(lab, 2)
    lease = leases.own_reader(machine)
    lease.holds.observe(machine.state.seqno.number)
    view = pinned_view(lease)
    assert view.state.seqno.number >= view.pin.seqno
    assert view.upper == Frontier(2)
    assert lease.holds.pins == 1
    view.pin.give_back()


def test_a_dropped_shard_is_not_found_and_nothing_stays_pinned(lab: Lab) -> None:
    machine, leases = _filled(lab, 1)
    lease = leases.own_reader(machine)
    machine.demand(c.Drop())
    with pytest.raises(NotFoundError):
        pinned_view(lease)
    assert lease.holds.pins == 0


def test_instants_are_found_in_lists_of_their_own_too(lab: Lab) -> None:
    machine, leases = _filled(lab, 6)
    before = [
        time_at(machine, pinned_view(leases.own_reader(machine)), 1_000_000 + n * 500)
        for n in range(12)
    ]
    moments = machine.refresh().moments[:4]
    writer = leases.writer(machine)
    key = moments_key(machine.state.id, writer.id, "0" * 32)
    chunk, encoded = encode_moments(moments, shard=machine.state.id, key=key)
    lab.blob.put(key, encoded)
    machine.demand(c.IndexMoments(writer.id, chunk))
    view = pinned_view(leases.own_reader(machine))
    assert len(view.state.moment_chunks) == 1
    after = [time_at(machine, view, 1_000_000 + n * 500) for n in range(12)]
    assert before == after == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    with pytest.raises(SinceError):
        time_at(machine, view, 999_999)


def test_what_statistics_leave_out_is_counted(lab: Lab) -> None:
    machine, leases = _filled(lab, 5, inline_max_bytes=0)
    view = pinned_view(leases.own_reader(machine))
    request = Request.parse(None, [("name", "=", "n3")], view.state.schema)
    found = described(machine, view.state, request, Bounds(as_of=4))
    assert [part.piece.t_min for part in found.parts] == [3]
    assert machine.env.metrics.value("parts_pruned", machine.name) == 4
    view.pin.give_back()
