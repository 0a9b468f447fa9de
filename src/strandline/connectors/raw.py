"""The columns in which every source gives its rows.

A source of bytes gives all of `RAW`. One that has typed rows already (Parquet, Avro files, a
shard, the generator) gives its columns, then `_partition` and `_offset`, and where it knows
`_delete` (the row says that its key goes), or `_diff`, as a shard does. Names that begin with `_`
are ours, so none of a source's own columns may.

Within a range and a partition `_offset` grows from row to row, strictly but for shards, and lies
within the range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SchemaError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = "_key"
VALUE = "_value"
PARTITION = "_partition"
OFFSET = "_offset"
TIMESTAMP = "_timestamp"
HEADERS = "_headers"
DELETE = "_delete"
DIFF = "_diff"

RAW = pa.schema(
    [
        pa.field(KEY, pa.binary()),
        pa.field(VALUE, pa.binary()),
        pa.field(PARTITION, pa.string(), nullable=False),
        pa.field(OFFSET, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, pa.timestamp("us", "UTC")),
        pa.field(HEADERS, pa.map_(pa.string(), pa.binary())),
    ]
)

PLACE = (
    pa.field(PARTITION, pa.string(), nullable=False),
    pa.field(OFFSET, pa.int64(), nullable=False),
)
"""What typed rows have beside their own columns."""


def is_raw(schema: pa.Schema) -> bool:
    """Whether rows of this schema are bytes that have to be decoded."""
    return VALUE in schema.names


def own_columns(schema: pa.Schema) -> list[pa.Field]:
    """The columns of typed rows without ours."""
    return [each for each in schema if not each.name.startswith("_")]


def typed_schema(columns: Sequence[pa.Field], *ours: pa.Field) -> pa.Schema:
    """The layout of typed rows with these columns."""
    for each in columns:
        if each.name.startswith("_"):
            raise SchemaError(
                f"column {printable(each.name)} of a source is refused: names that begin with "
                "'_' are Strandline's; rename it"
            )
    return pa.schema([*columns, *PLACE, *ours])


def raw_batch(
    values: Sequence[bytes | None],
    partition: str,
    offsets: Sequence[int],
    *,
    keys: Sequence[bytes | None] | None = None,
    header: tuple[str, bytes] | None = None,
) -> pa.RecordBatch:
    """Rows of one partition; without `keys` none has one, `header` is the same for all."""
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, pa.binary()) if keys is None else pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.repeat(pa.scalar(partition, pa.string()), count),
            pa.array(offsets, pa.int64()),
            pa.nulls(count, RAW.field(TIMESTAMP).type),
            _repeated(header, count),
        ],
        schema=RAW,
    )


def _repeated(header: tuple[str, bytes] | None, count: int) -> pa.Array:
    if header is None:
        return pa.nulls(count, RAW.field(HEADERS).type)
    offsets = pa.array(range(count + 1), pa.int32())
    names = pa.repeat(pa.scalar(header[0], pa.string()), count)
    return pa.MapArray.from_arrays(
        offsets, names, pa.repeat(pa.scalar(header[1], pa.binary()), count)
    )
