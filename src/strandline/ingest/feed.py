"""Where commands come from: the port, and the feed whose times are those of a binding shard.

A command is a row of the target's columns and

    `_time`              when, as agreed on with all replicas
    `_delete`            whether the key goes; none means no
    `_order0` and so on  which of several commands of one key and time is the last
    `_error`             why there is no row: it could not be decoded; none means there is one
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from strandline.model.engine import ORDER_COLUMN
from strandline.model.frontier import Frontier
from strandline.model.schema import TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.ingest.bindings import Bindings
    from strandline.ingest.timetable import Position, Taken, Timetable
    from strandline.model.valuehash import I64

PARTITION_COLUMN = "_partition"
OFFSET_COLUMN = "_offset"


@dataclass(frozen=True, slots=True)
class Want:
    """What an ingest asks its feed for; none of it ever moves back."""

    needed: Frontier
    """Commands at times before it may be left out: they would be LATE."""
    reached: Frontier
    """Where the furthest target is: a new time that is agreed on is not before it."""
    binds: bool = True
    """Whether new times may be agreed on, or only those followed that others agree on."""


@dataclass(frozen=True, slots=True)
class Polled:
    """Some commands, and how far all of them have been given out."""

    commands: pa.Table | None
    frontier: Frontier
    since: Frontier = Frontier(0)
    """Times before it can't be told apart any more: their commands are not given out."""


class Feed(Protocol):
    """Commands with times, each given out at least once."""

    def poll(self, want: Want) -> Polled:
        """What there is now; it does not wait for more.

        Before the frontier that was polled nothing comes any more.
        """
        ...

    def close(self) -> None:
        """Give back what the feed holds."""
        ...


class Tap(Protocol):
    """A source by offsets: the same rows for the same offsets, whoever asks."""

    def latest(self) -> Position:
        """Up to where each partition can be read."""
        ...

    def read(self, taken: Taken) -> pa.Table:
        """The rows at these offsets: the target's columns, `_delete` and `_error` where there are
        any, `_partition` and `_offset`. Offsets may be missing, but always the same ones.
        """
        ...

    def close(self) -> None: ...


class BoundFeed:
    """The commands of a tap at the times that its offsets are bound to."""

    def __init__(
        self,
        tap: Tap,
        bindings: Bindings,
        *,
        name: str,
        sequence: Sequence[str] = (),
        rows_max: int = 100_000,
    ) -> None:
        self._tap = tap
        self._bindings = bindings
        self._name = name
        self._sequence = tuple(sequence)
        self._rows_max = rows_max
        self._position: Position = {}

    def poll(self, want: Want) -> Polled:
        needed = want.needed
        if want.binds:
            if not needed.is_closed:
                self._bindings.hold(f"ingest.{self._name}", needed.last() or 0)
            self._bindings.bind(self._tap.latest(), needed=needed, at_least=want.reached)
        else:
            self._bindings.refresh(needed)
        known = self._bindings.known
        self._position = known.skipped(self._position, max(needed, known.since))
        taken = known.next_range(self._position, self._rows_max)
        commands = stamped(self._tap.read(taken), known, self._sequence) if taken else None
        self._position = {**self._position, **{name: stop for name, (_, stop) in taken.items()}}
        return Polled(commands, known.frontier(self._position), known.since)

    def close(self) -> None:
        self._tap.close()
        self._bindings.close()


def stamped(rows: pa.Table, known: Timetable, sequence: Sequence[str]) -> pa.Table:
    """Rows by offset as commands: each at the time of its own offset, whatever came before it."""
    partitions = rows.column(PARTITION_COLUMN).combine_chunks().dictionary_encode()
    offsets = rows.column(OFFSET_COLUMN).to_numpy()
    times: I64 = np.zeros(rows.num_rows, np.int64)
    codes = pa.chunked_array([partitions]).combine_chunks().indices.to_numpy()
    for code, name in enumerate(partitions.dictionary.to_pylist()):
        mine = np.flatnonzero(codes == code)
        times[mine] = known.times(name, offsets[mine])
    orders = [*(rows.column(name) for name in sequence)]
    orders += [rows.column(PARTITION_COLUMN), rows.column(OFFSET_COLUMN)]
    commands = rows.drop_columns([PARTITION_COLUMN, OFFSET_COLUMN])
    for at, column in enumerate(orders):
        commands = commands.append_column(f"{ORDER_COLUMN}{at}", column)
    return commands.append_column(TIME_COLUMN, pa.array(times))
