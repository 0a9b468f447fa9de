"""The shards of a pipeline as the jobs of one transaction use them.

A state that was looked at stays as it is, and what it refers to stays, until the transaction is
computed. Parts are put under the writers of whoever lands them; if nobody does, they go.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from strandline.config import from_environment
from strandline.handles.stage import Stage
from strandline.model.digest import Digest
from strandline.model.schema import TIME_COLUMN
from strandline.parts.part import Batch
from strandline.pipeline.compute import Delta
from strandline.pipeline.meaning import updates_digest
from strandline.spark.desk import Desk
from strandline.spark.lookups import settled_time

if TYPE_CHECKING:
    from strandline.handles.store import Store
    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.pipeline.compute import Work
    from strandline.reading.view import View
    from strandline.shard.machine import Machine
    from strandline.shard.state import State
    from strandline.spark.desk import Stand
    from strandline.spark.landed import Load


class Desks:
    """A desk for each shard, opened once."""

    def __init__(self, store: Store) -> None:
        config = from_environment()
        self._store = store
        self._cache = (config.cache_dir or "", config.cache_bytes)
        self._desks: dict[str, Desk] = {}

    def of(self, shard: str) -> Desk:
        desk = self._desks.get(shard)
        if desk is None:
            desk = Desk(self._store, self._store.shard(shard), self._cache)
            desk.check_visible()
            self._desks[shard] = desk
        return desk

    def close(self) -> None:
        for desk in self._desks.values():
            desk.close()
        self._desks.clear()


class Premises:
    """The collections of one work, by name."""

    def __init__(self, desks: Desks, work: Work) -> None:
        self._desks = desks
        self._stack = ExitStack()
        self._views: dict[str, View] = {}
        self._upstream: dict[str, View] = {}
        self.work = work
        self.as_of: Time | None = work.time - 1 if work.time else None
        """What is there is there as of this time; nothing if there is none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def desk(self, collection: str) -> Desk:
        return self._desks.of(self.work.shards[collection])

    def view(self, collection: str) -> View:
        """What there is of a collection, before this transaction and maybe in it."""
        view = self._views.get(collection)
        if view is None:
            desk = self.desk(collection)
            view = self._stack.enter_context(desk.view())
            if self.as_of is not None:
                settled_time(desk.name, view, self.as_of)
            self._views[collection] = view
        return view

    def upstream(self, shard: str) -> tuple[Machine, View]:
        """Another shard that rows are taken from, as it is now."""
        desk = self._desks.of(shard)
        view = self._upstream.get(shard)
        if view is None:
            view = self._upstream[shard] = self._stack.enter_context(desk.view())
        return desk.shard.machine, view

    def state(self, collection: str) -> State:
        return self.view(collection).state

    def schema(self, collection: str) -> Schema:
        return self.state(collection).schema

    def stand(self, collection: str) -> Stand:
        """Where the tasks of a collection put things."""
        desk = self.desk(collection)
        writer = self.work.writers.get(collection)
        if writer is not None:
            desk.lend(writer)
        return desk.stand(self.schema(collection))

    def is_empty(self, collection: str) -> bool:
        """Whether a collection holds nothing before this transaction, by its metadata alone."""
        total = Digest.ZERO
        for batch in self.state(collection).batches:
            if batch.lower < self.work.time:
                total += batch.total
        return total == Digest.ZERO

    def delta(self, collection: str, load: Load) -> Delta | None:
        """What tasks gave back as the change of a collection; `None` if it is none."""
        if load.parts:
            return self._of_parts(collection, load)
        if load.few is None or not load.few.num_rows:
            return None
        updates = load.few
        if TIME_COLUMN in updates.column_names:
            updates = updates.drop_columns([TIME_COLUMN])
        return Delta(updates_digest(updates, self.schema(collection)), updates)

    def _of_parts(self, collection: str, load: Load) -> Delta:
        desk, stand, time = self.desk(collection), self.stand(collection), self.work.time
        load.put_few(stand.bench, untimed=True)
        stage = Stage(desk.env, desk.name, stand.writer.id)
        chunks, objects = stage.put_chunks(load.parts, self.state(collection))
        listed = () if chunks else tuple(load.parts)
        if collection not in self.work.writers:
            self.discard_later(collection, [*objects, *(part.key for part in load.parts)])
        digest = sum(load.digests.values(), Digest.ZERO)
        return Delta(digest, batch=Batch(time, time + 1, parts=listed, chunks=chunks))

    def discard_later(self, collection: str, keys: list[str]) -> None:
        """Delete these objects when the transaction is computed."""
        if keys:
            self._stack.callback(self.desk(collection).discard, keys)
