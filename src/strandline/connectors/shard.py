"""Another shard as a source: its times are offsets, its changes are rows.

    option  meaning
    ------  ---------------------------------------------------------------------------------
    shard   its name
    key     columns; if given, changes come as rows and deletions of keys, else with `_diff`

Only settled times are offered. The first range begins at 0: what the shard held before its
history begins comes with it, as of the first time that can be told apart. What was acknowledged
is where history is held, so that ranges that may be read again stay readable (critical: the hold
is durable, and no lease).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from strandline.connectors import raw as layout
from strandline.connectors.options import refuse_unknown, required
from strandline.connectors.position import Position, Range
from strandline.connectors.reading import names
from strandline.connectors.source import Changes, Limits, Ports, ResolveSecret, Split
from strandline.errors import SchemaError, SourceGoneError, UsageError
from strandline.model.ids import printable, valid_name
from strandline.model.schema import TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = "shard"
PARTITION = "t"

_OPTIONS = ("shard", "key")


class ShardSource:
    """The source, over whatever tells a shard's changes."""

    replayable = True

    def __init__(self, options: Mapping[str, str], changes: Changes) -> None:
        refuse_unknown(NAME, options, _OPTIONS)
        self._name = valid_name(required(NAME, options, "shard"))
        self._options = {name: options[name] for name in _OPTIONS if name in options}
        self._changes = changes
        known = changes.schema().names
        for name in names(options.get("key", "")):
            if name not in known:
                raise SchemaError(f"shard {printable(self._name)} has no column {printable(name)}")

    def latest(self) -> Position:
        return {PARTITION: self._changes.upper()}

    def plan(self, start: Position, limits: Limits) -> Range | None:
        first = start.get(PARTITION, 0)
        stop = self._changes.upper()
        if limits.rows is not None:
            # Times up to `since` are one, so that the first range takes them all.
            stop = min(stop, max(first + limits.rows, 0 if first else self._changes.since() + 1))
        return Range({PARTITION: (first, stop)}) if stop > first else None

    def splits(self, taken: Range) -> list[Split]:
        return [
            Split(NAME, self._options, partition, start, stop)
            for partition, (start, stop) in taken.filled().parts.items()
        ]

    def check(self, taken: Range) -> None:
        for start, stop in taken.filled().parts.values():
            since = self._changes.since()
            if since >= (start or stop):
                raise SourceGoneError(
                    f"shard {printable(self._name)} has merged its history up to {since}: changes "
                    f"from {start} to {stop} can't be told apart any more; amend the transaction"
                )

    def acknowledge(self, upto: Position) -> None:
        if at := upto.get(PARTITION, 0):
            # A time is told apart from the one before it, so that one has to stay.
            self._changes.hold(at - 1)

    def close(self) -> None: ...


def open_source(options: Mapping[str, str], ports: Ports) -> ShardSource:
    if ports.changes is None:
        raise UsageError("there is no store here that a shard could be read from")
    return ShardSource(options, ports.changes(required(NAME, options, "shard")))


def fetch(split: Split, resolve: ResolveSecret) -> Iterator[pa.RecordBatch]:  # noqa: ARG001 - the port
    """Refused: a shard is read by whoever has its store, with `fetch_changes`."""
    raise UsageError(f"shard {printable(split.options['shard'])} can't be read without its store")


def fetch_changes(split: Split, changes: Changes) -> Iterator[pa.RecordBatch]:
    """The rows of a split in order of their times."""
    columns = list(changes.schema())
    found = pa.Table.from_batches(
        changes.changes(split.start, split.stop),
        schema=pa.schema([*columns, (TIME_COLUMN, pa.int64()), (layout.DIFF, pa.int64())]),
    )
    placed = _placed(found, split)
    key = names(split.options.get("key", ""))
    yield from (_by_key(placed, key) if key else placed).to_batches()


def _placed(found: pa.Table, split: Split) -> pa.Table:
    times = pc.max_element_wise(found[TIME_COLUMN], split.start)
    rest = found.drop_columns([TIME_COLUMN, layout.DIFF])
    columns = [
        *rest.columns,
        pa.repeat(pa.scalar(split.partition), found.num_rows),
        times,
        found[layout.DIFF],
    ]
    ours = pa.field(layout.DIFF, pa.int64())
    made = pa.Table.from_arrays(columns, schema=layout.typed_schema(list(rest.schema), ours))
    return made.sort_by(layout.OFFSET)


def _by_key(placed: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """What each key holds from a time on: the row that came, or nothing if one only went."""
    came = placed.filter(pc.greater(placed[layout.DIFF], 0))
    went = placed.filter(pc.less(placed[layout.DIFF], 0))
    same = [*key, layout.OFFSET]
    # Only keys take part in the join: it knows no nested columns.
    numbered = went.select(same).append_column("_at", pa.array(range(went.num_rows), pa.int64()))
    alone = numbered.join(came.select(same), keys=same, join_type="left anti")
    gone = went.take(alone["_at"])
    if pc.max(came[layout.DIFF]).as_py() not in {None, 1}:
        raise SchemaError("a row is in the shard more than once: its key is not the shard's key")
    deletes = [pa.repeat(False, came.num_rows), pa.repeat(True, gone.num_rows)]
    whole = pa.concat_tables([came, gone]).drop_columns([layout.DIFF])
    whole = whole.append_column(layout.DELETE, pa.chunked_array(deletes, pa.bool_()))
    return whole.sort_by([(layout.OFFSET, "ascending"), *((name, "ascending") for name in key)])
