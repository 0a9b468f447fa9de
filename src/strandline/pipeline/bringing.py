"""What a reload brings: rows from anywhere, as chunks of typed rows that fit their table.

A row that can't be decoded, or does not fit, refuses the whole reload before anything is agreed
on: a table is never replaced by a part of what was meant.

    CHUNK_BYTES   about so much is in memory at once, wherever rows are staged
    number        of a split or of a task; its chunks come after those of lower numbers
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors import raw as layout
from strandline.connectors.files import NAME as FILES, path_of
from strandline.connectors.incoming import decode
from strandline.connectors.reading import is_about_rows, reading
from strandline.connectors.registry import fetch
from strandline.errors import SchemaError, UsageError
from strandline.model.ids import printable
from strandline.pipeline.rows import CHUNKS_MAX, staged_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from strandline.connectors.source import ResolveSecret, Split
    from strandline.pipeline.rows import Target

CHUNK_BYTES = 32 * 1024 * 1024
CHUNKS_EACH = 1 << 14
NUMBERS_MAX = CHUNKS_MAX // CHUNKS_EACH
"""Of tasks, or of files, in one reload."""
_TABLES_OWN = ("envelope", "sequenceBy", "keepDeleted", "newColumns", "onError", "format")
"""What a table says of its own source, and not of whatever else it is reloaded from."""


@dataclass(frozen=True, slots=True)
class Bringing:
    """What is to be staged for a table."""

    pipeline: str
    table: Target
    splits: tuple[Split, ...] = ()
    """Pieces, each of which is read whole: a file, or a range of a source."""
    options: Mapping[str, str] = field(default_factory=dict)
    """How their rows are read."""
    frame: object = None
    """Or a DataFrame of Spark."""
    shard: str = ""
    """Or a shard, as of `at`."""
    at: int = 0
    offset_bytes: int = 1
    """About how many bytes an offset stands for: those of files count bytes."""

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(each.stop - each.start for each in self.splits) * self.offset_bytes


def options_for(
    table: Mapping[str, str], given: Mapping[str, str], envelope: str = "append"
) -> dict[str, str]:
    """How rows are read: as the table reads its own, but for what is said of these."""
    about_rows = {
        name: value
        for name, value in table.items()
        if is_about_rows(name) and name not in _TABLES_OWN
    }
    chosen = {name: value for name, value in given.items() if is_about_rows(name)}
    return {**about_rows, **chosen, "envelope": envelope}


def brought(
    split: Split, table: Target, options: Mapping[str, str], resolve: ResolveSecret, number: int
) -> Iterator[pa.Table]:
    """The rows of one piece, in chunks, as they are staged."""
    rows = split_rows(split, table, options, resolve)
    return chunks_of(rows, table, number, deletes=options.get("envelope") == "upsert")


def split_rows(
    split: Split, table: Target, options: Mapping[str, str], resolve: ResolveSecret
) -> Iterator[pa.Table]:
    """The rows of one piece; the first that is none is refused by name. Where a later one may
    delete what an earlier one brought, they say so (`_delete`)."""
    how = reading(table.columns, table.key, options)
    names = [*table.columns.names, *([layout.DELETE] if how.keyed else [])]
    for batch in fetch(split, resolve):
        found = decode(batch, how).table
        for bad in found.filter(found["_error"].is_valid()).slice(0, 1).to_pylist():
            place = f"{_place(split)} at {bad[layout.OFFSET]}"
            raise SchemaError(f"{table.name} is not reloaded: {place} is no row: {bad['_error']}")
        yield found.select(names)


def _place(split: Split) -> str:
    if split.connector == FILES:
        return path_of(split.partition)
    return f"{split.connector}, partition {printable(split.partition)}"


def chunks_of(
    tables: Iterable[pa.Table], table: Target, number: int, *, deletes: bool = False
) -> Iterator[pa.Table]:
    """Rows as they are staged, in chunks of a bounded size."""
    if not 0 <= number < NUMBERS_MAX:
        raise UsageError(f"a reload takes at most {NUMBERS_MAX} files or tasks: merge some")
    first = number * CHUNKS_EACH
    for at, rows in enumerate(_flushed(_cut(tables))):
        if at >= CHUNKS_EACH:
            raise UsageError(f"a file or task of a reload has at most {CHUNKS_EACH} chunks: split")
        if layout.DELETE in rows.column_names and not deletes:
            raise SchemaError(
                f"{table.name} is not reloaded: a row deletes ({layout.DELETE}), and a reload says "
                "what there is; leave such rows out"
            )
        yield staged_rows(rows, table, first + at)


def no_rows(table: Target) -> pa.Table:
    """The chunk of a reload that leaves a table empty."""
    return staged_rows(table.columns.empty_table(), table, 0)


def _cut(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for rows in tables:
        step = max(1, CHUNK_BYTES * rows.num_rows // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, step):
            yield rows.slice(start, step)


def _flushed(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    size = 0
    for piece in pieces:
        if held and size + piece.nbytes > CHUNK_BYTES:
            yield pa.concat_tables(held).combine_chunks()
            held, size = [], 0
        held.append(piece)
        size += piece.nbytes
    if held:
        yield pa.concat_tables(held).combine_chunks()
