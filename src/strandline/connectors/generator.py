"""Rows made up from a seed: for demos, tests and measurements.

    option         default  meaning
    -------------  -------  ----------------------------------------------------------------
    seed           0        what the rows follow from
    keys           1000     how many keys there are
    skew           0        how much more often low keys come: 0 all alike, 1 and more skewed
    deletes        0        which share of the rows delete their key
    rowsPerSecond  1000     how many rows a second are offered; 0 all at once
    rows           no end   how many rows there are in all
    columns        id bigint, value bigint, note string; the first is the key
    deleted        the key  columns that rows have which delete; the others are null there. Of a
                            table that says nothing its key and its `sequenceBy`

A row depends on (seed, offset) alone: neither on time, nor on how ranges were cut. Only how much
is offered depends on time: what the rate allows since this source was opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.connectors import raw as layout
from strandline.connectors.options import fraction, refuse_unknown, whole
from strandline.connectors.position import Position, Range
from strandline.connectors.reading import names
from strandline.connectors.source import Limits, Ports, ResolveSecret, Split
from strandline.errors import UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from strandline.model.clock import Clock

    U64 = np.typing.NDArray[np.uint64]

NAME = "generator"
PARTITION = "0"
BATCH_ROWS = 10_000
ROW_BYTES = 50
"""What a limit in bytes takes a row for."""

_OPTIONS = ("seed", "keys", "skew", "deletes", "rowsPerSecond", "rows", "columns", "deleted")
_COLUMNS = "id bigint, value bigint, note string"
_ENDLESS = 1 << 62
_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_FIRST_DAY = 19_723
"""2024-01-01, in days since 1970."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What rows are made of."""

    seed: int
    keys: int
    skew: float
    deletes: float
    columns: tuple[pa.Field, ...]
    deleted: frozenset[str] = frozenset()
    """Beside the first column, those that rows have which delete."""

    def rows(self, start: int, stop: int) -> pa.RecordBatch:
        """The rows at offsets in `[start, stop)`."""
        offsets = np.arange(start, stop, dtype=np.uint64)
        share = _unit(self._chance(offsets, 0)) ** (1.0 + self.skew)
        keys = np.minimum((share * self.keys).astype(np.int64), self.keys - 1)
        delete = _unit(self._chance(offsets, 1)) < self.deletes
        key, *others = self.columns
        arrays = [pa.array(keys).cast(key.type)]
        for at, each in enumerate(others, start=2):
            made = _made(each.type, self._chance(offsets, at), offsets)
            lost = delete if each.name not in self.deleted else np.zeros_like(delete)
            arrays.append(pc.if_else(pa.array(lost), pa.scalar(None, each.type), made))
        places = [
            pa.repeat(pa.scalar(PARTITION), len(offsets)),
            pa.array(offsets.astype(np.int64)),
            pa.array(delete),
        ]
        return pa.RecordBatch.from_arrays([*arrays, *places], schema=self.schema())

    def schema(self) -> pa.Schema:
        return layout.typed_schema(self.columns, pa.field(layout.DELETE, pa.bool_()))

    def _chance(self, offsets: U64, at: int) -> U64:
        return _mixed(_mixed(offsets + np.uint64(self.seed % 2**63)) + np.uint64(at))


