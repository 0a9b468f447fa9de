"""Explicit transactions: together or not at all, and never without their owner's word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.pipeline.shop import rig_of, rows, run, topic_of, topic_rig

from strandline.connectors.raw import raw_batch
from strandline.errors import ConflictError, SourceError
from strandline.journal.handles import Handles
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.planner import Planner
from strandline.pipeline.replica import Replica
from strandline.pipeline.rows import staged_rows
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def _payload(*ids: int) -> bytes:
    values = [b'{"id": %d, "customer": 1, "amount": 100}' % each for each in ids]
    batch = raw_batch(values, "0", range(len(values)))
    return packed_rows(pa.Table.from_batches([batch]))


def test_what_was_asked_for_is_committed_at_one_time(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        run(replica)
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: replica.standing)
        handles.insert(handle, 0, "orders", _payload(901, 902), 2)
        handles.insert(handle, 1, "orders", _payload(903), 1)
        run(replica)
        assert replica.standing.next_t == 10, "nobody asked for a commit yet"
        handles.freeze(handle, commit=True)
        run(replica)
        assert replica.standing.closed == {handle: 10}
        added = {row["id"] for row in rows(store, "orders", 10)}
        assert {901, 902, 903} <= added
        assert not {901, 902, 903} & {row["id"] for row in rows(store, "orders", 9)}
        replica.close()


def test_recovery_commits_no_handle_whose_owner_did_not(lab: Lab) -> None:
    with new_store(lab) as store:
        first = Replica(rig_of(store))
        run(first)
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: first.standing)
        handles.insert(handle, 0, "orders", _payload(901), 1)
        first.close()
        second = Replica(rig_of(store))
        run(second)
        assert second.standing.next_t == 10
        assert handle not in second.standing.closed
        assert [each.id for each in handles.all()] == [handle]
        second.close()


def test_idle_handles_expire_by_a_record_and_consume_no_time(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store, handle_ttl_ms=1_000))
        run(replica)
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: replica.standing)
        lab.clock.now += 1_001
        run(replica)
        with pytest.raises(ConflictError, match="aborted"):
            handles.freeze(handle, commit=True)
        assert replica.standing.closed == {handle: None}
        assert replica.standing.next_t == 10
        replica.close()


def test_rows_that_came_just_before_the_expiry_keep_their_handle_open(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store, handle_ttl_ms=1_000))
        run(replica)
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: replica.standing)
        lab.clock.now += 1_001
        real, waiting = Planner._expire, [lambda: handles.insert(handle, 0, "orders", b"a", 1)]

        def late(self, standing, seen):
            if waiting:
                waiting.pop()()
            real(self, standing, seen)

        monkeypatch.setattr(Planner, "_expire", late)
        run(replica)
        assert not waiting
        assert replica.standing.closed == {}
        assert handles.look(handle).frozen is None
        replica.close()


@pytest.mark.parametrize("when", ["_abort", "settle"])
@pytest.mark.parametrize("idle", [True, False])
def test_whoever_finishes_an_abort_after_a_crash_knows_its_reason(
    lab: Lab, when: str, *, idle: bool
) -> None:
    class CrashError(Exception):
        """The process ends here."""

    def crash(*_: object) -> None:
        raise CrashError

    with new_store(lab) as store, pytest.MonkeyPatch.context() as patch:
        replica = Replica(rig_of(store, handle_ttl_ms=1_000))
        run(replica)
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: replica.standing)
        if idle:
            lab.clock.now += 1_001
        else:
            handles.freeze(handle, commit=False)
        patch.setattr(Planner if when == "_abort" else Handles, when, crash)
        with pytest.raises(CrashError):
            run(replica)
        patch.undo()
        run(replica)
        closed = handles.look(handle).closed
        assert closed is not None
        assert closed.how == f"aborted: {'idle for too long' if idle else 'its user aborted it'}"
        replica.close()


def test_open_handles_block_neither_checkpoints_nor_each_other(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        replica.step()
        handles = Handles(store.env, "shop")
        first, second = (handles.open(lambda: replica.standing) for _ in range(2))
        handles.insert(second, 0, "orders", _payload(902), 1)
        handles.freeze(second, commit=True)
        run(replica)
        assert second in replica.standing.closed
        assert first not in replica.standing.closed
        replica.close()


def test_an_abort_is_free_and_carried_out_by_whoever_comes(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        run(replica)
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: replica.standing)
        handles.insert(handle, 0, "orders", _payload(901), 1)
        handles.freeze(handle, commit=False)
        run(replica)
        assert (replica.standing.closed, replica.standing.next_t) == ({handle: None}, 10)
        replica.close()


def test_rows_for_a_table_that_is_not_there_are_refused_and_not_lost(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        run(replica)
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: replica.standing)
        handles.insert(handle, 0, "odrers", _payload(901), 1)
        handles.freeze(handle, commit=True)
        run(replica)
        assert replica.standing.closed == {handle: None}, "it was aborted, and has no time"
        closed = handles.look(handle).closed
        assert closed is not None
        assert "odrers" in closed.reason
        replica.close()


@pytest.mark.parametrize("commit", [True, False])
def test_handles_that_keep_coming_do_not_starve_the_sources(lab: Lab, *, commit: bool) -> None:
    """Two clients in a loop: whenever a replica plans, one of them has asked already."""
    with new_store(lab) as store:
        replicas = [Replica(rig_of(store)), Replica(rig_of(store))]
        replicas[0].step()
        handles = Handles(store.env, "shop")
        asked: list[str] = []
        for turn in range(60):
            standing = replicas[turn % 2].standing
            while sum(each not in standing.closed for each in asked) < 2:
                asked.append(handles.open(lambda standing=standing: standing))
                handles.freeze(asked[-1], commit=commit)
            replicas[turn % 2].step()
        standing = replicas[1].standing
        times = [t for t in standing.closed.values() if t is not None]
        assert len(standing.closed) > 5
        assert sum(standing.positions["orders"].values()) >= 50, "sources have their turns"
        assert (len(times) > 5) is commit
        for replica in replicas:
            replica.close()


def test_sources_that_keep_coming_do_not_starve_the_handles(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store, rows_max=1))
        replica.step()
        handles = Handles(store.env, "shop")
        asked = [handles.open(lambda: replica.standing) for _ in range(3)]
        for each in asked:
            handles.freeze(each, commit=True)
        while replica.standing.next_t < 6:
            replica.step()
        assert sorted(replica.standing.closed.values()) == [0, 2, 4]
        replica.close()


def test_handles_are_carried_out_in_the_order_in_which_it_was_asked_for(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        run(replica)
        handles = Handles(store.env, "shop")
        asked = [handles.open(lambda: replica.standing) for _ in range(3)]
        for each in (2, 0, 1):
            lab.clock.now += 1
            handles.freeze(asked[each], commit=True)
        run(replica)
        assert replica.standing.closed == {asked[2]: 10, asked[0]: 11, asked[1]: 12}
        replica.close()


def test_a_source_in_trouble_is_told_and_blocks_no_handle(lab: Lab) -> None:
    class Away(ScriptedSource):
        def plan(self, start, limits):
            raise SourceError("it is away")

    with new_store(lab) as store:
        replica = Replica(replace(rig_of(store), sources={"orders": Away(topic_of())}))
        replica.step()
        handles = Handles(store.env, "shop")
        asked = [handles.open(lambda: replica.standing) for _ in range(3)]
        for each in asked:
            handles.freeze(each, commit=True)
        told = 0
        for _ in range(20):
            try:
                replica.step()
            except SourceError:
                told += 1
        assert sorted(replica.standing.closed.values()) == [0, 1, 2]
        assert told > 2
        replica.close()


@pytest.mark.parametrize("key", [b'{"id": 7}', b'{"schema": {}, "payload": {"id": 7}}', b"7"])
def test_an_inserted_row_heals_the_error_of_a_message_with_its_key(lab: Lab, key: bytes) -> None:
    """The error is known by the key that the message has, the row by its columns."""
    topic = ScriptedTopic(["0"])
    topic.send("0", key, b'{"id": 7, "n": "many"}')
    topic.send("0", b'{"id": 8}', b'{"n": "many"}')
    with new_store(lab) as store:
        replica = Replica(topic_rig(store, topic))
        run(replica)
        errors = store.shard(next(each for each in store.shards() if each.endswith("t_errors")))
        assert errors.snapshot(as_of=0).to_arrow().num_rows == 2
        handles = Handles(store.env, "shop")
        handle = handles.open(lambda: replica.standing)
        given = pa.table({"id": pa.array([7], pa.int64()), "n": pa.array([1], pa.int64())})
        payload = packed_rows(staged_rows(given, replica._rig.program.tables[0], 0))
        handles.insert(handle, 0, "t", payload, 1)
        handles.freeze(handle, commit=True)
        run(replica)
        assert rows(store, "t", 1) == [{"id": 7, "n": 1}]
        assert errors.snapshot(as_of=1).to_arrow()["id"].to_pylist() == [b"8"]
        replica.close()
