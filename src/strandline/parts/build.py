"""From updates to a part: its bytes, and the facts by which states refer to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from strandline.errors import invariant
from strandline.model.digest import Digest
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.envelope import checksum
from strandline.parts.parquet import Owner, encode_part, footer_of
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
    laid: Laid,
    schema: Schema,
    owner: Owner,
    *,
    level: int = 0,
    hashes: U64 | None = None,
    untimed: bool = False,
) -> Built:
    """A part of updates. `hashes` are the row hashes of `laid.updates`, if they are known.

    An `untimed` part can be moved to another time (see `restamped_part`); its updates must all
    be at one.
    """
    updates = laid.updates
    times = updates.column(TIME_COLUMN).to_numpy()
    diffs = updates.column(DIFF_COLUMN).to_numpy()
    rows = updates.select(list(schema.names))
    known = row_base(rows, schema.ids) if hashes is None else hashes
    t_min, t_max = int(times.min()), int(times.max())
    invariant(not untimed or t_min == t_max, "an untimed part has updates at one time")
    content = _Content(
        updates.drop_columns([TIME_COLUMN]) if untimed else updates,
        Digest.of(known, diffs),
        t_min,
        t_max,
        level,
        untimed=untimed,
        inserts=bool((diffs == 1).all()),
    )
    return _build(laid, schema, owner, content)


def build_base(
    laid: Laid, schema: Schema, owner: Owner, *, time: int, level: int, hashes: U64 | None = None
) -> Built:
    """A part of live rows as of `time`; `laid.updates` has the schema's columns alone."""
    rows = laid.updates.select(list(schema.names))
    known = row_base(rows, schema.ids) if hashes is None else hashes
    digest = Digest.of(known, np.ones(rows.num_rows, np.int64))
    content = _Content(rows, digest, time, time, level, base=True, inserts=True)
    return _build(laid, schema, owner, content)


@dataclass(frozen=True, slots=True)
class _Content:
    """What goes into a part, and what is known of it beforehand."""

    table: pa.Table
    digest: Digest
    t_min: int
    t_max: int
    level: int
    base: bool = False
    untimed: bool = False
    inserts: bool = False


def _build(laid: Laid, schema: Schema, owner: Owner, content: _Content) -> Built:
    table = content.table
    encoded = encode_part(table, owner, laid.places)
    columns = ((field.id, table.column(field.name)) for field in schema.fields)
    place_lo, place_hi = laid.span()
    part = Part(
        key=owner.key,
        size=len(encoded),
        checksum=checksum(encoded),
        rows=table.num_rows,
        digest=content.digest.pack(),
        t_min=content.t_min,
        t_max=content.t_max,
        base=content.base,
        level=content.level,
        place_lo=place_lo,
        place_hi=place_hi,
        schema=schema.version,
        stats=encode_stats(measure(columns, table.num_rows)),
        untimed=content.untimed,
        inserts=content.inserts,
        footer=checksum(footer_of(encoded)),
    )
    return Built(part, encoded)
