"""The sources of a program, opened by what its tables say."""

from __future__ import annotations

from dataclasses import replace
from posixpath import normpath
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.generator import columns_option
from strandline.connectors.reading import OPTIONS
from strandline.connectors.registry import open_source
from strandline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from strandline.connectors.source import Changes, Ports, Source
    from strandline.views.declared import Table
    from strandline.views.program import Program

_CONNECTORS = {"http": "push", "strandline": "shard"}
"""Where a program's word for a connector is not the connector's own."""
_WHICH = {"files": "path", "generator": "seed", "kafka": "subscribe", "strandline": "shard"}
"""The option that says which source it is. Addresses of brokers are not among them: they change,
and that a topic of this name is another one is told by its own id."""
_FILES = ("format", "csv.columns", "csv.delimiter")
"""Options about rows that files need as well, to find where a row ends."""


def open_sources(
    program: Program,
    ports: Ports,
    names: Collection[str] | None = None,
    *,
    shards: Callable[[str], Callable[[str], Changes]] | None = None,
) -> dict[str, Source]:
    """One source for each table, or for those of these names, by the table's name, which is its
    endpoint's name, too. `shards` opens shards for an endpoint."""
    opened: dict[str, Source] = {}
    try:
        for table in program.tables:
            if names is not None and table.name not in names:
                continue
            name = _CONNECTORS.get(table.connector, table.connector)
            _refuse_new_columns(table)
            if shards is not None:
                ports = replace(ports, changes=shards(table.name))
            opened[table.name] = open_source(name, options_of(table), ports)
    except BaseException:
        close_sources(opened)
        raise
    return opened


def origin_of(table: Table) -> str:
    """Which source feeds a table: while this stays, its positions mean the same."""
    named = table.options.get(_WHICH.get(table.connector, ""), "").strip()
    if table.connector == "files" and named:
        named = normpath(named)
    return f"{table.connector} {named}".rstrip()


def options_of(table: Table) -> dict[str, str]:
    """The options that are the connector's: those about rows are the table's own."""
    own = {name: value for name, value in table.options.items() if name not in OPTIONS}
    if table.connector == "files":
        own |= {name: table.options[name] for name in _FILES if name in table.options}
    if table.connector == "generator" and "columns" not in own and table.key:
        own["columns"] = columns_option(table.columns, table.key[0])
    if table.connector == "strandline":
        own |= _shard_options(table)
    return own


def _shard_options(table: Table) -> dict[str, str]:
    """Exactly the table's columns are read: a shard may have more, and get more."""
    if table.envelope == "debezium":
        raise UsageError(
            f"table {table.name}: a shard has rows and no messages: leave out envelope 'debezium'"
        )
    own = {"columns": msgspec.json.encode(table.columns.names).decode()}
    if table.envelope == "upsert":
        own["key"] = msgspec.json.encode(table.key).decode()
    return own


def _refuse_new_columns(table: Table) -> None:
    if table.connector == "strandline" and table.options.get("newColumns", "ignore") != "ignore":
        raise UsageError(
            f"table {table.name}: newColumns 'add' is not built for shards: declare the columns"
        )


def close_sources(sources: Mapping[str, Source]) -> None:
    for source in sources.values():
        source.close()
