"""What a reader asks for, checked against a schema, and the descriptors that say so. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SchemaError
from strandline.model.ids import printable
from strandline.parts.filters import parse_filter
from strandline.parts.part import Part
from strandline.reading.descriptor import PartDescriptor
from strandline.reading.listing import Piece, Want, wanted_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.parts.filters import Filter, FilterSpec
    from strandline.shard.state import State


@dataclass(frozen=True, slots=True)
class Request:
    """Columns and rows that are asked for, in the words of the caller.

    A schema may change while a reader runs, so names and values are looked up again in each
    state; what fitted once fits for ever, because schemas only grow.
    """

    columns: tuple[str, ...] | None
    spec: FilterSpec | None

    @classmethod
    def parse(
        cls, columns: Sequence[str] | None, spec: FilterSpec | None, schema: Schema
    ) -> Request:
        """Check what a caller wrote."""
        if isinstance(columns, str):
            raise SchemaError(f"columns must be a list of names: write [{printable(columns)}]")
        names = None if columns is None else tuple(columns)
        if names is not None:
            if not names:
                raise SchemaError("columns must name at least one column")
            if len(set(names)) != len(names):
                raise SchemaError(f"columns {printable(names)} names a column twice")
            for name in names:
                schema.field(name)
        parse_filter(spec, schema)
        return cls(names, spec)

    def want(self, schema: Schema, *, audit_share: float = 0.0, audit_seed: int = 0) -> Want:
        """What decides on the parts that are listed."""
        wanted = parse_filter(self.spec, schema)
        return Want(wanted, wanted_places(wanted, schema), audit_share, audit_seed)

    def arrow(self, schema: Schema) -> pa.Schema:
        """The columns that the reader gets, without `_time` and `_diff`."""
        arrow = schema.arrow()
        if self.columns is None:
            return arrow
        return pa.schema([arrow.field(name) for name in self.columns])


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which times of a piece are asked for: as of one, or changes in `[after, upto)`."""

    as_of: Time | None = None
    after: Time = 0
    upto: Time | None = None


def describe(
    state: State, pieces: Iterable[Piece], request: Request, wanted: Filter, bounds: Bounds
) -> list[PartDescriptor]:
    """One descriptor for each piece, with ids that no other listing of the same reader uses."""
    mark = f"as of {bounds.as_of}" if bounds.as_of is not None else f"from {bounds.after}"
    return [
        PartDescriptor(
            id=f"{_name(each)} {mark}",
            shard=state.name,
            shard_id=state.id,
            schema=state.schema,
            piece=each.piece,
            owed=each.owed,
            as_of=bounds.as_of,
            after=bounds.after,
            upto=bounds.upto,
            columns=request.columns,
            filter=wanted,
        )
        for each in pieces
    ]


def _name(piece: Piece) -> str:
    return piece.piece.key if isinstance(piece.piece, Part) else f"inline at {piece.lower}"
