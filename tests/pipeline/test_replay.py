"""What was committed is computed again, and every difference is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.pipeline.shop import rig_of, run, topic_of, topic_rig

from strandline.connectors.registry import fetch
from strandline.connectors.source import Split
from strandline.errors import (
    BoundsError,
    CorruptionError,
    ReplayDivergedError,
    SinceError,
    SourceGoneError,
)
from strandline.handles.store import Store
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import Replayed, recorded, replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.shard.state import Retention
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def store() -> Iterator[Store]:
    lab = Lab()
    with new_store(lab) as made:
        replica = Replica(rig_of(made))
        run(replica)
        replica.close()
        yield made
    lab.close()


def _replayed(rig: Rig, start: int = 0, stop: int = 10) -> list[Replayed]:
    return list(replay(rig, Planner(rig), start, stop))


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (3, 7), (9, 10), (4, 4)])
def test_the_same_work_has_the_same_answer(store: Store, start: int, stop: int) -> None:
    before = rig_of(store).journal.refresh()
    found = _replayed(rig_of(store), start, stop)
    assert [(each.t, each.rows, each.noted) for each in found] == [
        (t, 10, ()) for t in range(start, stop)
    ]
    assert rig_of(store).journal.refresh() == before, "a replay writes nothing"


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (-1, 3), (5, 4)])
def test_only_what_is_committed_can_be_computed_again(store: Store, start: int, stop: int) -> None:
    with pytest.raises(BoundsError, match="0 to 10 are committed"):
        _replayed(rig_of(store), start, stop)


def _other_rows(split: Split) -> Iterator[pa.RecordBatch]:
    """The same rows, but for one in transaction 4."""
    for batch in fetch(split, str):
        yield batch.slice(1) if split.start == 40 else batch


def test_other_rows_from_a_source_are_named_with_their_transaction(store: Store) -> None:
    rig = replace(rig_of(store), computer=ArrowComputer(store, fetch=_other_rows))
    seen = []
    with pytest.raises(ReplayDivergedError, match=r"transaction 4 .* endpoint orders is 10:"):
        seen.extend(each.t for each in replay(rig, Planner(rig), 0, 10))
    assert [each.t for each in _replayed(rig, 0, 4)] == [0, 1, 2, 3]


def test_between_unequal_versions_a_difference_is_reported(store: Store) -> None:
    computer = ArrowComputer(store, fetch=_other_rows, versions={"engine": "newer"})
    found = _replayed(replace(rig_of(store), computer=computer), 3, 6)
    assert [bool(each.noted) for each in found] == [False, True, False]


def test_the_record_of_a_transaction_has_all_its_parts(store: Store) -> None:
    each = next(recorded(rig_of(store).journal, 4, 5))
    assert (each.sealed.t, each.commit.t) == (4, 4)
    assert each.sealed.inputs[0].taken == {"0": (40, 50)}
    assert set(each.commit.inputs) == {"orders"}


def test_a_transaction_whose_rows_are_gone_is_named_and_not_called_equal() -> None:
    lab, topic = Lab(), topic_of(*({"id": each, "n": each} for each in range(6)))
    with new_store(lab) as store:
        rig = topic_rig(store, topic, staged=True)
        replica = Replica(rig)
        run(replica)
        replica.close()
        each = next(recorded(rig.journal, 1, 2))
        store.env.blob.delete(each.sealed.inputs[0].staged[0].key)
        with pytest.raises(SourceGoneError, match="transaction 1 can't be computed again: rows of"):
            _replayed(rig, 0, 3)
        found = list(replay(rig, Planner(rig), 0, 3, skip=True))
        assert [(one.t, one.rows, bool(one.skipped)) for one in found] == [
            (0, 2, False),
            (1, 0, True),
            (2, 2, False),
        ]
        assert "rows of t are gone" in found[1].skipped
        assert "missing" in found[1].skipped
        put = next(recorded(rig.journal, 2, 3)).sealed.inputs[0].staged[0].key
        store.env.blob.delete(put)
        store.env.blob.put(put, b"something else")
        with pytest.raises(CorruptionError, match="damaged"):
            _replayed(rig, 2, 3)
    lab.close()


def test_a_replay_from_the_first_time_holds_what_it_reads_while_it_runs(store: Store) -> None:
    rig = rig_of(store)
    shards = [store.shard(each.shard) for each in rig.journal.refresh().bindings.values()]
    going = replay(rig, Planner(rig), 0, 10)
    found = [next(going)]
    for shard in shards:
        shard.retain(Retention(None, 1))
        shard.hold(rig.timeline, 9, epoch=1)
        shard.compact(full=True)
    assert {shard.since.time for shard in shards} == {0}
    found += going
    assert [(each.t, each.noted) for each in found] == [(t, ()) for t in range(10)]
    for shard in shards:
        shard.compact(full=True)
        assert not [each for each in shard.state().readers.values() if each.purpose == "replay"]
    filled = [each for each in shards if not each.name.endswith("_errors")]
    assert {shard.since.time for shard in filled} == {9}, "it holds nothing any more"
    with pytest.raises(SinceError, match="0 can't be computed again"):
        _replayed(rig_of(store))
    assert [each.noted for each in _replayed(rig_of(store), 0, 1)] == [()]


def test_what_can_t_be_computed_again_leaves_no_reader(store: Store) -> None:
    rig = rig_of(store)
    last = rig.journal.refresh().bindings["totals"].shard
    shard = store.shard(last)
    shard.retain(Retention(None, 1))
    shard.hold(rig.timeline, 9, epoch=1)
    shard.compact(full=True)
    with pytest.raises(SinceError, match="2 can't be computed again"):
        _replayed(rig, 2, 4)
    assert not [
        each
        for name in store.shards()
        for each in store.shard(name).state().readers.values()
        if each.purpose == "replay"
    ]
