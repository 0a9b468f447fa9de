"""What the footer of a part says of its row groups, and how one of them is read. Pure.

A reader that wants a few places of a large part fetches its last `TAIL_BYTES`, finds the groups
that may hold them, and fetches the bytes of those alone:

    tail  = the last TAIL_BYTES of the object, or more if `tail_length` asks for more
    index = read_index(tail, part, owner)
    for group in index.groups_of(places):
        updates = decode_group(index, group, bytes of [start, stop), part, schema, owner)

The checksum of the whole object can't be verified so. Instead the state has the checksum of the
footer, and the footer those of the groups, so nothing is believed that was not proven. A part
of an old version has neither (`proven` is false): it must be read whole, or all its groups
together must add up to its digest.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import CorruptionError
from strandline.parts.envelope import checksum
from strandline.parts.layout import places_of
from strandline.parts.parquet import (
    DAMAGE,
    PLACES_FACT,
    SUMS_FACT,
    check_footer,
    corrupt,
    footer_of,
    stored_names,
    with_constants,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.model.schema import Field, Schema
    from strandline.model.valuehash import I64, U64
    from strandline.parts.parquet import Owner
    from strandline.parts.part import Part

TAIL_BYTES = 128 * 1024
"""So much of the end of a part nearly always holds its footer."""

_MAGIC = b"PAR1"
_FRAME = 8
"""The length of the footer and the magic bytes, at the very end."""


@dataclass(frozen=True, slots=True, eq=False)
class PartIndex:
    """The row groups of one part: one entry a group in each array."""

    places: U64 | None
    """The first place of each, ascending; `None` if the part has no places or does not say."""
    place_hi: int
    """The last place of the last one."""
    rows: I64
    starts: I64
    stops: I64
    """Its bytes are those of `[start, stop)` of the object."""
    sums: U64 | None
    """The checksum of those bytes; `None` if the part does not say."""
    written: tuple[Field, ...]
    """The columns as they were written."""
    footer: pq.FileMetaData

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def proven(self) -> bool:
        """Whether the footer was verified, and single groups can be."""
        return self.sums is not None

    def groups_of(self, places: U64) -> list[int]:
        """The groups that may hold one of these places, which are sorted; all if it can't be told.

        The updates of a place may begin in one group and end in another.
        """
        if self.places is None:
            return list(range(len(self)))
        lasts = np.append(self.places[1:], np.uint64(self.place_hi))
        begin = np.searchsorted(places, self.places, side="left")
        end = np.searchsorted(places, lasts, side="right")
        found: list[int] = np.flatnonzero(end > begin).tolist()
        return found

    def groups_within(self, lo: int, hi: int) -> list[int]:
        """The groups that may hold a place from `lo` to `hi`, both inclusive: neighbours."""
        if self.places is None:
            return list(range(len(self)))
        lasts = np.append(self.places[1:], np.uint64(self.place_hi))
        found: list[int] = np.flatnonzero(
            (self.places <= np.uint64(hi)) & (lasts >= np.uint64(lo))
        ).tolist()
        return found


def tail_length(tail: bytes | memoryview, part: Part, owner: Owner) -> int:
    """How many bytes of the end of a part its footer takes, by its last few."""
    length = int.from_bytes(tail[-_FRAME:-4], "little") + _FRAME
    if len(tail) < _FRAME or length > part.size:
        raise corrupt(part, owner, "its footer is longer than the part")
    return length


def read_index(tail: bytes | memoryview, part: Part, owner: Owner) -> PartIndex:
    """The index of a part, from its last bytes: at least the `tail_length` of them."""
    if len(tail) < tail_length(tail, part, owner):
        raise corrupt(part, owner, "its footer was cut off")
    footer = footer_of(tail)
    if part.footer and checksum(footer) != part.footer:
        raise corrupt(part, owner, "the checksum of its footer does not match")
    try:
        # A file without row groups, as far as Arrow looks at it before some are read.
        file = pq.ParquetFile(pa.BufferReader(_MAGIC + footer))
        written = check_footer(file, part, owner)
        found = _index(file.metadata, written, part)
    except DAMAGE as error:
        raise corrupt(part, owner, str(error)) from error
    for reason in _lies(found, part):
        raise corrupt(part, owner, reason)
    return found


def decode_group(
    index: PartIndex,
    group: int,
    content: bytes | memoryview,
    part: Part,
    schema: Schema,
    owner: Owner,
) -> pa.Table:
    """The updates of one row group as rows of today's schema, as `decode_part` gives them.

    `content` are the group's bytes; they are verified if the index is `proven`.
    """
    start, stop = int(index.starts[group]), int(index.stops[group])
    if len(content) != stop - start:
        raise corrupt(part, owner, f"row group {group}: it ends before byte {stop}")
    if index.sums is not None and checksum(content) != int(index.sums[group]):
        raise corrupt(part, owner, f"row group {group}: its checksum does not match")
    wanted = stored_names(index.written, schema, None, part, owner)
    source = _Stretch(memoryview(content), start, part.size)
    try:
        file = pq.ParquetFile(source, metadata=index.footer)
        table = file.read_row_group(group, columns=wanted, use_threads=False)
        table = with_constants(schema.migrate(table, index.written), part)
    except (CorruptionError, *DAMAGE) as error:
        raise corrupt(part, owner, f"row group {group}: {error}") from error
    if table.num_rows != index.rows[group]:
        raise corrupt(part, owner, f"row group {group}: {table.num_rows} rows")
    if index.places is not None:
        first = places_of(table.slice(0, 1), schema)
        if first is None or first[0] != index.places[group]:
            raise corrupt(part, owner, f"row group {group} does not begin where the footer says")
    return table


def check_groups(encoded: bytes | memoryview, part: Part, schema: Schema, owner: Owner) -> None:
    """Make sure that whoever reads a part by its groups finds what one who reads it whole does."""
    index = read_index(encoded, part, owner)
    for group in range(len(index)):
        content = encoded[int(index.starts[group]) : int(index.stops[group])]
        decode_group(index, group, content, part, schema, owner)


def _index(footer: pq.FileMetaData, written: tuple[Field, ...], part: Part) -> PartIndex:
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    stretches = [_stretch(group, part.size) for group in groups]
    facts = footer.metadata or {}
    proven = part.footer != 0
    return PartIndex(
        places=_numbers(facts.get(PLACES_FACT.encode())) if proven else None,
        place_hi=part.place_hi,
        rows=np.array([group.num_rows for group in groups], np.int64),
        starts=np.array([start for start, _ in stretches], np.int64),
        stops=np.array([stop for _, stop in stretches], np.int64),
        sums=_numbers(facts.get(SUMS_FACT.encode(), b"")) if proven else None,
        written=written,
        footer=footer,
    )


def _lies(index: PartIndex, part: Part) -> Iterator[str]:
    """What an index says that can't be true."""
    if not len(index) or index.rows.sum() != part.rows or (index.rows <= 0).any():
        yield f"its row groups have {index.rows.tolist()} rows"
    if index.sums is not None and len(index.sums) != len(index):
        yield f"{len(index.sums)} checksums of {len(index)} row groups"
    places = index.places
    if places is None:
        return
    if len(places) != len(index):
        yield f"{len(places)} first places of {len(index)} row groups"
    elif (places[1:] < places[:-1]).any():
        yield "its row groups are not in the order of their places"
    elif int(places[0]) != part.place_lo or int(places[-1]) > part.place_hi:
        yield "its row groups begin outside of its places"


