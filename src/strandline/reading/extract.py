"""The rows that a descriptor asks for, out of a part's bytes. Pure.

What comes out depends on what is asked for:

    part, asked for as of a time    gives
    ----------------------------    --------------------------------------------------------
    base                            its rows alone: each counts once
    delta or inline                 the updates at or before the time, with `_diff`

    asked for as changes            gives
    ----------------------------    --------------------------------------------------------
    base of time 0, delta, inline   the updates in `[after, upto)`, with `_time` and `_diff`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import invariant
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import as_updates, consolidate, constant
from strandline.parts.inline import decode_inline
from strandline.parts.parquet import Owner, decode_part
from strandline.parts.part import Part

if TYPE_CHECKING:
    from strandline.reading.descriptor import PartDescriptor


def extract(wanted: PartDescriptor, encoded: bytes | memoryview) -> pa.Table:
    """The rows of a piece, decoded, cut to the times, the filter and the columns asked for.

    `encoded` is the part's object; inline rows come with the descriptor.
    """
    return cut(wanted, _decoded(wanted, encoded))


def cut(wanted: PartDescriptor, updates: pa.Table) -> pa.Table:
    """The same out of updates that were decoded already, all of the piece's or some."""
    found = wanted.filter.apply(_within(wanted, updates))
    names = wanted.schema.names if wanted.columns is None else wanted.columns
    own = [TIME_COLUMN] if wanted.as_of is None else []
    own += [] if is_clean(wanted) else [DIFF_COLUMN]
    kept = [*names, *own]
    return found if found.column_names == kept else found.select(kept)


def extract_updates(wanted: PartDescriptor, encoded: bytes | memoryview) -> pa.Table:
    """The same with `_time` and `_diff` in any case."""
    return stamped(wanted, extract(wanted, encoded))


def stamped(wanted: PartDescriptor, found: pa.Table) -> pa.Table:
    """What `extract` gave with `_time` and `_diff`, consolidated if it is as of a time."""
    if wanted.as_of is None:
        return found
    names = [name for name in found.column_names if name != DIFF_COLUMN]
    if is_clean(wanted):
        return as_updates(found, names, time=wanted.as_of)
    summed = consolidate(found)
    times = constant(wanted.as_of, summed.num_rows)
    return summed.add_column(len(names), wanted.schema.updates().field(TIME_COLUMN), times)


def is_clean(wanted: PartDescriptor) -> bool:
    """Whether the piece gives rows alone, each of which counts once."""
    return wanted.as_of is not None and _is_base(wanted)


def _is_base(wanted: PartDescriptor) -> bool:
    return isinstance(wanted.piece, Part) and wanted.piece.base


def _decoded(wanted: PartDescriptor, encoded: bytes | memoryview) -> pa.Table:
    columns = None
    if wanted.columns is not None:
        columns = tuple(dict.fromkeys((*wanted.columns, *wanted.filter.columns)))
    piece = wanted.piece
    if isinstance(piece, Part):
        owner = Owner(wanted.shard_id, piece.key)
        timed = not is_clean(wanted)
        return decode_part(
            encoded, piece, wanted.schema, owner=owner, columns=columns, with_time=timed
        )
    return decode_inline(piece, wanted.schema, shard=wanted.shard, columns=columns)


def _within(wanted: PartDescriptor, found: pa.Table) -> pa.Table:
    if _is_base(wanted):
        # When its rows came can be told of time 0 alone: nothing was before.
        asked = 0 if wanted.as_of is None else wanted.as_of
        invariant(
            wanted.piece.t_min <= asked,
            f"{wanted} holds rows as of {wanted.piece.t_min}, which nobody may have asked for",
        )
    if is_clean(wanted) or wanted.whole:
        return found
    times = found.column(TIME_COLUMN)
    if wanted.as_of is not None:
        return found.filter(pc.less_equal(times, wanted.as_of))
    mask = pc.greater_equal(times, wanted.after)
    if wanted.upto is not None:
        mask = pc.and_(mask, pc.less(times, wanted.upto))
    return found.filter(mask)
