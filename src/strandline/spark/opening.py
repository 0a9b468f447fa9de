"""Opens tables: where a store's handles meet Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.config import from_environment
from strandline.spark.desk import Desk
from strandline.spark.layouts import arrow_columns
from strandline.spark.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.handles.store import Store


def open_table(
    store: Store,
    name: str,
    schema: object = None,
    key: Sequence[str] = (),
    *,
    slots: int | None = None,
) -> Table:
    """A table; with a schema, Spark's or Arrow's, it is created if it does not exist.

    `slots` is how many tasks run at once, if Spark can't say.
    """
    config = from_environment()
    shard = store.shard(name, arrow_columns(schema), key)
    desk = Desk(store, shard, (config.cache_dir or "", config.cache_bytes))
    return Table(desk, slots=slots)
