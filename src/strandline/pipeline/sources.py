"""The sources of a program, opened by what its tables say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from posixpath import normpath
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.filerows import OPTIONS as LIMITS
from strandline.connectors.generator import columns_option
from strandline.connectors.reading import is_about_rows
from strandline.connectors.registry import open_source
from strandline.errors import SourceError, SourceGoneError, UsageError
from strandline.pipeline.away import Away

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from strandline.connectors.source import Changes, Ports, Source
    from strandline.journal.standing import Standing
    from strandline.views.declared import Table
    from strandline.views.program import Program

_CONNECTORS = {"http": "push", "strandline": "shard"}
"""Where a program's word for a connector is not the connector's own."""
_WHICH = {"files": "path", "generator": "seed", "kafka": "subscribe", "strandline": "shard"}
"""The option that says which source it is. Addresses of brokers are not among them: they change,
and that a topic of this name is another one is told by its own id."""
_MOVES = {
    # Which files are offered, where a transaction ends, what is refused for its size.
    "files": ("path", "suffix", "transaction", *LIMITS),
    # How much is offered, and when.
    "generator": ("seed", "rowsPerSecond", "rows"),
    # How much is taken in; what was pushed is staged, and never read again.
    "http": ("bufferRows", "bufferBytes"),
    # Where a topic begins for who has no position, how a range is cut, how long is waited.
    "kafka": (
        "subscribe",
        "startingOffsets",
        "failOnDataLoss",
        "maxRecordsPerPartition",
        "kafkaConsumer.pollTimeoutMs",
    ),
    "strandline": ("shard",),
}
"""Options that may be said anew of the same source: a range that was taken has the same rows under
any of them. All others decide which rows come out of it."""
_CLIENT, _ISOLATION = "kafka.", "kafka.isolation.level"
"""How brokers are reached moves too: addresses, names, secrets. Whether rows of unfinished
transactions are read does not."""
_FILES = ("format", "csv.columns", "csv.delimiter")
"""Options about rows that files need as well, to find where a row ends."""


def open_sources(
    program: Program,
    ports: Ports,
    names: Collection[str] | None = None,
    *,
    shards: Callable[[str], Callable[[str], Changes]] | None = None,
    later: Collection[str] = (),
) -> dict[str, Source]:
    """One source for each table, or for those of these names, by the table's name, which is its
    endpoint's name, too. `shards` opens shards for an endpoint. What is `later` may be away now."""
    opened: dict[str, Source] = {}
    try:
        for table in program.tables:
            if names is not None and table.name not in names:
                continue
            name = _CONNECTORS.get(table.connector, table.connector)
            _refuse_new_columns(table)
            if shards is not None:
                ports = replace(ports, changes=shards(table.name))
            how = partial(open_source, name, options_of(table), ports)
            opened[table.name] = _open(how, waits=table.name in later)
    except BaseException:
        close_sources(opened)
        raise
    return opened


def _open(how: Callable[[], Source], *, waits: bool) -> Source:
    try:
        return how()
    except SourceError as error:
        if not waits or isinstance(error, SourceGoneError):
            raise
        return Away(how)


def fed_before(program: Program, standing: Standing) -> frozenset[str]:
    """The tables whose sources have fed this pipeline: they were there once."""
    return frozenset(
        each.name
        for each in program.tables
        if standing.endpoints.get(each.name, "removed") != "removed"
        and standing.origins.get(each.name) == origin_of(each)
    )


def origin_of(table: Table) -> str:
    """Which source feeds a table: while this stays, its positions mean the same."""
    named = table.options.get(_WHICH.get(table.connector, ""), "").strip()
    if table.connector == "files" and named:
        named = normpath(named)
    return f"{table.connector} {named}".rstrip()


def same_rows(then: Table, now: Table) -> bool:
    """Whether what was taken for a table has the same rows if another's source reads it."""
    return origin_of(then) == origin_of(now) and _deciding(then) == _deciding(now)


def reached_as(then: Table, now: Table) -> Table:
    """An earlier table that is opened again: it reads the rows that it read, and if it is fed by
    the same source, reaches them as is said now; brokers and passwords may be others since."""
    if origin_of(then) != origin_of(now):
        return then
    kept = {k: v for k, v in then.options.items() if not _may_move(then, k)}
    said = {k: v for k, v in now.options.items() if _may_move(now, k)}
    return replace(then, options=kept | said)


def _deciding(table: Table) -> dict[str, str]:
    return {k: v for k, v in options_of(table).items() if not _may_move(table, k)}


def _may_move(table: Table, option: str) -> bool:
    if table.connector == "kafka" and option.startswith(_CLIENT):
        return option.lower() != _ISOLATION
    return option in _MOVES.get(table.connector, ())


def options_of(table: Table) -> dict[str, str]:
    """The options that are the connector's: those about rows are the table's own."""
    own = {name: value for name, value in table.options.items() if not is_about_rows(name)}
    if table.connector == "files":
        own |= {name: table.options[name] for name in _FILES if name in table.options}
    if table.connector == "generator" and table.key:
        own = _generator_options(table) | own
    if table.connector == "strandline":
        own |= _shard_options(table)
    return own


def _generator_options(table: Table) -> dict[str, str]:
    """It makes the table's columns; a row that deletes has a key and a place in the order."""
    made = {}
    if "columns" not in table.options:
        made["columns"] = columns_option(table.columns, table.key[0])
    needed = list(dict.fromkeys((*table.key, *table.sequence_by)))
    if table.options.get("deletes", "0") != "0" and len(needed) > 1:
        made["deleted"] = ", ".join(needed)
    return made


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
