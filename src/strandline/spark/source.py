"""Spark's data source `strandline`: tables for `spark.read`, `write`, `readStream`, `writeStream`.

    spark.read.format("strandline").load("/data/lake/orders")

Spark makes an instance in one process, plans in another and reads in a third, so an instance
holds nothing but options. The same class serves all uses; which options mean what is decided in
`source_options`.

A table that was created with SQL gets its options back only through its columns: Spark keeps a
table's schema, with the metadata of its fields, but hands a source none of the table's options.
So the schema of such a table remembers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from strandline.errors import SchemaError, UsageError
from strandline.spark.source_cast import struct_of
from strandline.spark.source_options import Options
from strandline.spark.source_read import FeedReader, FilteringReader, SnapshotReader
from strandline.spark.source_rows import (
    CHANGE_COLUMNS,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
)
from strandline.spark.source_store import opened
from strandline.spark.source_stream import StreamReader
from strandline.spark.source_write import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

_REMEMBERED = "strandline.options"
_CHANGES = (
    StructField(CHANGE_TYPE, StringType(), nullable=False),
    StructField(COMMIT_VERSION, LongType(), nullable=False),
    StructField(COMMIT_TIMESTAMP, TimestampType(), nullable=True),
)


class StrandlineSource(DataSource):
    """Tables of Strandline."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = Options(options)

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> StructType:
        options = self._options
        place = options.place()
        with opened(place) as (_, shard):
            found = shard.schema
        names = options.columns
        if names is not None:
            missing = [name for name in names if name not in found.names]
            if missing:
                raise SchemaError(
                    f"option columns names {', '.join(missing)}, which table {place.table} does "
                    f"not have: there are {', '.join(found.names)}"
                )
            found = pa.schema([found.field(name) for name in names])
        columns = struct_of(found)
        if options.wants_feed:
            return StructType([*columns.fields, *_CHANGES])
        return self._remembering(columns) if options.in_catalog else columns

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._found(schema)
        if options.wants_feed:
            if not set(CHANGE_COLUMNS) <= set(schema.names):
                raise UsageError(
                    "the change feed has columns of its own, which this table or schema lacks: "
                    "read it with spark.read, without schema()"
                )
            return FeedReader(options.feed(), schema)
        return self._snapshot_reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return StreamReader(self._found(schema).stream_read(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        return BatchWriter(self._found(schema).write(overwrite=overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's
        return StreamWriter(self._found(schema).sink(overwrite=overwrite), schema)

    def _snapshot_reader(self, options: Options, schema: StructType) -> DataSourceReader:
        return SnapshotReader(options.scan(), schema)

    def _remembering(self, columns: StructType) -> StructType:
        first, *others = columns.fields
        metadata = {_REMEMBERED: self._options.remembered()}
        return StructType(
            [StructField(first.name, first.dataType, first.nullable, metadata), *others]
        )

    def _found(self, schema: StructType) -> Options:
        """The options, with those that the schema of a table of the catalog remembers."""
        for field in schema.fields:
            stored = (field.metadata or {}).get(_REMEMBERED)
            if stored is not None and not self._options.named:
                return self._options.over(stored)
        return self._options


class FilteringSource(StrandlineSource):
    """The same for sessions that push filters to Python sources."""

    def _snapshot_reader(self, options: Options, schema: StructType) -> DataSourceReader:
        return FilteringReader(options.scan(), schema)


def source_class(*, pushdown: bool) -> type[StrandlineSource]:
    """The class to register: Spark refuses a reader with `pushFilters` where that is off."""
    return FilteringSource if pushdown else StrandlineSource
