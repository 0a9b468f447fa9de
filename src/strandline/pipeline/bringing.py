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
from strandline.connectors.files import path_of
from strandline.connectors.incoming import decode
from strandline.connectors.reading import OPTIONS, reading
from strandline.connectors.registry import fetch
from strandline.errors import SchemaError, UsageError
from strandline.pipeline.rows import CHUNKS_MAX, staged_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from strandline.connectors.source import ResolveSecret, Split
    from strandline.pipeline.rows import Target

CHUNK_BYTES = 32 * 1024 * 1024
CHUNKS_EACH = 1 << 14
NUMBERS_MAX = CHUNKS_MAX // CHUNKS_EACH
"""Of tasks, or of files, in one reload."""


@dataclass(frozen=True, slots=True)
class Bringing:
    """What is to be staged for a table."""

    pipeline: str
    table: Target
    splits: tuple[Split, ...] = ()
    """Files, each of which is read whole."""
    options: Mapping[str, str] = field(default_factory=dict)
    """How their rows are read."""
    frame: object = None
    """Or a DataFrame of Spark."""

    @property
    def size(self) -> int:
        """Bytes of files."""
        return sum(each.stop - each.start for each in self.splits)


def options_for(table: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """How rows of files are read: as the table reads its own, but for what is said of these."""
    about_rows = {name: value for name, value in table.items() if name in OPTIONS}
    for name in ("envelope", "sequenceBy", "newColumns", "onError", "format"):
        about_rows.pop(name, None)
    chosen = {name: value for name, value in given.items() if name in OPTIONS}
    return {**about_rows, **chosen, "envelope": "append"}


def split_rows(
    split: Split, table: Target, options: Mapping[str, str], resolve: ResolveSecret
) -> Iterator[pa.Table]:
    """The rows of one file; the first that is none is refused by name."""
    how = reading(table.columns, table.key, options)
    names = table.columns.names
    for batch in fetch(split, resolve):
        found = decode(batch, how).table
        for bad in found.filter(found["_error"].is_valid()).slice(0, 1).to_pylist():
            place = f"{path_of(split.partition)} at {bad[layout.OFFSET]}"
            raise SchemaError(f"{table.name} is not reloaded: {place} is no row: {bad['_error']}")
        yield found.select(names)


def chunks_of(tables: Iterable[pa.Table], table: Target, number: int) -> Iterator[pa.Table]:
    """Rows as they are staged, in chunks of a bounded size."""
    if not 0 <= number < NUMBERS_MAX:
        raise UsageError(f"a reload takes at most {NUMBERS_MAX} files or tasks: merge some")
    first = number * CHUNKS_EACH
    for at, rows in enumerate(_flushed(_cut(tables))):
        if at >= CHUNKS_EACH:
            raise UsageError(f"a file or task of a reload has at most {CHUNKS_EACH} chunks: split")
        if layout.DELETE in rows.column_names:
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
