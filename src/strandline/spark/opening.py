"""Opens tables: where a store's handles meet Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.config import from_environment
from strandline.spark.desk import Desk
from strandline.spark.table import Table

if TYPE_CHECKING:
    from strandline.handles.store import Store


def open_table(store: Store, name: str, *, slots: int | None = None) -> Table:
    """A table of an existing shard; `slots` is how many tasks run at once, if Spark can't say."""
    config = from_environment()
    desk = Desk(store, store.shard(name), (config.cache_dir or "", config.cache_bytes))
    return Table(desk, slots=slots)
