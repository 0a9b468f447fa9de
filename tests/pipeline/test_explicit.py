"""Explicit transactions: together or not at all, and never without their owner's word."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.pipeline.shop import rig_of, rows, run

from strandline.connectors.raw import raw_batch
from strandline.errors import ConflictError
from strandline.journal.handles import Handles
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.replica import Replica
from strandline.testing.lab import Lab, new_store


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
        handle = handles.open(replica.standing)
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
        handle = handles.open(first.standing)
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
        handle = handles.open(replica.standing)
        lab.clock.now += 1_001
        run(replica)
        with pytest.raises(ConflictError, match="aborted"):
            handles.freeze(handle, commit=True)
        assert replica.standing.closed == {handle: None}
        assert replica.standing.next_t == 10
        replica.close()


def test_open_handles_block_neither_checkpoints_nor_each_other(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        replica.step()
        handles = Handles(store.env, "shop")
        first, second = handles.open(replica.standing), handles.open(replica.standing)
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
        handle = handles.open(replica.standing)
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
        handle = handles.open(replica.standing)
        handles.insert(handle, 0, "odrers", _payload(901), 1)
        handles.freeze(handle, commit=True)
        run(replica)
        assert replica.standing.closed == {handle: None}, "it was aborted, and has no time"
        closed = handles.look(handle).closed
        assert closed is not None
        assert "odrers" in closed.reason
        replica.close()
