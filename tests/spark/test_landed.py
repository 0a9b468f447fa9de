"""What tasks have put becomes one append, again and again at another time if it has to."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.handles.write import Appended
from strandline.shard.command import UpperMismatch
from strandline.shard.settings import Settings
from strandline.spark import perform
from strandline.spark.desk import Desk
from strandline.spark.landed import Effort, Load, landed

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
TIMED = [((1, 2), [3, 5]), ((3, 4), [4, 3])]


@pytest.fixture
def desk(tmp_path):
    settings = Settings(listed_parts=4)
    with strandline.open(str(tmp_path / "lake"), upkeep=False, settings=settings) as store:
        yield Desk(store, store.shard("t", schema=COLUMNS, key=["k"]), ("", 0))


def appended(desk: Desk, rows: pa.Table, most: int) -> Load:
    bench = desk.stand(desk.shard.state().schema).bench
    return Load.of([perform.append(bench, rows.to_batches(), None, most)])


def table(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": ["x"] * len(keys)})


def test_an_append_that_lost_is_stamped_anew_and_loses_nothing(desk):
    stand = desk.stand(desk.shard.state().schema)
    load = appended(desk, table(1, 2, 3), 0)
    with desk.shard.writer() as rival:
        rival.append(table(9))
    assert isinstance(load.commit(desk, stand, (0, 1), restamp=True), UpperMismatch)
    done = load.commit(desk, stand, (1, 2), restamp=True)
    assert isinstance(done, Appended)
    assert sorted(desk.shard.snapshot().to_arrow()["k"].to_pylist()) == [1, 2, 3, 9]
    assert desk.shard.snapshot(0).to_arrow()["k"].to_pylist() == [9]


def test_few_rows_beside_parts_become_a_part_too(desk):
    stand = desk.stand(desk.shard.state().schema)
    many, few = appended(desk, table(1, 2), 0), appended(desk, table(3), 10**6)
    both = Load(many.parts, many.digests, few.few, many.counts)
    count, digest = both.total(desk.shard.state().schema)
    both.put_few(stand.bench, untimed=True)
    assert both.few is None
    assert both.total(desk.shard.state().schema) == (count, digest) == (3, digest)
    assert isinstance(both.commit(desk, stand, (0, 1), restamp=True), Appended)
    assert desk.shard.snapshot().count() == 3


@pytest.mark.parametrize("most", [(0, 0), (0, 10**6), (10**6, 10**6)])
def test_rows_at_their_own_times_are_settled_in_parts_beside_parts_and_as_rows(desk, most):
    stand = desk.stand(desk.shard.state().schema)
    desk.shard.writer().advance(3)
    tasks = [table(*keys).append_column("_time", pa.array(times)) for keys, times in TIMED]
    answers = [
        perform.append(stand.bench, rows.to_batches(), (3, 6), each)
        for rows, each in zip(tasks, most, strict=True)
    ]
    outcome = Load.of(answers).settle(desk, stand, (3, 6), timed=True)
    assert isinstance(outcome, Appended)
    assert outcome.upper.time == 6
    found = [desk.shard.snapshot(time).to_arrow()["k"].to_pylist() for time in (3, 4, 5)]
    assert [sorted(keys) for keys in found] == [[1, 4], [1, 3, 4], [1, 2, 3, 4]]


def test_nothing_at_times_that_were_agreed_on_settles_them(desk):
    stand = desk.stand(desk.shard.state().schema)
    assert Load.of(()).settle(desk, stand, (0, 1), timed=False) is None
    outcome = Load.of(()).settle(desk, stand, (0, 4), timed=True)
    assert isinstance(outcome, Appended)
    assert desk.shard.upper.time == 4


def test_many_parts_are_listed_in_chunks_and_a_lost_race_leaves_no_list(desk):
    stand = desk.stand(desk.shard.state().schema)
    loads = [appended(desk, table(n), 0) for n in range(6)]
    parts = [part for load in loads for part in load.parts]
    digests: dict = {}
    for load in loads:
        perform.add_digests(digests, load.digests)
    whole = Load(parts, digests, None, loads[0].counts)
    assert isinstance(whole.commit(desk, stand, (5, 6), restamp=True), UpperMismatch)
    keys = [entry.key for entry in desk.env.blob.list(f"{desk.shard.id}/")]
    assert all(key.endswith((".parquet", ".ground")) for key in keys)
    assert isinstance(whole.commit(desk, stand, (0, 1), restamp=True), Appended)
    (batch,) = desk.shard.state().batches
    assert len(batch.chunks) == 1
    assert desk.shard.snapshot().count() == 6


def test_the_answer_says_what_it_took(desk):
    stand = desk.stand(desk.shard.state().schema)
    load = appended(desk, table(1, 2), 0)
    outcome = load.commit(desk, stand, (0, 1), restamp=True)
    assert isinstance(outcome, Appended)
    found = landed(
        desk,
        desk.shard.state().schema,
        load,
        outcome,
        2,
        Effort(1, 1, desk.env.clock.monotonic_ms()),
    )
    assert (found.time, found.rows, found.updates, found.parts, found.jobs) == (0, 2, 2, 1, 1)
    assert found.digest == desk.shard.state().total
    assert found.bytes == load.parts[0].size


def test_what_an_attempt_left_behind_is_swept_once_its_writer_is_gone(desk):
    stand = desk.stand(desk.shard.state().schema)
    lost = appended(desk, table(1, 2), 0)
    counted = appended(desk, table(1, 2), 0)
    assert isinstance(counted.commit(desk, stand, (0, 1), restamp=True), Appended)
    collector = desk._store.upkeep.collector
    assert collector.sweep(desk.shard.machine, delete=True) == []
    desk.close()
    swept = {entry.key for entry in collector.sweep(desk.shard.machine, delete=True)}
    assert lost.parts[0].key in swept
    assert counted.parts[0].key not in swept
    assert desk.shard.snapshot().count() == 2
