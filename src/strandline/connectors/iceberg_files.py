"""The data files of one transaction in an Iceberg table: written, and taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.connectors.iceberg_rows import Retractions
from strandline.errors import SinkStoppedError
from strandline.model.ids import printable
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.update.snapshot import UpdateSnapshot

    from strandline.model.valuehash import I64

_INSERTED_MAX = 16 * 1024 * 1024
"""Insertions that are kept in memory before they become a data file."""


class Writing:
    """The data files that one transaction adds, and those that it takes out."""

    def __init__(self, table: Table, stored: pa.Schema, step: Callable[[str], None]) -> None:
        self._table = table
        self._stored = stored
        self._step = step
        self._added: list[DataFile] = []
        self._removed: list[DataFile] = []
        self._snapshot = 0
        self._clean: Callable[[], None] = lambda: None

    def insert(self, batches: Iterator[pa.RecordBatch], columns: pa.Schema) -> pa.Table:
        """Write what comes, in pieces of bounded size; what goes is returned."""
        held: list[pa.Table] = []
        size = 0
        gone = [columns.append(pa.field(DIFF_COLUMN, pa.int64(), nullable=False)).empty_table()]
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            diffs = rows.column(DIFF_COLUMN)
            gone.append(rows.filter(pc.less(diffs, 0)))
            for piece in _repeated(rows.filter(pc.greater(diffs, 0))):
                held.append(piece)
                size += piece.nbytes
                if size > _INSERTED_MAX:
                    self._write(held)
                    held, size = [], 0
        self._write(held)
        return pa.concat_tables(gone)

    def remove(self, changes: pa.Table, columns: pa.Schema) -> None:
        """Take rows out of the files that hold them; all of them must be found."""
        gone = Retractions(changes)
        for task in self._files(gone.rows) if gone.left else ():
            rows = _read(self._table, task).select(columns.names).cast(columns)
            stays = gone.subtract(rows)
            if stays is not None:
                self._removed.append(task.file)
                self._write([stays])
        if gone.left:
            raise SinkStoppedError(
                f"{gone.left} rows that go are not in the table: somebody else has changed it; "
                "put them back, or publish to a new table"
            )

    def replace(self, gone: pa.Table) -> None:
        """Take out whatever is there: it is of an older lineage."""
        if gone.num_rows:
            raise SinkStoppedError("the first transaction of a lineage takes rows away")
        self._removed += [task.file for task in self._table.scan().plan_files()]

    def into(self, snapshot: UpdateSnapshot) -> None:
        """Add the snapshot, to be committed with the rest.

        At a conflict the library deletes what it wrote for it, but a conflict may be with the very
        commit, which a client has sent twice: whether that is so `undo` is called after.
        """
        with snapshot.overwrite() if self._removed else snapshot.fast_append() as change:
            self._snapshot = change._snapshot_id  # noqa: SLF001 - no public call tells it
            self._clean = change._clean_all_uncommitted  # noqa: SLF001 - nor undoes it later
            change._clean_all_uncommitted = lambda: None  # type: ignore[method-assign]  # noqa: SLF001
            for each in self._removed:
                change.delete_data_file(each)
            for each in self._added:
                change.append_data_file(each)

    def is_in(self, table: Table) -> bool:
        """Whether a table, as it is now, has the snapshot."""
        return bool(self._snapshot) and table.metadata.snapshot_by_id(self._snapshot) is not None

    def undo(self) -> None:
        """Nobody refers to what was written: it did not count."""
        self._clean()
        for each in self._added:
            self._table.io.delete(each.file_path)

    def _files(self, rows: pa.Table) -> Iterable[FileScanTask]:
        """The files that may hold one of these rows, by the bounds of what is told of each."""
        from pyiceberg.expressions import (  # noqa: PLC0415
            AlwaysTrue,
            And,
            BooleanExpression,
            GreaterThanOrEqual,
            LessThanOrEqual,
        )

        bounds: BooleanExpression = AlwaysTrue()
        for field in rows.schema:
            column = rows.column(field.name)
            if not column.null_count and pa.types.is_integer(field.type):
                least, most = pc.min_max(column).as_py().values()
                lowest = GreaterThanOrEqual(field.name, least)  # type: ignore[call-arg]
                highest = LessThanOrEqual(field.name, most)  # type: ignore[call-arg]
                bounds = And(bounds, And(lowest, highest))
        return self._table.scan(row_filter=bounds).plan_files()

    def _write(self, pieces: list[pa.Table]) -> None:
        from pyiceberg.io.pyarrow import _dataframe_to_data_files  # noqa: PLC0415

        rows = pa.concat_tables(pieces) if pieces else self._stored.empty_table()
        if not rows.num_rows:
            return
        self._step("write")
        cast = pa.table([_held(rows, each) for each in self._stored], schema=self._stored)
        self._added += _dataframe_to_data_files(self._table.metadata, cast, self._table.io)


def _held(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """A column as the table holds it."""
    try:
        return rows.column(field.name).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SinkStoppedError(
            f"column {printable(field.name)} has a value that the table can't hold as "
            f"{field.type}: {printable(error, 200)}; cast it in a view and publish that"
        ) from error


def _read(table: Table, task: FileScanTask) -> pa.Table:
    """All rows of one data file, as the table's newest schema has them."""
    from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415
    from pyiceberg.io.pyarrow import ArrowScan  # noqa: PLC0415

    whole = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return whole.to_table([task])


def _repeated(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows alone, each as often as its diff says, in slices of bounded size.

    A slice has all rows that are left, equally often: its size is known before it is made, also
    where one row is much larger than the others.
    """
    left: I64 = rows.column(DIFF_COLUMN).to_numpy()
    plain = rows.drop_columns([DIFF_COLUMN])
    while len(left):
        # Positions count, too: there are columns that take no space.
        size = plain.nbytes + left.itemsize * len(left)
        times = min(int(left.min()), max(1, _INSERTED_MAX // size))
        if times == 1:
            yield plain
        else:
            yield plain.take(pa.array(np.repeat(np.arange(len(left)), times)))
        left = left - times
        if not left.all():
            plain, left = plain.filter(pa.array(left > 0)), left[left > 0]
