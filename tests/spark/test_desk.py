"""The driver's side of a table: one writer, one ground, and what is seen of the shard."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError, UsageError
from strandline.spark.desk import Desk
from strandline.spark.instruction import decode_ground
from strandline.spark.plan import Gathered

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as opened:
        yield opened


@pytest.fixture
def desk(store):
    return Desk(store, store.shard("t", schema=COLUMNS, key=["k"]), ("", 0))


def test_a_stand_is_made_once_and_its_ground_is_put(desk):
    schema = desk.shard.state().schema
    stand = desk.stand(schema)
    assert desk.stand(schema) is stand
    (key,) = [e.key for e in desk.env.blob.list(f"{desk.shard.id}/") if e.key.endswith(".ground")]
    assert f"/{stand.writer.id}/" in key
    encoded = desk.env.blob.get(key)
    assert encoded is not None
    assert decode_ground(encoded, key).schema == schema


def test_a_new_schema_gets_a_ground_of_its_own_and_the_same_writer(desk):
    first = desk.stand(desk.shard.state().schema)
    desk.shard.evolve(pa.schema([*COLUMNS, ("w", pa.string())]))
    second = desk.stand(desk.shard.state().schema)
    assert second.site != first.site
    assert second.writer is first.writer


def test_a_writer_that_was_closed_is_replaced(desk):
    schema = desk.shard.state().schema
    first = desk.stand(schema)
    desk.close()
    desk.close()
    second = desk.stand(schema)
    assert second.writer.id != first.writer.id


def test_what_can_not_be_written_is_refused_before_any_job(store, desk):
    with desk.shard.writer() as writer:
        writer.advance(None)
    with pytest.raises(BoundsError, match="closed"):
        desk.writable()
    attached = store.shard("attached", schema=COLUMNS, key=["k"])
    store.timeline("line").attach(attached)
    with pytest.raises(UsageError, match="timeline line"):
        Desk(store, attached, ("", 0)).writable()


def test_old_rows_are_looked_for_only_where_they_may_be(store):
    shard = store.shard("t", schema=COLUMNS, key=["k"])
    schema = shard.state().schema
    desk = Desk(store, shard, ("", 0))
    with shard.writer() as writer:
        writer.append(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}))
        ids = list(range(100, 9_100))
        writer.append(pa.table({"k": ids, "v": ["part"] * len(ids)}))
    rows = pa.table({"k": [2, 150], "v": ["x", "x"]})
    gathered = Gathered.of([rows], (), schema)
    with desk.view() as view:
        there = desk.stored(view.state, 1, gathered)
        assert there.inline["k"].to_pylist() == [2]
        assert len(there.parts) == 1
        assert desk.stored(view.state, 0, gathered).parts == ()
        assert desk.stored(view.state, None, gathered).inline.num_rows == 0
        everything = desk.stored(view.state, 1, None)
        assert sorted(everything.inline["k"].to_pylist()) == [1, 2, 3]
