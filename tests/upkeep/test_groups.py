"""Parts read one row group at a time: the same rows, and no damage goes unseen."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError
from strandline.parts import parquet
from strandline.parts.layout import places_of
from strandline.parts.part import PLACE_MAX
from strandline.upkeep import groups
from strandline.upkeep.groups import PartGroups

from .upkeep_lab import Table


@pytest.fixture
def table(lab, monkeypatch):
    monkeypatch.setattr(groups, "WHOLE_BYTES", 1)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1024)
    made = Table(lab, inline_max_bytes=0)
    made.append(*((k, f"name {k % 7}", 1) for k in range(5000)))
    return made


def groups_of(table, part):
    state = table.state
    return PartGroups(table.env, part, state.schema, shard=state.name, shard_id=state.id)


def test_row_groups_together_are_the_part(table):
    [part] = table.parts()
    found = list(groups_of(table, part).tables())
    assert [each.num_rows for each in found] == [1024, 1024, 1024, 1024, 904]
    [whole] = table.tables()
    assert pa.concat_tables(found).equals(whole)


@pytest.mark.parametrize("whole", [True, False])
def test_spans_of_places_together_are_the_part_and_read_their_share_of_it(
    table, monkeypatch, whole
):
    [part] = table.parts()
    if whole:
        monkeypatch.setattr(groups, "WHOLE_BYTES", part.size)
    borders = [2**62, 2**63 + 12345, 2**63 + 2**62]
    spans = list(zip([0, *borders], [*(each - 1 for each in borders), PLACE_MAX], strict=True))
    found = []
    for lo, hi in spans:
        piece = pa.concat_tables(groups_of(table, part).tables((lo, hi)))
        places = places_of(piece, table.state.schema)
        assert lo <= places.min() <= places.max() <= hi
        found.append(piece)
    [everything] = table.tables()
    assert pa.concat_tables(found).equals(everything)
    if not whole:
        assert len(list(groups_of(table, part).tables((0, 2**60)))) == 1


def test_a_damaged_group_is_noticed_by_whoever_reads_a_span_of_it(table, lab):
    [part] = table.parts()
    broken = bytearray(lab.blob.get(part.key))
    broken[100] ^= 0x10
    lab.blob._objects[part.key] = bytes(broken)
    with pytest.raises(CorruptionError, match=part.key):
        list(groups_of(table, part).tables((0, 2**62)))


def test_a_damaged_byte_anywhere_is_noticed(table, lab):
    [part] = table.parts()
    sound = lab.blob.get(part.key)
    for at in range(0, len(sound), max(1, len(sound) // 60)):
        broken = bytearray(sound)
        broken[at] ^= 0x10
        lab.blob._objects[part.key] = bytes(broken)
        try:
            rows = pa.concat_tables(groups_of(table, part).tables())
        except CorruptionError:
            continue
        lab.blob._objects[part.key] = sound
        assert rows.equals(pa.concat_tables(groups_of(table, part).tables())), at


@pytest.mark.parametrize("length", [0, 5, 100, -9])
def test_a_part_that_was_cut_short_is_named(table, lab, length):
    [part] = table.parts()
    lab.blob._objects[part.key] = lab.blob.get(part.key)[:length]
    with pytest.raises(CorruptionError, match=part.key):
        list(groups_of(table, part).tables())


def test_a_missing_part_is_named(table, lab):
    [part] = table.parts()
    lab.blob.delete(part.key)
    with pytest.raises(CorruptionError, match="missing"):
        list(groups_of(table, part).tables())
