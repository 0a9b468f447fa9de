"""The shards of a program: made when they are first needed, widened when columns were added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import NotFoundError, SchemaError
from strandline.pipeline.catalog import TABLE
from strandline.pipeline.evolve import with_added

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.pipeline.catalog import Collection


def open_collection(
    store: Store, collection: Collection, added: Mapping[str, Mapping[str, str]]
) -> Shard:
    """The shard of a collection, with all columns that it has by the record; by whoever is first.

    `SchemaError` if there is one with other columns.
    """
    more = added.get(collection.name, {}) if collection.role == TABLE else {}
    if not more:
        return store.shard(collection.shard, collection.columns, collection.key)
    wanted = with_added(collection.columns, more)
    try:
        shard = store.shard(collection.shard)
    except NotFoundError:
        return store.shard(collection.shard, wanted, collection.key)
    while True:
        # Somebody who has read further on may have widened it more, or do so this moment.
        now = shard.schema
        known = [wanted.field(each.name) if each.name in wanted.names else each for each in now]
        new = [each for each in wanted if each.name not in now.names]
        try:
            shard.evolve(pa.schema([*known, *new]))
        except SchemaError:
            if shard.schema == now:
                raise
        else:
            return shard
