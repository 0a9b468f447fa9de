"""Where the rows of an append go."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import BoundsError, MaybeAppliedError, NotAppliedError
from strandline.handles import stage as stage_module
from strandline.handles.stage import Prepared, Stage
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.chunk import add_stats, decode_chunk
from strandline.parts.rows import Checked, check_rows
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.testing.lab import Lab

WRITER = "w" + "1" * 32


def prepare(lab: Lab, machine: Machine, count: int, upper: int = 1) -> Prepared:
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": ["x" * 10] * count,
            "_time": pa.array([n % upper for n in range(count)], pa.int64()),
        }
    )
    state = machine.state
    checked = check_rows(table, state.schema, lower=0, upper=Frontier(upper))
    stage = Stage(machine.env, machine.name, WRITER)
    return stage.prepare(checked, state, lower=0, upper=Frontier(upper))


def test_no_rows_need_no_batch(lab: Lab):
    machine = lab.machine()
    stage = Stage(machine.env, machine.name, WRITER)
    nothing = Checked.nothing(machine.state.schema)
    made = stage.prepare(nothing, machine.state, lower=3, upper=Frontier(9))
    assert (made.batch, made.digests, made.rows, made.objects) == (None, {}, 0, ())


@pytest.mark.parametrize(
    ("settings", "inline"),
    [
        ({}, True),
        ({"inline_max_bytes": 100}, False),
        ({"inline_total_bytes": 100}, False),
    ],
)
def test_rows_stay_inline_while_they_are_few(lab: Lab, settings: dict[str, int], *, inline: bool):
    machine = lab.machine(env=lab.env(**settings))
    made = prepare(lab, machine, 100)
    assert made.batch is not None
    assert (made.batch.inline is not None) == inline
    assert bool(made.batch.parts) != inline
    assert {entry.key for entry in lab.blob.list("")} == set(made.objects)


def test_long_lists_of_parts_become_chunks(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stage_module, "CHUNK_PARTS", 16)
    machine = lab.machine(env=lab.env(inline_max_bytes=0, part_target_rows=10, listed_parts=10))
    made = prepare(lab, machine, 200)
    assert made.batch is not None
    assert made.batch.parts == ()
    assert [chunk.parts for chunk in made.batch.chunks] == [16, 4]
    assert made.batch.rows == 200
    assert made.batch.total == sum_of(made)
    assert {entry.key for entry in lab.blob.list("")} == set(made.objects)
    shard = machine.state.id
    for chunk in made.batch.chunks:
        listing, stats = lab.blob.get(chunk.key), lab.blob.get(chunk.stats_key)
        assert listing is not None
        table = add_stats(decode_chunk(listing, chunk, shard=shard), stats, chunk, shard=shard)
        assert table.stats is not None
        assert {part.key for part in table.parts()} <= set(made.objects)


def sum_of(made: Prepared) -> object:
    digests = list(made.digests.values())
    total = digests[0]
    for digest in digests[1:]:
        total += digest
    return total


def test_what_was_staged_in_vain_is_deleted(lab: Lab):
    machine = lab.machine(env=lab.env(inline_max_bytes=0))
    made = prepare(lab, machine, 100)
    Stage(machine.env, machine.name, WRITER).discard(made)
    assert list(lab.blob.list("")) == []


def test_too_many_times_are_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stage_module, "TIMES_MAX", 4)
    with pytest.raises(BoundsError, match="at 4 times, this one has them at 5"):
        prepare(lab, lab.machine(), 5, upper=5)


class Away:
    """A Blob that takes nothing."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def put(self, _key: str, _value: bytes) -> None:
        raise self.error("planted")

    def delete(self, _key: str) -> bool:
        raise self.error("planted")


@pytest.mark.parametrize("error", [NotAppliedError, MaybeAppliedError])
def test_a_store_that_stays_away_is_an_error_in_the_end(lab: Lab, error: type[Exception]):
    env = lab.env(inline_max_bytes=0, commit_deadline_ms=20, read_deadline_ms=20)
    machine = lab.machine(env=env)
    object.__setattr__(env, "blob", Away(error))
    with pytest.raises(error):
        prepare(lab, machine, 100)


def test_what_can_not_be_deleted_stays_an_orphan(lab: Lab):
    machine = lab.machine(env=lab.env(inline_max_bytes=0))
    made = prepare(lab, machine, 100)
    object.__setattr__(machine.env, "blob", Away(NotAppliedError))
    Stage(machine.env, machine.name, WRITER).discard(made)
    assert machine.env.metrics.value("retries", "orders") == 1


def test_a_row_of_more_columns_than_a_header_lists_becomes_a_part(lab: Lab):
    env = lab.env()
    columns = pa.schema([(f"c{n}", pa.int64()) for n in range(7_000)])
    machine = Machine(env, "wide")
    machine.commit(c.Create("wide", "s" + "0" * 32, Schema.create(columns), 0))
    state = machine.state
    row = pa.table([[n] for n in range(7_000)], schema=columns)
    checked = check_rows(row, state.schema, lower=0, upper=Frontier(1))
    made = Stage(env, "wide", WRITER).prepare(checked, state, lower=0, upper=Frontier(1))
    assert made.batch is not None
    assert (made.batch.inline, len(made.batch.parts)) == (None, 1)
