"""Another shard as a source: its times are offsets, its changes are rows.

    option   meaning
    -------  ---------------------------------------------------------------------------------
    shard    its name
    columns  JSON, the table's own: those that are read, whatever else the shard has or will have
    key      JSON, the table's own: if given, changes come as rows and deletions of keys, else
             with `_diff`

Only settled times are offered, and only where there is something at them. The first range, from 0
on, is what the shard held as of its last time, which is the oldest that could be read: nothing
before it could be told apart. Every range has the same rows for ever, each as often as it occurs
with a `_diff` of 1 or -1, however the shard is merged meanwhile.

A position holds `shard` beside the time: which shard of that name it is about, as a number that
stands for its id. History is held where it was acknowledged, so that ranges that may be read again
stay readable (critical: the hold is durable, and no lease).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.connectors import raw as layout
from strandline.connectors.options import refuse_unknown, required
from strandline.connectors.position import Position, Range
from strandline.connectors.source import Changes, Limits, Ports, ResolveSecret, Split
from strandline.errors import ConflictError, SchemaError, SinceError, SourceGoneError, UsageError
from strandline.model.ids import printable, valid_name
from strandline.model.schema import TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = "shard"
PARTITION = "t"
SHARD = "shard"

_OPTIONS = ("shard", "columns", "key")


class ShardSource:
    """The source, over whatever tells a shard's changes."""

    replayable = True

    def __init__(self, options: Mapping[str, str], changes: Changes) -> None:
        refuse_unknown(NAME, options, _OPTIONS)
        self._name = valid_name(required(NAME, options, "shard"))
        self._options = {name: options[name] for name in _OPTIONS if name in options}
        self._changes = changes
        self._check_fits()

    def latest(self) -> Position:
        return {PARTITION: self._changes.upper(), SHARD: self._changes.identity()}

    def plan(self, start: Position, limits: Limits) -> Range | None:
        self._same(start.get(SHARD))
        first, stop = start.get(PARTITION, 0), self._changes.filled()
        if stop <= first:
            self._go_on()
            return None
        if not first:
            # Times up to `since` are one, so that the first range takes them all, and no other.
            stop = min(self._changes.upper(), self._changes.since() + 1)
        else:
            self._readable(first, stop)
            if limits.rows is not None:
                stop = self._changes.admit(first, stop, limits.rows)
        identity = self._changes.identity()
        return Range({PARTITION: (first, stop), SHARD: (identity, identity)})

    def splits(self, taken: Range) -> list[Split]:
        return [
            Split(NAME, self._options, partition, start, stop)
            for partition, (start, stop) in taken.filled().parts.items()
        ]

    def check(self, taken: Range) -> None:
        for start, stop in taken.filled().parts.values():
            self._same(taken.parts.get(SHARD, (None, None))[0])
            self._readable(start, stop)

    def secure(self, taken: Range) -> None:
        """Hold the history that a range is read from, before it is sealed.

        `ConflictError` if it was merged since the range was planned: plan again.
        """
        start, stop = taken.parts[PARTITION]
        try:
            self._changes.hold((start or stop) - 1)
        except SinceError as error:
            raise ConflictError(
                f"shard {printable(self._name)} was merged while its changes were planned: {error}"
            ) from error

    def acknowledge(self, upto: Position) -> None:
        if at := upto.get(PARTITION, 0):
            # A time is told apart from the one before it, so that one has to stay.
            self._changes.move_hold(at - 1)

    def close(self) -> None: ...

    def _go_on(self) -> None:
        """A shard that nobody writes to any more looks like one that is up to date."""
        if reason := self._changes.given_up():
            raise SourceGoneError(
                f"shard {printable(self._name)} will not change any more, and all of it was taken: "
                f"{reason}. Feed a new table from what there is now (this one would keep the rows "
                "that it has), or take it out of the program"
            )

    def _same(self, identity: int | None) -> None:
        now = self._changes.identity()
        if identity not in {None, now}:
            raise SourceGoneError(
                f"shard {printable(self._name)} is another one than rows were taken from before "
                f"(ids {identity} and {now}): give the table another name, or bring that one back"
            )

    def _readable(self, start: int, stop: int) -> None:
        since = self._changes.since()
        if since >= (start or stop):
            raise SourceGoneError(
                f"shard {printable(self._name)} has merged its history up to {since}: changes from "
                f"{start} to {stop} can't be told apart any more; amend the transaction, or give "
                "the table another name to begin anew"
            )

    def _check_fits(self) -> None:
        known, name = self._changes.schema().names, f"shard {printable(self._name)}"
        for column in (*_listed(self._options, "columns"), *_listed(self._options, "key")):
            if column not in known:
                raise SchemaError(f"{name} has no column {printable(column)}")
        ours, theirs = _listed(self._options, "key"), self._changes.key()
        if ours and theirs and set(ours) != set(theirs):
            raise SchemaError(
                f"{name} has the key ({', '.join(theirs)}), and the table that it feeds "
                f"({', '.join(ours)}): several of its rows could be one; declare the same key, or "
                "read it with envelope 'append'"
            )