class Generator:
    """The source."""

    replayable = True

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        refuse_unknown(NAME, options, _OPTIONS)
        recipe(options)
        self._options = {name: options[name] for name in _OPTIONS if name in options}
        self._rate = whole(options, "rowsPerSecond", 1000)
        self._end = whole(options, "rows", _ENDLESS)
        self._clock = clock
        self._opened_ms = clock.monotonic_ms()
        self._base: int | None = None

    def latest(self) -> Position:
        return {PARTITION: 0}

    def plan(self, start: Position, limits: Limits) -> Range | None:
        first = start.get(PARTITION, 0)
        stop = min(self._allowed(first), self._end)
        if limits.rows is not None:
            stop = min(stop, first + limits.rows)
        if limits.bytes is not None:
            stop = min(stop, first + max(1, limits.bytes // ROW_BYTES))
        return Range({PARTITION: (first, stop)}) if stop > first else None

    def _allowed(self, first: int) -> int:
        """How far the rate lets it go; counted from where it was first asked to go on."""
        if not self._rate:
            return first + 1_000_000
        if self._base is None:
            self._base = first
        return self._base + (self._clock.monotonic_ms() - self._opened_ms) * self._rate // 1000

    def splits(self, taken: Range) -> list[Split]:
        return [
            Split(NAME, self._options, partition, at, min(stop, at + 10 * BATCH_ROWS))
            for partition, (start, stop) in taken.parts.items()
            for at in range(start, stop, 10 * BATCH_ROWS)
        ]

    def check(self, taken: Range) -> None:
        """Rows that are made up are always there."""

    def acknowledge(self, upto: Position) -> None:
        """Nothing is kept, so nothing is forgotten."""

    def close(self) -> None: ...


def open_source(options: Mapping[str, str], ports: Ports) -> Generator:
    return Generator(options, ports.clock)


def fetch(split: Split, resolve: ResolveSecret) -> Iterator[pa.RecordBatch]:  # noqa: ARG001 - the port
    made = recipe(split.options)
    for start in range(split.start, split.stop, BATCH_ROWS):
        yield made.rows(start, min(start + BATCH_ROWS, split.stop))


def recipe(options: Mapping[str, str]) -> Recipe:
    columns = parse_columns(options.get("columns", _COLUMNS))
    deleted = names(options.get("deleted", ""))
    for name in deleted:
        if name not in {each.name for each in columns}:
            raise UsageError(f"option deleted names {printable(name)}, which is not among columns")
    return Recipe(
        whole(options, "seed", 0),
        whole(options, "keys", 1000, least=1),
        fraction(options, "skew", 0.0, most=20.0),
        fraction(options, "deletes", 0.0),
        columns,
        frozenset(deleted),
    )


def parse_columns(text: str) -> tuple[pa.Field, ...]:
    """Columns as SQL declares them; the first must be a whole number or text."""
    columns = []
    for each in re.split(r",(?![^(]*\))", text):
        name, _, kind = each.strip().partition(" ")
        kind = kind.strip().lower()
        decimal = _DECIMAL.fullmatch(kind)
        if not name or (kind not in _TYPES and decimal is None):
            raise UsageError(
                f"option columns has {printable(each.strip())}: write a name and one of "
                f"{', '.join(_TYPES)}, decimal(p, s)"
            )
        if decimal is not None:
            columns.append(pa.field(name, pa.decimal128(int(decimal[1]), int(decimal[2]))))
        else:
            columns.append(pa.field(name, _TYPES[kind]))
    layout.typed_schema(columns)
    first = columns[0].type
    if not (is_.is_integer(first) or is_.is_string(first)):
        raise UsageError(f"the generator's key can't be of type {first}: use bigint or string")
    return tuple(columns)


def columns_option(schema: pa.Schema, key: str) -> str:
    """The option `columns` for a table: its key first, then what else the generator can make."""
    known = {kind: name for name, kind in _TYPES.items()}
    ordered = sorted(schema, key=lambda each: each.name != key)
    written = []
    for each in ordered:
        if is_.is_decimal(each.type):
            written.append(f"{each.name} decimal({each.type.precision},{each.type.scale})")
        elif each.type in known:
            written.append(f"{each.name} {known[each.type]}")
        else:
            raise UsageError(
                f"the generator makes no {each.type}, which column {printable(each.name)} is"
            )
    return ", ".join(written)


def _mixed(numbers: U64) -> U64:
    """A number's hash (splitmix64): neighbours have nothing in common."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))


def _unit(chance: U64) -> np.typing.NDArray[np.float64]:
    return (chance >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _made(kind: pa.DataType, chance: U64, offsets: U64) -> pa.Array:
    if is_.is_decimal(kind):
        return _decimals(kind, chance)
    return _MADE[kind](chance, offsets).cast(kind)


def _decimals(kind: pa.DataType, chance: U64) -> pa.Array:
    """Numbers of up to six digits, as a decimal's smallest units: 16 bytes, low half first."""
    units = chance % np.uint64(10 ** min(kind.precision, 6))
    halves = np.stack((units, np.zeros_like(units)), axis=1)
    buffers = [None, pa.py_buffer(halves.tobytes())]
    return pa.Array.from_buffers(kind, len(units), buffers)


def _small(chance: U64, below: int) -> pa.Array:
    return pa.array((chance % np.uint64(below)).astype(np.int64))


_MADE: dict[pa.DataType, Callable[[U64, U64], pa.Array]] = {
    pa.bool_(): lambda chance, _: pa.array((chance & np.uint64(1)).astype(np.bool_)),
    pa.int32(): lambda chance, _: _small(chance, 1000),
    pa.int64(): lambda chance, _: _small(chance, 1_000_000),
    pa.float64(): lambda chance, _: pa.array(_unit(chance)),
    pa.string(): lambda chance, _: _small(chance, 10_000).cast(pa.string()),
    pa.date32(): lambda chance, _: pc.add(_small(chance, 366), _FIRST_DAY).cast(pa.int32()),
    pa.timestamp("us", "UTC"): lambda _, offsets: pc.add(
        pa.array(offsets.astype(np.int64) * 1000), _FIRST_DAY * 86_400_000_000
    ),
}
