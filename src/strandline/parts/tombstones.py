"""The order of keys that are gone, so that a late old row does not bring one back. Pure.

Beside a keyed shard whose rows are compared with what is stored there is a second one, of
tombstones: for each key that was deleted its order and the time of its deletion. It has at most
one row of a key, and none of a key that holds a row. Both are written at the same times, so that
whoever reads them at one time sees one state. Tombstones go when whoever owns the shard sweeps
those that are old; late rows bring their keys back from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.schema import Schema

if TYPE_CHECKING:
    from strandline.model.engine import Rules
    from strandline.model.valuehash import I64, Mask

BURIED_AT = "_at"
"""The column of a tombstone that says when the deletion was: `Rules.buried_at`, or its time."""


def tomb_columns(schema: Schema, rules: Rules) -> list[str]:
    """The columns that a tombstone has of its shard: its key and what orders rows."""
    return [*schema.key, *(name for name in rules.compare_stored if name not in schema.key)]


def tomb_schema(schema: Schema, rules: Rules) -> Schema:
    """The schema of the tombstones of a shard."""
    own = [pa.field(name, schema.field(name).type) for name in tomb_columns(schema, rules)]
    return Schema.create(pa.schema([*own, pa.field(BURIED_AT, pa.int64())]), schema.key)


def swept(tombs: pa.Table, before: int) -> tuple[pa.Table, pa.Table]:
    """Tombstones that stay, and those that are older than `before`."""
    old = pc.less(tombs.column(BURIED_AT), before)
    return tombs.filter(pc.invert(old)), tombs.filter(old)


def burials(keys: I64, gone: Mask, stands: I64, came: Mask) -> tuple[I64, I64, I64]:
    """What happens to tombstones, from events that count, in order of (key, time).

    Given are whether an event deletes, its order, and whether it came in or is stored. The answer
    has, for each update, the event that causes it, the event whose tombstone it is, and its diff.
    A deletion of the same order as the tombstone that is there says nothing.
    """
    places: I64 = np.arange(len(keys), dtype=np.int64)
    again: Mask = np.zeros(len(keys), np.bool_)
    again[1:] = (keys[1:] == keys[:-1]) & gone[1:] & gone[:-1] & (stands[1:] == stands[:-1])
    places = places[~again]
    follows: Mask = np.zeros(len(places), np.bool_)
    follows[1:] = keys[places[1:]] == keys[places[:-1]]
    buried = gone[places]
    before = np.roll(places, 1)
    retracts = follows & np.roll(buried, 1) & came[places]
    inserts = buried & came[places]
    chosen = np.stack((retracts, inserts), axis=1).ravel()
    causes: I64 = np.repeat(places, 2)[chosen]
    tombs: I64 = np.stack((before, places), axis=1).ravel()[chosen]
    diffs = np.tile(np.array([-1, 1], np.int64), len(places))[chosen]
    return causes, tombs, diffs
