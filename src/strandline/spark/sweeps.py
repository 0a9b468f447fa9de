"""Tombstones that are old enough go with a transaction, beside what it buries itself.

They are read by the driver: parts without old ones are passed over by their statistics, and a
sweep every so often finds what was deleted between two others, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.model.schema import DIFF_COLUMN
from strandline.parts.consolidate import as_updates
from strandline.parts.tombstones import BURIED_AT
from strandline.spark.landed import Load

if TYPE_CHECKING:
    from strandline.spark.premises import Premises


def swept_too(premises: Premises, tombs: str, load: Load | None, before: int) -> Load:
    """What changes among tombstones, with the retractions of those made before an instant."""
    whole = Load.of([]) if load is None else load
    if premises.as_of is None or premises.is_empty(tombs):
        return whole
    shard, schema = premises.desk(tombs).shard, premises.schema(tombs)
    with shard.snapshot(premises.as_of, filter=[(BURIED_AT, "<", before)]) as snapshot:
        old = snapshot.to_arrow()
    if not old.num_rows:
        return whole
    gone = as_updates(old, list(schema.names), time=premises.work.time)
    at = gone.schema.get_field_index(DIFF_COLUMN)
    gone = gone.set_column(at, gone.schema.field(at), pa.repeat(pa.scalar(-1), gone.num_rows))
    gone = gone.cast(schema.updates())
    whole.few = gone if whole.few is None else pa.concat_tables([whole.few.cast(gone.schema), gone])
    return whole
