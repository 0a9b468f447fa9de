"""From updates to a part: its bytes, and the facts by which states refer to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from strandline.model.digest import Digest
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.envelope import checksum
from strandline.parts.parquet import Owner, encode_part
from strandline.parts.part import Part
from strandline.parts.stats import encode_stats, measure

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.model.schema import Schema
    from strandline.model.valuehash import U64
    from strandline.parts.layout import Laid


@dataclass(frozen=True, slots=True)
class Built:
    """A part that nobody has put yet."""

    part: Part
    encoded: bytes


def part_key(shard: str, writer: str, token: str) -> str:
    return f"{shard}/{writer}/{token}.parquet"


def build_delta(
    laid: Laid, schema: Schema, owner: Owner, *, level: int = 0, hashes: U64 | None = None
) -> Built:
    """A part of updates. `hashes` are the row hashes of `laid.updates`, if they are known."""
    updates = laid.updates
    times = updates.column(TIME_COLUMN).to_numpy()
    diffs = updates.column(DIFF_COLUMN).to_numpy()
    rows = updates.select(list(schema.names))
    known = row_base(rows, schema.ids) if hashes is None else hashes
    span = (int(times.min()), int(times.max()))
    return _build(laid, schema, owner, (updates, Digest.of(known, diffs), span, level))


def build_base(
    laid: Laid, schema: Schema, owner: Owner, *, time: int, level: int, hashes: U64 | None = None
) -> Built:
    """A part of live rows as of `time`; `laid.updates` has the schema's columns alone."""
    rows = laid.updates.select(list(schema.names))
    known = row_base(rows, schema.ids) if hashes is None else hashes
    digest = Digest.of(known, np.ones(rows.num_rows, np.int64))
    return _build(laid, schema, owner, (rows, digest, (time, time), level), base=True)


def _build(
    laid: Laid,
    schema: Schema,
    owner: Owner,
    content: tuple[pa.Table, Digest, tuple[int, int], int],
    *,
    base: bool = False,
) -> Built:
    table, digest, (t_min, t_max), level = content
    encoded = encode_part(table, owner, laid.places)
    columns = ((field.id, table.column(field.name)) for field in schema.fields)
    place_lo, place_hi = laid.span()
    part = Part(
        key=owner.key,
        size=len(encoded),
        checksum=checksum(encoded),
        rows=table.num_rows,
        digest=digest.pack(),
        t_min=t_min,
        t_max=t_max,
        base=base,
        level=level,
        place_lo=place_lo,
        place_hi=place_hi,
        schema=schema.version,
        stats=encode_stats(measure(columns, table.num_rows)),
    )
    return Built(part, encoded)
