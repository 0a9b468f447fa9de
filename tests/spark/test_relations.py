"""Collections after a transaction: what was there, and its changes."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.pipeline.compute import Delta, Work
from strandline.pipeline.meaning import updates_digest
from strandline.spark.changes import as_changes, put_changes
from strandline.spark.jobs import Jobs
from strandline.spark.landed import Load
from strandline.spark.premises import Desks, Premises
from strandline.spark.relations import Changes, Whole, relations
from strandline.spark.table import frame_of

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
OLD = [(1, "a"), (2, "b"), (2, "b"), (3, "c")]


def table(rows):
    return pa.table([list(each) for each in zip(*rows, strict=True)], names=["k", "v"])


@pytest.mark.parametrize("in_parts", [True, False])
@pytest.mark.parametrize(
    ("key", "changes", "after"),
    [
        ((), [(2, "b", -1), (4, "d", 2)], [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (4, "d")]),
        ((), [(4, "d", 1)], [*OLD, (4, "d")]),
        (("k",), [(1, "a", -1), (1, "z", 1), (3, "c", -1)], [(1, "z"), (2, "b")]),
    ],
    ids=["retracts", "inserts", "keyed"],
)
def test_changes_apply_to_what_was_there(tmp_path, spark, key, changes, after, in_parts):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        old = sorted(set(OLD)) if key else OLD
        with store.shard("t", COLUMNS, key).writer() as writer:
            writer.compare_and_append(table(old), lower=0, upper=1)
            desks = Desks(store)
            work = Work("shop", 1, 0, None, (), {"t": "t"}, writers={"t": writer})
            with Premises(desks, work) as premises:
                rows = table([each[:2] for each in changes])
                rows = rows.append_column("_diff", pa.array([each[2] for each in changes]))
                rows = as_changes(rows, premises.schema("t"))
                delta = Delta(updates_digest(rows, premises.schema("t")), rows)
                if in_parts:
                    answer = put_changes(premises.stand("t").bench, rows.to_batches(), 1, 0)
                    delta = premises.delta("t", Load.of([answer]))
                found = Changes.of(premises, "t", delta)
                assert sorted(found.rows().to_pylist(), key=str) == sorted(
                    rows.to_pylist(), key=str
                )
                whole = Whole(premises, spark, Jobs(spark, "", 2))
                got = whole.after(found).toArrow().to_pylist()
                assert sorted((row["k"], row["v"]) for row in got) == after
            desks.close()


def test_relations_are_gone_afterwards(spark):
    with relations(spark, {"t": frame_of(spark, table(OLD))}) as named:
        assert spark.sql(f"SELECT COUNT(*) AS n FROM {named['t']}").toArrow()["n"][0].as_py() == 4
    assert not spark.catalog.tableExists(named["t"])
