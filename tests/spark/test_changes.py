"""Changes in tasks: given back if few, put if many, and read as they were."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.workbench import SCHEMA, bench

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.pipeline.meaning import updates_digest
from strandline.spark import slices
from strandline.spark.changes import as_changes, changes_in, put_changes


def some(*rows):
    keys, values, diffs = zip(*rows, strict=True)
    table = pa.table({"_diff": diffs, "v": pa.array(values, pa.string()), "k": keys})
    return as_changes(table, SCHEMA)


def test_few_changes_come_back_consolidated():
    rows = some((1, "a", 1), (2, "b", 1), (1, "a", -1))
    answer = put_changes(bench(), rows.to_batches(), 7, 10**6)
    (row,) = slices.from_stream(answer.rows, "rows").to_pylist()
    assert row == {"k": 2, "v": "b", "_time": 7, "_diff": 1}
    assert (answer.parts, answer.rows_in) == ((), 3)


def test_many_changes_are_parts_with_the_same_digest():
    made = bench(part_rows=2)
    rows = some(*((key, "a", 1) for key in range(9)))
    answer = put_changes(made, rows.to_batches(), 7, 0)
    assert len(answer.parts) > 1
    assert all((part.t_min, part.untimed) == (7, True) for part in answer.parts)
    whole = pa.concat_tables(changes_in(made, part) for part in answer.parts)
    assert sorted(whole.to_pylist(), key=str) == sorted(rows.to_pylist(), key=str)
    ((time, packed),) = answer.digests
    assert (time, Digest.unpack(packed)) == (7, updates_digest(rows, SCHEMA))


def test_nothing_is_nothing_and_a_part_that_is_gone_is_named():
    made = bench()
    assert put_changes(made, some((1, "a", 1), (1, "a", -1)).to_batches(), 0, 0).parts == ()
    (part,) = put_changes(made, some((1, "a", 1)).to_batches(), 0, 0).parts
    made.blob.delete(part.key)
    with pytest.raises(CorruptionError, match=part.key):
        changes_in(made, part)
