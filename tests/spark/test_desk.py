"""The driver's side of a table: one writer, one ground, and what is seen of the shard."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError, HandleClosedError, UsageError
from strandline.spark.desk import KEPT_MS, Desk
from strandline.spark.instruction import Site, decode_ground
from strandline.spark.plan import Gathered
from strandline.spark.table import Table

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


def test_a_forked_child_is_refused_before_it_asks_spark_and_closes_nothing(desk, monkeypatch):
    table, keys = Table(desk), pa.table({"k": [1]})
    stand = desk.stand(desk.shard.state().schema)
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: 0)
        for call in (
            table.df,
            lambda: table.changes(0),
            lambda: table.lookup(keys),
            lambda: table.lookup_arrow(keys),
            lambda: table.compact(None),
        ):
            with pytest.raises(HandleClosedError, match="open the store again"):
                call()
        table.close()
    assert desk.stand(desk.shard.state().schema) is stand


def test_what_only_jobs_read_goes_with_the_table_that_had_it_put(desk):
    stand = desk.stand(desk.shard.state().schema)
    with desk.shard.writer() as writer:
        writer.append(pa.table({"k": range(20_000), "v": ["part"] * 20_000}))
    for kind in ("errands", "rows", "works"):
        stand.bench.put_object(b"x", kind)
    desk.close()
    left = {entry.key.rpartition(".")[2] for entry in desk.env.blob.list(f"{desk.shard.id}/")}
    assert left == {"parquet"}
    assert desk.shard.snapshot().count() == 20_000


def test_the_ground_of_one_job_goes_with_it(desk):
    schema = desk.shard.state().schema
    with desk.shard.writer() as writer, desk.site_for(writer.id, schema) as (site, _):
        ground = msgspec.msgpack.decode(site, type=Site).ground
        assert desk.env.blob.get(ground) is not None
    assert desk.env.blob.get(ground) is None


def pins(desk, store):
    return store.leases.own_reader(desk.shard.machine).holds.pins


@pytest.mark.parametrize(("kept_ms", "most"), [(KEPT_MS, 1), (0, 1)])
def test_reading_many_versions_takes_no_pin_for_each(store, desk, kept_ms, most):
    desk = Desk(store, desk.shard, ("", 0), kept_ms=kept_ms)
    with desk.shard.writer() as writer:
        for n in range(30):
            writer.append(pa.table({"k": [n], "v": ["x"]}))
            assert desk.kept_view().state.upper.time == n + 1
            assert pins(desk, store) <= most
    desk.close()
    assert pins(desk, store) == 0


def test_what_a_data_frame_reads_is_kept_until_its_time_is_over(store, desk):
    """The pin of the first keeps what the later ones read, too."""
    with desk.shard.writer() as writer:
        writer.append(pa.table({"k": range(20_000), "v": ["part"] * 20_000}))
        first = desk.kept_view().state
        keys = [part.key for batch in first.batches for part in batch.parts]
        desk.shard.retain("1 versions")
        writer.append(pa.table({"k": [-1], "v": ["x"]}))
        desk.kept_view()
    desk.shard.compact(full=True)
    assert all(desk.env.blob.get(key) is not None for key in keys)
    desk.close()
    desk.shard.compact(full=True)
    assert [key for key in keys if desk.env.blob.get(key) is not None] == []


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