def _numbers(fact: bytes | None) -> U64 | None:
    """Numbers of 16 hex digits each."""
    if fact is None:
        return None
    raw = bytes.fromhex(fact.decode("ascii"))
    return np.frombuffer(raw, ">u8").astype(np.uint64)


def _stretch(group: pq.RowGroupMetaData, size: int) -> tuple[int, int]:
    """From where to where the bytes of a row group lie."""
    starts, stops = [], []
    for at in range(group.num_columns):
        column = group.column(at)
        offset = column.data_page_offset
        if column.dictionary_page_offset is not None:
            offset = min(offset, column.dictionary_page_offset)
        starts.append(offset)
        stops.append(offset + column.total_compressed_size)
    start, stop = min(starts), max(stops)
    if not 0 <= start <= stop <= size:
        raise ValueError(f"a row group from byte {start} to {stop} of {size}")
    return start, stop


class _Stretch(io.RawIOBase):
    """A file of which only one stretch is in memory: the one that will be asked for."""

    def __init__(self, content: memoryview, start: int, size: int) -> None:
        super().__init__()
        self._content = content
        self._start = start
        self._size = size
        self._at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> memoryview:
        """Without a copy: Arrow takes whatever has a buffer."""
        end = self._size if size < 0 else min(self._size, self._at + size)
        first, last = self._at - self._start, end - self._start
        if not 0 <= first <= last <= len(self._content):
            raise OSError(f"bytes {self._at} to {end} are outside of what the footer names")
        self._at = end
        return self._content[first:last]
