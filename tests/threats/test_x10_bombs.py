"""X10: a part that claims more than it is gets refused at once, before a page is unpacked."""

from __future__ import annotations

import resource
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.errors import CorruptionError
from strandline.model.schema import Schema
from strandline.parts.envelope import checksum
from strandline.parts.parquet import Owner, decode_part
from strandline.parts.part import Part
from strandline.store.locate import BLOB_FOLDER, open_folder
from strandline.testing.specimen import COLUMNS, fill, open_ports, read_all

OWNER = Owner(f"s{'1' * 32}", f"s{'1' * 32}/w{'2' * 32}/{'3' * 32}.parquet")
SCHEMA = Schema.create(COLUMNS)
MEMORY_MAX = 200 * 1024 * 1024
FACTS = {
    "strandline.format": "1",
    "strandline.shard": OWNER.shard,
    "strandline.key": OWNER.key,
}


def encoded(table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(FACTS), sink, **options)
    return sink.getvalue().to_pybytes()


def many(rows, text="x"):
    """Rows that are all the same: a few bytes on disk, a lot in memory."""
    ids = pa.array(np.zeros(rows, np.int64))
    names = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text]).cast(pa.string())
    return pa.Table.from_arrays([ids, names], schema=SCHEMA.arrow())


def listed(data, rows):
    return Part(OWNER.key, len(data), checksum(data), rows, b"", 0, 0, True, 0, 0, 0, 1)


def nested(depth):
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    fields = [pa.field("id", kind), pa.field("name", pa.string())]
    return pa.Table.from_arrays(
        [pa.nulls(3, kind), pa.nulls(3, pa.string())], schema=pa.schema(fields)
    )


BOMBS = {
    "more rows than listed": lambda: (encoded(many(5_000_000)), 3),
    "fewer rows than listed": lambda: (encoded(many(3)), 2**40),
    "deep nesting": lambda: (encoded(nested(60)), 3),
    "other columns": lambda: (encoded(pa.table({"a": [1, 2, 3]})), 3),
    "our columns in a base part": lambda: (
        encoded(many(3).append_column("_time", pa.array([1, 2, 3]))),
        3,
    ),
    "no part at all": lambda: (b"PAR1" + b"\xff" * 1000 + b"PAR1", 3),
    "a footer that is longer than the file": lambda: (
        encoded(many(3))[:-8] + b"\xff\xff\xff\x7fPAR1",
        3,
    ),
    "nothing": lambda: (b"", 3),
}


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("bomb", ["more rows than listed", "fewer rows than listed"])
def test_a_wrong_count_of_rows_is_seen_in_the_footer_and_no_page_is_read(bomb, monkeypatch):
    data, rows = BOMBS[bomb]()
    read = []
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: read.append(bomb))
    with pytest.raises(CorruptionError, match="rows instead of"):
        decode_part(data, listed(data, rows), SCHEMA, owner=OWNER)
    assert read == []


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_by_name_without_being_unpacked(bomb):
    data, rows = BOMBS[bomb]()
    before = peak()
    with pytest.raises(CorruptionError, match=f"part {OWNER.key} is damaged"):
        decode_part(data, listed(data, rows), SCHEMA, owner=OWNER)
    assert peak() - before < MEMORY_MAX


def test_a_part_that_claims_to_unpack_beyond_the_limit_is_refused(monkeypatch):
    """The limit itself, lowered: making 8 GiB takes longer than refusing it."""
    data = encoded(many(100_000, "y" * 100), use_dictionary=False)
    part = listed(data, 100_000)
    assert decode_part(data, part, SCHEMA, owner=OWNER).num_rows == 100_000
    monkeypatch.setattr("strandline.parts.parquet._UNPACKED_MAX", 1_000_000)
    with pytest.raises(CorruptionError, match="it would unpack to"):
        decode_part(data, part, SCHEMA, owner=OWNER)


def test_a_bomb_in_the_place_of_a_part_is_stopped_by_size_and_checksum(tmp_path):
    lake = tmp_path / "lake"
    with open_ports(*open_folder(str(lake), create=True)) as store:
        fill(store)
    bomb = encoded(many(5_000_000))
    before = peak()
    for file in (lake / BLOB_FOLDER).rglob("*.parquet"):
        file.write_bytes(bomb)
    with (
        pytest.raises(CorruptionError, match=r"part .* is damaged: .*bytes instead of"),
        open_ports(*open_folder(str(lake), create=False)) as store,
    ):
        read_all(store)
    assert peak() - before < MEMORY_MAX
    shutil.rmtree(lake)
