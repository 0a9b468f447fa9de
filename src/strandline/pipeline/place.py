"""What a sink publishes, where its changes are, and which lineage that is.

A lineage is one history that a target can go on with: the shard of the collection, by its id and
since when the name means it, and the target, by those options that say which one it is. A view
whose plan changed has another shard, one that was rolled back has the old one since another time,
a store that was cleared has other ids, another path is another target: in each case the old
progress belongs to another lineage and is never mistaken for this one's.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.pipeline.catalog import VIEW, errors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.connectors.sink import Delivered, Sink
    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.journal.standing import Standing


@dataclass(frozen=True, slots=True)
class Target:
    """One `CREATE SINK`: what it publishes, and how its target is reached."""

    name: str
    source: str
    identity: Mapping[str, str]
    """What says which target it is: the connector, and those of its options that name it."""
    open: Callable[[Delivered], Sink]
    columns: tuple[str, ...] | None = None
    """Of the table that it publishes, as they are declared: it may get more; `None`: all."""

    def delivered(self, schema: pa.Schema) -> pa.Schema:
        """The columns that the target gets, of a collection that has these."""
        names = schema.names if self.columns is None else self.columns
        return pa.schema([schema.field(name) for name in names])


@dataclass(frozen=True, slots=True)
class Place:
    """The shards behind a sink."""

    shard: Shard
    errors: Shard | None
    """What a view's query raised for; tables have none."""
    lineage: str
    hold: str


def placed(store: Store, standing: Standing, target: Target) -> Place | None:
    """Where a sink's changes are; `None` before the program was promoted."""
    bound = standing.bindings.get(target.source)
    if bound is None:
        return None
    shard = store.shard(bound.shard)
    wrong = standing.bindings.get(errors_of(target.source)) if bound.role == VIEW else None
    return Place(
        shard,
        None if wrong is None else store.shard(wrong.shard),
        lineage_of(f"{shard.id}@{bound.since}", target.identity),
        hold_of(standing.pipeline, target.name),
    )


def hold_of(pipeline: str, sink: str) -> str:
    """What a sink calls its hold on the shards that it publishes."""
    return f"sink.{pipeline}.{sink}"


def lineage_of(history: str, identity: Mapping[str, str]) -> str:
    """One word for a shard since it is meant, and a target."""
    parts = [history, *(f"{name}={value}" for name, value in sorted(identity.items()))]
    return blake2b("\x00".join(parts).encode(), digest_size=12).hexdigest()
