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

from strandline.connectors.sink import Delivered
from strandline.errors import SinkStoppedError, StoreError
from strandline.model.ids import printable
from strandline.pipeline.catalog import VIEW, errors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.connectors.sink import Address, Sink
    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time


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
    key: tuple[str, ...] = ()
    """What tells its rows apart: the table's key, or what the sink's option says."""
    every_ms: int = 0
    """Of one delivery to the next; 0: each transaction is one."""
    again: bool = False
    """Whether a delivery that is in doubt may be repeated: at least once instead of exactly."""
    unable: Callable[[], str] = str
    """Why it can't be published from this process; empty if it can."""

    def delivered(self, address: Address, schema: pa.Schema) -> Delivered:
        """What the target gets, of a collection that has these columns."""
        names = schema.names if self.columns is None else self.columns
        missing = [name for name in self.key if name not in names]
        if missing:
            raise SinkStoppedError(
                f"its key has {', '.join(missing)}, and {self.source} has {', '.join(names)}: "
                "change the option key"
            )
        later = [name for name in names if name not in schema.names]
        if later:
            # A program is on record a moment before whoever joins first adds its columns.
            raise StoreError(
                f"{self.source} does not have {', '.join(map(printable, later))} yet, which the "
                "program declares"
            )
        return Delivered(address, pa.schema([schema.field(name) for name in names]), self.key)


@dataclass(frozen=True, slots=True)
class Place:
    """The shards behind a sink."""

    shard: Shard
    errors: Shard | None
    """What a view's query raised for; tables have none."""
    lineage: str
    hold: str
    since: Time = 0
    """The first transaction that finds it so: what the shard held before is not its content."""
    held: Time | None = None
    """From when on history is held for the sink; `None`: it was never begun with."""


def placed(store: Store, standing: Standing, target: Target) -> Place | None:
    """Where a sink's changes are; `None` before the program was promoted."""
    bound = standing.bindings.get(target.source)
    if bound is None:
        return None
    shard = store.shard(bound.shard)
    wrong = standing.bindings.get(errors_of(target.source)) if bound.role == VIEW else None
    hold = hold_of(standing.pipeline, target.name)
    held = shard.machine.state.holds.get(hold)
    return Place(
        shard,
        None if wrong is None else store.shard(wrong.shard),
        lineage_of(history_word(shard.id, bound.since, target.columns), target.identity),
        hold,
        bound.since,
        None if held is None else held.since,
    )


def history_word(shard: str, since: Time, columns: Sequence[str] | None) -> str:
    """A shard since it is meant, with those columns of a table that are declared.

    A table that declares another column publishes it of rows, too, that were delivered without it:
    it begins anew.
    """
    declared = "" if columns is None else f"({', '.join(columns)})"
    return f"{shard}@{since}{declared}"


def hold_of(pipeline: str, sink: str) -> str:
    """What a sink calls its hold on the shards that it publishes."""
    return f"sink.{pipeline}.{sink}"


def lineage_of(history: str, identity: Mapping[str, str]) -> str:
    """One word for a shard since it is meant, and a target."""
    parts = [history, *(f"{name}={value}" for name, value in sorted(identity.items()))]
    return blake2b("\x00".join(parts).encode(), digest_size=12).hexdigest()
