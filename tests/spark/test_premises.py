"""The shards of one transaction: what is there, and what becomes of what tasks put."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.errors import UsageError
from strandline.model.digest import Digest
from strandline.pipeline.compute import Work
from strandline.spark.changes import as_changes, put_changes
from strandline.spark.landed import Load
from strandline.spark.premises import Desks, Premises

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = pa.table({"k": [1, 2], "v": ["a", "b"]}, COLUMNS)


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as made:
        yield made


@pytest.fixture
def writer(store):
    with store.shard("t", COLUMNS, ["k"]).writer() as made:
        yield made


def work(time, writer=None):
    writers = {} if writer is None else {"t": writer}
    return Work("shop", time, 0, None, (), {"t": "t"}, writers=writers)


@pytest.fixture
def desks(store):
    made = Desks(store)
    yield made
    made.close()


def test_a_collection_is_empty_by_what_is_before_the_transaction(desks, writer):
    with Premises(desks, work(0, writer)) as premises:
        assert premises.is_empty("t")
        assert premises.as_of is None
    writer.compare_and_append(ROWS, lower=0, upper=1)
    for time, empty in ((0, True), (1, False)):
        with Premises(desks, work(time, writer)) as premises:
            assert premises.is_empty("t") == empty
    gone = ROWS.append_column("_diff", pa.array([-1, -1]))
    writer.compare_and_append(gone, lower=1, upper=2)
    with Premises(desks, work(2, writer)) as premises:
        assert premises.is_empty("t")


@pytest.mark.parametrize("lands", [True, False])
def test_parts_lie_under_whoever_lands_them_or_go(store, desks, writer, lands):
    with Premises(desks, work(0, writer if lands else None)) as premises:
        bench = premises.stand("t").bench
        rows = as_changes(ROWS.append_column("_diff", pa.array([1, 1])), premises.schema("t"))
        answer = put_changes(bench, rows.to_batches(), 0, 0)
        delta = premises.delta("t", Load.of([answer]))
        keys = delta.batch.object_keys()
        assert all((f"/{writer.id}/" in key) == lands for key in keys)
        assert delta.digest.count == 2
    assert [store.env.blob.get(key) is not None for key in keys] == [lands] * len(keys)
    if lands:
        writer.commit_parts(delta.batch, {0: delta.digest}, lower=0, upper=1)
        assert store.shard("t").snapshot().to_arrow().num_rows == 2
    desks.close()
    assert writer.advance(1 if not lands else 2) is not None


def test_few_rows_stay_rows_and_none_are_no_change(desks, writer):
    with Premises(desks, work(0, writer)) as premises:
        rows = as_changes(ROWS.append_column("_diff", pa.array([1, 1])), premises.schema("t"))
        answer = put_changes(premises.stand("t").bench, rows.to_batches(), 0, 10**6)
        delta = premises.delta("t", Load.of([answer]))
        assert delta.updates.column_names == ["k", "v", "_diff"]
        assert delta.digest != Digest.ZERO
        assert premises.delta("t", Load.of([])) is None


def test_a_store_in_memory_is_refused():
    with strandline.open("memory://", upkeep=False) as store:
        store.shard("t", COLUMNS, ["k"])
        with pytest.raises(UsageError, match="open a folder"):
            Desks(store).of("t")
