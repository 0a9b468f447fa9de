"""Insertions become files of bounded size, whatever their number."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from strandline.connectors import iceberg_files
from strandline.connectors.iceberg_files import Writing
from strandline.errors import SinkStoppedError

COLUMNS = pa.schema([("id", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    told = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    catalog = load_catalog("c", **told)
    catalog.create_namespace("shop")
    return catalog.create_table("shop.t", COLUMNS)


CHANGES = COLUMNS.append(pa.field("_diff", pa.int64(), nullable=False))


def batches(*diffs: int) -> list[pa.RecordBatch]:
    rows = ({"id": list(range(100)), "_diff": [diff] * 100} for diff in diffs)
    return [pa.RecordBatch.from_pydict(each, CHANGES) for each in rows]


def test_large_insertions_are_several_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_files, "_INSERTED_MAX", 500)
    steps: list[str] = []
    begun = Writing(table, COLUMNS, steps.append)
    assert begun.insert(iter(batches(1, 2, -1, 1)), COLUMNS).num_rows == 100
    assert steps == ["write"] * 4
    with table.transaction() as change:
        begun.into(change.update_snapshot())
    assert table.scan().to_arrow().num_rows == 400
    assert len(list(table.scan().plan_files())) == 4


def test_one_change_of_many_copies_is_written_in_slices(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a row that occurs more often than memory can hold."""
    monkeypatch.setattr(iceberg_files, "_INSERTED_MAX", 800)
    changes = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "_diff": [1, 1_000, 3]}, CHANGES)
    sizes: list[int] = []
    real = Writing._write

    def write(self: Writing, pieces: list[pa.Table]) -> None:
        sizes.append(sum(each.nbytes for each in pieces))
        real(self, pieces)

    monkeypatch.setattr(Writing, "_write", write)
    begun = Writing(table, COLUMNS, str)
    assert begun.insert(iter([changes]), COLUMNS).num_rows == 0
    assert len(sizes) > 5
    assert max(sizes) <= 2 * 800
    with table.transaction() as change:
        begun.into(change.update_snapshot())
    assert Counter(table.scan().to_arrow()["id"].to_pylist()) == {1: 1, 2: 1_000, 3: 3}


def test_a_slice_is_bounded_whichever_row_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_files, "_INSERTED_MAX", 4_000)
    texts = ["x" * 1_000, *(str(n) for n in range(100))]
    diffs = [20, *range(1, 101)]
    slices = list(iceberg_files._repeated(pa.table({"text": texts, "_diff": diffs})))
    assert max(each.nbytes for each in slices) <= 4_000
    found = Counter(pa.concat_tables(slices)["text"].to_pylist())
    assert found == dict(zip(texts, diffs, strict=True))


def test_what_did_not_count_is_deleted(table: Table) -> None:
    begun = Writing(table, COLUMNS, str)
    begun.insert(iter(batches(1)), COLUMNS)
    folder = Path(table.location().removeprefix("file://")) / "data"
    assert len(list(folder.iterdir())) == 1
    begun.undo()
    assert list(folder.iterdir()) == []


def test_a_lineage_begins_with_what_is_there(table: Table) -> None:
    with pytest.raises(SinkStoppedError, match="takes rows away"):
        Writing(table, COLUMNS, str).replace(pa.Table.from_batches(batches(-1)))
