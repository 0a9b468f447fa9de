"""The shards of a program: made when they are first needed, widened when columns were added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import NotFoundError, SchemaError
from strandline.handles.shard import check_same
from strandline.model.ids import printable
from strandline.model.schema import Schema
from strandline.pipeline.catalog import TABLE
from strandline.pipeline.evolve import with_added
from strandline.shard.decide import decide
from strandline.shard.machine import raise_refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.pipeline.catalog import Collection
    from strandline.shard.command import Attach


def open_collection(
    store: Store, collection: Collection, added: Mapping[str, Mapping[str, str]]
) -> Shard:
    """The shard of a collection, with all columns that it has by program and record; by whoever is
    first. `SchemaError` if there is one with other columns.
    """
    if collection.role != TABLE:
        return store.shard(collection.shard, collection.columns, collection.key)
    wanted = _wanted(collection, added)
    try:
        shard = store.shard(collection.shard)
    except NotFoundError:
        try:
            return store.shard(collection.shard, wanted, collection.key)
        except SchemaError:
            shard = store.shard(collection.shard, key=collection.key)
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


def check_collection(
    store: Store, collection: Collection, added: Mapping[str, Mapping[str, str]], attach: Attach
) -> None:
    """Refuse what `open_collection` and then `attach` would refuse, or would make of the shard what
    earlier transactions can't be computed with again. Nothing is changed.
    """
    try:
        state = store.shard(collection.shard).state()
    except NotFoundError:
        return
    raise_refusal(collection.shard, decide(state, attach))
    if collection.role != TABLE:
        check_same(state, collection.columns, collection.key)
        return
    wanted = _wanted(collection, added)
    state.schema.evolve(wanted, collection.key)
    for old in state.schema.fields:
        new = Schema.create(wanted).field(old.name)
        if new.type != old.type:
            raise SchemaError(
                f"column {printable(old.name)} can't change from {old.type} to {new.type}: earlier "
                "transactions could not be computed again; add a new column"
            )


def _wanted(collection: Collection, added: Mapping[str, Mapping[str, str]]) -> pa.Schema:
    return with_added(collection.columns, added.get(collection.name, {}))
