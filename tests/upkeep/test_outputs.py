"""What a merge writes: cut where the plan says, and nowhere within a place."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.parts import ranges
from strandline.upkeep import outputs
from strandline.upkeep.outputs import Outputs
from strandline.upkeep.units import BOTTOM, FULL, RESIDUE, Unit

from .upkeep_lab import Table


def updates(schema, rows):
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(column) for column in columns], schema=schema.updates())


def written(table, unit, rows, *, borders=(), bytes_max=1 << 30):
    state = table.state
    made = Outputs(
        table.env, state, unit, writer=table.writer.id, borders=borders, bytes_max=bytes_max
    )
    made.add(updates(state.schema, rows))
    made.close()
    return made.parts


def test_parts_end_at_the_borders(lab):
    table = Table(lab)
    borders = ranges.borders(ranges.WHOLE, 2)
    rows = [(k, "x", 0, 1) for k in range(1000)]
    parts = written(table, Unit("merge"), rows, borders=borders)
    assert len(parts) == 4
    for part, (first, last) in zip(
        parts, zip([0, *borders], [*borders, 2**64], strict=True), strict=True
    ):
        assert first <= part.place_lo <= part.place_hi < last


def test_live_rows_become_a_base_and_the_rest_a_residue(lab):
    table = Table(lab)
    rows = [(1, "x", 0, 2), (2, "x", 0, -1), (3, "x", 5, 1)]
    base, delta = written(table, Unit("fold", base=True), rows)
    assert (base.base, base.rows, base.level) == (True, 2, BOTTOM)
    assert (delta.base, delta.rows, delta.level, delta.t_min, delta.t_max) == (
        False,
        2,
        RESIDUE,
        0,
        5,
    )


def test_without_base_all_stay_updates(lab):
    table = Table(lab)
    [part] = written(table, Unit("merge", level=3), [(1, "x", 0, 1), (2, "y", 1, -1)])
    assert (part.base, part.rows, part.level) == (False, 2, 3)


@pytest.mark.parametrize("key", [("id",), ()])
def test_insertions_and_all_else_become_parts_of_their_own_if_there_are_many(lab, key, monkeypatch):
    table = Table(lab, key=key)
    rows = [(k, "x", 1 + k % 5, (1, -1, 1, 2)[k % 4]) for k in range(1000)]
    [whole] = written(table, Unit("merge", level=3), rows)
    monkeypatch.setattr(outputs, "DIVIDE_BYTES", 1)
    inserts, others = written(table, Unit("merge", level=3), rows)
    assert [inserts.rows, others.rows] == [500, 500]
    assert [inserts.inserts, others.inserts, whole.inserts] == [True, False, False]
    assert [inserts.level, others.level] == [3, 3]
    assert inserts.total + others.total == whole.total
    for each in (inserts, others):
        table.check_part(each)
    [alone] = written(table, Unit("merge"), [row for row in rows if row[3] == 1])
    assert alone.inserts


def test_large_parts_without_places_are_marked_as_full(lab):
    table = Table(lab, key=())
    parts = written(
        table, Unit("full", base=True), [(k, "x", 0, 1) for k in range(50)], bytes_max=9
    )
    assert [part.level for part in parts] == [FULL]
