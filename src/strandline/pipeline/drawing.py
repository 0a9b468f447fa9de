"""What a reload draws from a source: all that it has now, and nothing that comes later.

    kafka, generator  every row up to the end that there is when it is asked, in pieces
    strandline        the shard as of its last time, by name: a table, a view, or no pipeline's own

Options are those of a table with this connector. Of the table's own connector they need not be
repeated: what is not said is as the table says it. Of a table with a key the last row of a key
counts, and a row without a value deletes its key (envelope `upsert`), unless `append` is said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.connectors.options import refuse_unknown, required
from strandline.connectors.reading import reading
from strandline.connectors.registry import open_source
from strandline.connectors.source import Limits
from strandline.errors import SchemaError, UsageError
from strandline.model.ids import printable
from strandline.pipeline.bringing import Bringing, options_for
from strandline.pipeline.sources import options_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from strandline.connectors.source import Ports, Split
    from strandline.handles.store import Store
    from strandline.views.declared import Table

FROM = ("files", "generator", "kafka", "strandline")
"""What a table can be reloaded from, by the words of a program."""
_FOLLOWING = ("sequenceBy", "keepDeleted", "newColumns", "onError")
"""What a table says of rows that come one after the other."""
_ROW_BYTES = 200


def drawn(
    store: Store,
    pipeline: str,
    table: Table,
    source: tuple[str, Mapping[str, str]],
    ports: Ports,
) -> Bringing:
    """What there is to be staged; a source that has nothing is refused."""
    connector, given = source
    if connector not in FROM:
        raise UsageError(
            f"{table.name} can't be reloaded from {printable(connector)}: use one of "
            f"{', '.join(FROM)}, or give rows"
        )
    own = table.options if connector == table.connector else {}
    options = {name: value for name, value in own.items() if name not in _FOLLOWING} | dict(given)
    if connector == "strandline":
        return _shard(store, pipeline, table, options)
    envelope = options.get("envelope", "upsert" if table.key else "append")
    if envelope == "debezium":
        raise UsageError(
            f"{table.name} can't be reloaded from changes, which follow each other: a reload says "
            "what there is. Give envelope 'upsert' or 'append', or rows"
        )
    if connector == "generator" and "rows" not in options:
        raise UsageError("a generator that has no end can't be what a table holds: give rows")
    if connector == "generator":
        options["rowsPerSecond"] = "0"
    how = options_for(table.options, options, envelope)
    reading(table.columns, table.key, how)
    splits = _splits(replace(table, connector=connector, options=options), ports)
    if not splits:
        raise UsageError(
            f"there are no rows in what {table.name} is reloaded from ({connector}): to empty a "
            "table, reload it with no rows"
        )
    return Bringing(pipeline, table, tuple(splits), how, offset_bytes=_ROW_BYTES)


def held(store: Store, bringing: Bringing) -> pa.Table:
    """The rows of a shard, all at once: an engine with tasks reads them in pieces."""
    with store.shard(bringing.shard).snapshot(as_of=bringing.at) as snapshot:
        return snapshot.to_arrow().select(bringing.table.columns.names)


def _splits(table: Table, ports: Ports) -> list[Split]:
    """All that the source has at this moment, from its beginning, or where the options say."""
    source = open_source(table.connector, options_of(table), ports)
    try:
        splits: list[Split] = []
        position: dict[str, int] = {}
        ends = dict(source.latest())
        while (taken := source.plan(position, Limits())) is not None and not taken.empty:
            splits += source.splits(taken)
            position = dict(taken.after(position))
            # What comes while this looks is for later.
            if all(position.get(each, 0) >= end for each, end in ends.items()):
                break
    finally:
        source.close()
    return splits


def _shard(store: Store, pipeline: str, table: Table, options: Mapping[str, str]) -> Bringing:
    refuse_unknown("strandline", options, ("shard",))
    name = required("strandline", options, "shard")
    shard = store.shard(name)
    for column in table.columns.names:
        if column not in shard.state().schema.arrow().names:
            raise SchemaError(f"shard {printable(name)} has no column {printable(column)}")
    if table.key and shard.key and set(table.key) != set(shard.key):
        raise SchemaError(
            f"shard {printable(name)} has the key ({', '.join(shard.key)}), and {table.name} "
            f"({', '.join(table.key)}): several of its rows could be one; declare the same key"
        )
    with shard.snapshot() as snapshot:
        at = snapshot.as_of
    return Bringing(pipeline, table, shard=name, at=at)
