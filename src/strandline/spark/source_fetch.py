"""Fetches what a task of a read asks for: whole pieces, or the row groups of a range of places.

A part that was written by a task of Spark holds places from everywhere. A task that is about a
range of them reads the footer and the groups in the range, so that many tasks together read such
a part about once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import CorruptionError, LeaseLostError
from strandline.parts.index import TAIL_BYTES, decode_group, read_index, tail_length
from strandline.parts.parquet import Owner
from strandline.parts.part import Part
from strandline.reading.extract import cut, extract

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.errors import StrandlineError
    from strandline.parts.index import PartIndex
    from strandline.reading.descriptor import PartDescriptor
    from strandline.spark.source_rows import Fetch
    from strandline.store.blob import Blob, Content


def fetch_held(blob: Blob, lease_ms: int) -> Fetch:
    """Fetches pieces that a scan holds for a term."""

    def missing(wanted: PartDescriptor) -> StrandlineError:
        return LeaseLostError(
            f"lease lost: {wanted} was deleted after the scan's hold of {lease_ms} ms had ended; "
            "read again, with a longer option('leaseMs', …) or with table.df(spark), which renews "
            "its hold"
        )

    return lambda wanted, lo, hi: _fetched(blob, wanted, (lo, hi), missing)


def fetch_kept(blob: Blob) -> Fetch:
    """Fetches pieces that an open table keeps for its DataFrames."""

    def missing(wanted: PartDescriptor) -> StrandlineError:
        return LeaseLostError(
            f"lease lost: {wanted} was deleted, because the table that made this DataFrame was "
            "closed; open it and call df() again"
        )

    return lambda wanted, lo, hi: _fetched(blob, wanted, (lo, hi), missing)


def fetch_streamed(blob: Blob) -> Fetch:
    """Fetches pieces that the reader of a stream holds for as long as it lives."""

    def missing(wanted: PartDescriptor) -> StrandlineError:
        return CorruptionError(
            f"{wanted} is missing, so the batch fails and the offset stays: the stream lost its "
            "lease and can be started again, or somebody deleted the part; run `strandline fsck`"
        )

    return lambda wanted, lo, hi: _fetched(blob, wanted, (lo, hi), missing)


def _fetched(
    blob: Blob,
    wanted: PartDescriptor,
    places: tuple[int, int],
    missing: Callable[[PartDescriptor], StrandlineError],
) -> pa.Table:
    part = wanted.piece
    if not isinstance(part, Part):
        return extract(wanted, b"")

    def there(found: Content | None) -> Content:
        if found is None:
            raise missing(wanted)
        return found

    lo, hi = places
    if part.place_lo < lo or part.place_hi > hi:
        owner = Owner(wanted.shard_id, part.key)
        tail = there(blob.get_range(part.key, -TAIL_BYTES, TAIL_BYTES))
        if (length := tail_length(tail, part, owner)) > len(tail):
            tail = there(blob.get_range(part.key, -length, length))
        index = read_index(tail, part, owner)
        if index.proven and index.places is not None:
            first, stop = groups_between(index, lo, hi)
            start = int(index.starts[first])
            size = int(index.stops[stop - 1]) - start
            content = there(blob.get_range(part.key, start, size))
            return cut(wanted, _decoded(index, range(first, stop), content, wanted, part))
    return extract(wanted, there(blob.get(part.key)))


def groups_between(index: PartIndex, lo: int, hi: int) -> tuple[int, int]:
    """The first group that may hold places from `lo` to `hi`, and the one after the last."""
    if index.places is None:
        return 0, len(index)
    # A place may begin in one group and end in the next one.
    first = int(np.searchsorted(index.places, np.uint64(lo), side="left")) - 1
    stop = int(np.searchsorted(index.places, np.uint64(hi), side="right"))
    return max(0, first), max(1, stop)


def _decoded(
    index: PartIndex, groups: range, content: Content, wanted: PartDescriptor, part: Part
) -> pa.Table:
    owner = Owner(wanted.shard_id, part.key)
    start = int(index.starts[groups[0]])
    return pa.concat_tables(
        decode_group(
            index,
            group,
            content[int(index.starts[group]) - start : int(index.stops[group]) - start],
            part,
            wanted.schema,
            owner,
        )
        for group in groups
    )
