"""The rows that a descriptor asks for."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import InvariantError
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.build import build_base, build_delta
from strandline.parts.filters import parse_filter
from strandline.parts.inline import encode_inline
from strandline.parts.layout import lay_out
from strandline.parts.parquet import Owner, with_constants
from strandline.parts.part import Inline, Part, restamped_part
from strandline.parts.rows import check_rows
from strandline.reading.descriptor import PartDescriptor, decode_descriptor, encode_descriptor
from strandline.reading.extract import cut, extract, extract_updates

SCHEMA = Schema.create(pa.schema([("id", pa.int64()), ("name", pa.string())]), ["id"])
OWNER = Owner("s" + "0" * 32, "s/w/p.parquet")
CHECKED = check_rows(
    pa.table(
        {
            "id": [1, 1, 2, 3],
            "name": ["a", "a", "b", "c"],
            "_time": [3, 4, 4, 6],
            "_diff": [1, -1, 1, 1],
        }
    ),
    SCHEMA,
    lower=3,
    upper=Frontier(7),
)


def _delta() -> tuple[Part, bytes]:
    built = build_delta(lay_out(CHECKED.updates, SCHEMA), SCHEMA, OWNER)
    return built.part, built.encoded


def _inline() -> tuple[Inline, bytes]:
    return encode_inline(CHECKED), b""


def _base(time: int = 3) -> tuple[Part, bytes]:
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=SCHEMA.arrow())
    built = build_base(lay_out(rows, SCHEMA), SCHEMA, OWNER, time=time, level=1)
    return built.part, built.encoded


def _wanted(piece: Part | Inline, **fields: object) -> PartDescriptor:
    start = {"id": "p", "shard": "orders", "shard_id": OWNER.shard, "schema": SCHEMA, "owed": 3}
    return PartDescriptor(**{**start, "piece": piece, **fields})


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("made", [_delta, _inline])
@pytest.mark.parametrize(
    ("bounds", "rows"),
    [
        ({"after": 0}, [(1, "a", 3, 1), (1, "a", 4, -1), (2, "b", 4, 1), (3, "c", 6, 1)]),
        ({"after": 4}, [(1, "a", 4, -1), (2, "b", 4, 1), (3, "c", 6, 1)]),
        ({"after": 4, "upto": 6}, [(1, "a", 4, -1), (2, "b", 4, 1)]),
        ({"as_of": 3}, [(1, "a", 3, 1)]),
        ({"as_of": 5}, [(2, "b", 5, 1)]),
        ({"as_of": 9}, [(2, "b", 9, 1), (3, "c", 9, 1)]),
    ],
)
def test_updates_are_cut_to_the_times_asked_for(made, bounds, rows):
    piece, encoded = made()
    found = extract_updates(_wanted(piece, **bounds), encoded)
    assert found.column_names == ["id", "name", "_time", "_diff"]
    assert _rows(found) == rows


@pytest.mark.parametrize(
    ("bounds", "rows"),
    [
        ({"after": 0}, [(1, "a", 8, 1), (2, "b", 8, 1)]),
        ({"after": 8, "upto": 9}, [(1, "a", 8, 1), (2, "b", 8, 1)]),
        ({"after": 9}, []),
        ({"as_of": 9}, [(1, "a", 9, 1), (2, "b", 9, 1)]),
    ],
)
def test_an_untimed_part_is_read_at_the_time_it_was_moved_to(bounds, rows):
    given = pa.table({"id": [1, 2], "name": ["a", "b"]})
    checked = check_rows(given, SCHEMA, lower=4, upper=Frontier(5))
    built = build_delta(lay_out(checked.updates, SCHEMA), SCHEMA, OWNER, untimed=True)
    wanted = _wanted(restamped_part(built.part, 8), **bounds)
    travelled = decode_descriptor(encode_descriptor(wanted))
    assert travelled.piece == wanted.piece
    assert _rows(extract_updates(travelled, built.encoded)) == rows


@pytest.mark.parametrize(
    ("bounds", "rows"),
    [
        ({"after": 0}, [(1, "a", 0, 1), (2, "b", 0, 1)]),
        ({"after": 0, "upto": 1}, [(1, "a", 0, 1), (2, "b", 0, 1)]),
        ({"after": 0, "columns": ("name",)}, [("a", 0, 1), ("b", 0, 1)]),
        ({"after": 1}, []),
    ],
)
def test_rows_of_a_base_part_of_time_0_are_changes_at_it(bounds, rows):
    piece, encoded = _base(0)
    assert _rows(extract(_wanted(piece, **bounds), encoded)) == rows
    assert _rows(extract_updates(_wanted(piece, **bounds), encoded)) == rows
    decoded = with_constants(extract(_wanted(piece, as_of=0), encoded), piece)
    assert _rows(cut(_wanted(piece, **bounds), decoded)) == rows


def test_a_base_part_gives_rows_alone():
    piece, encoded = _base()
    assert _rows(extract(_wanted(piece, as_of=5), encoded)) == [(1, "a"), (2, "b")]
    stamped = extract_updates(_wanted(piece, as_of=5), encoded)
    assert _rows(stamped) == [(1, "a", 5, 1), (2, "b", 5, 1)]


@pytest.mark.parametrize("bounds", [{"as_of": 2}, {"after": 0}])
def test_a_base_part_is_never_read_for_what_it_cant_tell(bounds):
    piece, encoded = _base()
    with pytest.raises(InvariantError):
        extract(_wanted(piece, **bounds), encoded)


@pytest.mark.parametrize("made", [_base, _delta, _inline])
def test_a_filter_may_look_at_columns_that_are_not_asked_for(made):
    piece, encoded = made()
    wanted = parse_filter([("id", "=", 2)], SCHEMA)
    found = extract(_wanted(piece, as_of=5, columns=("name",), filter=wanted), encoded)
    assert found.column("name").to_pylist() == ["b"]
    assert set(found.column_names) <= {"name", "_diff"}