def open_source(options: Mapping[str, str], ports: Ports) -> ShardSource:
    if ports.changes is None:
        raise UsageError("there is no store here that a shard could be read from")
    return ShardSource(options, ports.changes(required(NAME, options, "shard")))


def fetch(split: Split, resolve: ResolveSecret) -> Iterator[pa.RecordBatch]:  # noqa: ARG001 - the port
    """Refused: a shard is read by whoever has its store, with `fetch_changes`."""
    raise UsageError(f"shard {printable(split.options['shard'])} can't be read without its store")


def fetch_changes(split: Split, changes: Changes) -> Iterator[pa.RecordBatch]:
    """The rows of a split in order of their times."""
    for updates in changes.changes(split.start, split.stop):
        yield from rows_of(updates, split).to_batches()


def rows_of(updates: pa.Table, split: Split) -> pa.Table:
    """Consolidated updates as rows of a source; for a table with a key, all of each key."""
    columns = _listed(split.options, "columns")
    own = [*(columns or [each for each in updates.schema.names if not each.startswith("_")])]
    often = np.abs(updates[layout.DIFF].to_numpy())
    found = updates.take(pa.array(np.repeat(np.arange(len(often)), often)))
    times = found[TIME_COLUMN] if split.start else _repeated(split.stop - 1, found.num_rows)
    arrays = [
        *(found[name] for name in own),
        pa.repeat(pa.scalar(split.partition), found.num_rows),
        times,
        pc.sign(found[layout.DIFF]).cast(pa.int64()),
    ]
    ours = pa.field(layout.DIFF, pa.int64())
    fields = [found.schema.field(name).remove_metadata() for name in own]
    placed = pa.Table.from_arrays(arrays, schema=layout.typed_schema(fields, ours))
    key = _listed(split.options, "key")
    return _by_key(placed, key, split) if key else placed.sort_by(layout.OFFSET)


def _repeated(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def _listed(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(options.get(name, "[]"), type=list[str]))


def _by_key(placed: pa.Table, key: tuple[str, ...], split: Split) -> pa.Table:
    """What each key holds from a time on: the row that came, or nothing if one only went."""
    came = placed.filter(pc.greater(placed[layout.DIFF], 0))
    went = placed.filter(pc.less(placed[layout.DIFF], 0))
    same = [*key, layout.OFFSET]
    if came.select(same).group_by(same).aggregate([]).num_rows != came.num_rows:
        raise SchemaError(
            f"shard {printable(split.options['shard'])} has several rows with the same "
            f"{', '.join(key)} at one time: that is no key of it"
        )
    # Only keys take part in the join: it knows no nested columns.
    numbered = went.select(same).append_column("_at", pa.array(range(went.num_rows), pa.int64()))
    alone = numbered.join(came.select(same), keys=same, join_type="left anti")
    gone = went.take(alone["_at"])
    deletes = [pa.repeat(False, came.num_rows), pa.repeat(True, gone.num_rows)]
    whole = pa.concat_tables([came, gone]).drop_columns([layout.DIFF])
    whole = whole.append_column(layout.DELETE, pa.chunked_array(deletes, pa.bool_()))
    return whole.sort_by([(layout.OFFSET, "ascending"), *((name, "ascending") for name in key)])
