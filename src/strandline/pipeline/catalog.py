"""The collections of a program: which shard each one is, and what its columns are. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.incoming import ERRORS
from strandline.errors import JournalError
from strandline.journal.record import Bind
from strandline.model.engine import Rules
from strandline.model.schema import Schema
from strandline.parts.tombstones import tomb_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.journal.standing import Bound, Standing
    from strandline.model.frontier import Time
    from strandline.views.declared import Table
    from strandline.views.program import Program

TABLE, TABLE_ERRORS, TOMBS, FLOOR = "table", "table errors", "tombstones", "floor"
VIEW, VIEW_ERRORS = "view", "view errors"

VIEW_ERROR_COLUMNS = pa.schema([("row", pa.string()), ("reason", pa.string())])
"""What a view's query raised for; `row` is empty if the query failed as a whole."""


@dataclass(frozen=True, slots=True)
class Collection:
    """One shard of a pipeline."""

    name: str
    shard: str
    role: str
    columns: pa.Schema
    key: tuple[str, ...] = ()


def errors_of(name: str) -> str:
    """The collection that holds what is wrong with a table or a view."""
    return f"{name}_errors"


def tombs_of(name: str) -> str:
    """The hidden collection that holds the order of a table's deleted keys."""
    return f"{name}_tombs"


def floor_of(name: str) -> str:
    """The hidden collection that holds the order of a table's last truncation, if there was one."""
    return f"{name}_floor"


def has_floor(table: Table) -> bool:
    """Whether a table can be truncated by an event that has a place in the order."""
    return table.envelope == "debezium" and bool(table.sequence_by)


def collections(
    pipeline: str, program: Program, view_columns: Mapping[str, pa.Schema]
) -> list[Collection]:
    """Every shard that a program writes; the types of views come from who computes them."""
    found = []
    for table in program.tables:
        found += [
            Collection(table.name, table.shard(pipeline), TABLE, table.columns, table.key),
            Collection(
                errors_of(table.name),
                table.errors_shard(pipeline),
                TABLE_ERRORS,
                ERRORS,
                ("id",),
            ),
        ]
        if table.sequence_by:
            found.append(_tombstones(pipeline, table))
        if has_floor(table):
            found.append(_floor(pipeline, table))
    for view in program.views:
        found += [
            Collection(view.name, view.shard(pipeline), VIEW, view_columns[view.name]),
            Collection(
                errors_of(view.name), view.errors_shard(pipeline), VIEW_ERRORS, VIEW_ERROR_COLUMNS
            ),
        ]
    return found


def binds(wanted: list[Collection], bound: Mapping[str, Bound]) -> list[Bind]:
    """The records that make names mean the shards of a program, and no others."""
    names = {each.name for each in wanted}
    gone = [Bind(name, None, bound[name].role) for name in sorted(set(bound) - names)]
    return gone + [
        Bind(each.name, each.shard, each.role)
        for each in wanted
        if each.name not in bound or bound[each.name].shard != each.shard
    ]


def shards(standing: Standing, wanted: list[Collection]) -> dict[str, str]:
    """The shard of each collection, as it is on record."""
    found = {name: bound.shard for name, bound in standing.bindings.items()}
    for each in wanted:
        if found.get(each.name) != each.shard:
            raise JournalError(
                f"pipeline {standing.pipeline}: {each.name} is bound to {found.get(each.name)} on "
                f"record, and this program means {each.shard}"
            )
    return found


def builds(standing: Standing, time: Time) -> frozenset[str]:
    """The views that a transaction has to build: every replica finds the same ones."""
    bound = standing.bindings.items()
    return frozenset(name for name, each in bound if each.role == VIEW and each.since == time)


def _tombstones(pipeline: str, table: Table) -> Collection:
    schema = Schema.create(table.columns, table.key)
    tombs = tomb_schema(schema, Rules(compare_stored=table.sequence_by, bury=True))
    name = tombs_of(table.name)
    return Collection(name, f"{pipeline}.{name}", TOMBS, tombs.arrow(), table.key)


def _floor(pipeline: str, table: Table) -> Collection:
    own = [pa.field(name, table.columns.field(name).type) for name in table.sequence_by]
    name = floor_of(table.name)
    return Collection(name, f"{pipeline}.{name}", FLOOR, pa.schema(own))
