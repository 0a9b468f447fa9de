"""Tests of the shard handle."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from strandline.errors import (
    ConflictError,
    FencedError,
    HandleClosedError,
    NameRefusedError,
    SchemaError,
    SinceError,
    UsageError,
)
from strandline.handles.shard import Shard
from strandline.handles.write import Appended
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.state import Retention
from strandline.testing.lab import COLUMNS, Lab, new_store, rows


@pytest.fixture
def shard(lab: Lab) -> Iterator[Shard]:
    with new_store(lab) as store:
        opened = store.shard("orders", schema=COLUMNS, key=["id"])
        with opened.writer() as writer:
            for number in range(5):
                lab.clock.now += 1_000
                writer.append(rows(number))
        yield opened


def test_frontiers_and_schema_are_read(shard: Shard) -> None:
    assert (shard.name, shard.key) == ("orders", ("id",))
    assert shard.schema.names == ["id", "name"]
    assert shard.upper == Frontier(5)
    assert shard.since == Frontier(0)
    assert shard.wait_past(4) == Frontier(5)


def test_a_reader_keeps_history_readable(lab: Lab, shard: Shard) -> None:
    shard.retain("1 version")
    with shard.reader(since=2) as reader:
        shard.compact()
        assert shard.since == Frontier(2)
        assert reader.snapshot(2).count() == 3
        reader.downgrade(3, durable=True)
        assert reader.since == 3
        with reader.clone() as clone:
            assert clone.since == 3
            assert clone.id != reader.id
    shard.compact()
    assert shard.since == Frontier(4)
    with pytest.raises(SinceError, match="oldest"):
        shard.snapshot(2)
    with pytest.raises(HandleClosedError):
        reader.snapshot(4)


def test_without_since_a_reader_holds_what_is_readable_now(shard: Shard) -> None:
    shard.retain("1 version")
    shard.compact()
    with shard.reader() as reader:
        assert reader.since == 4


def test_critical_holds_stay_until_they_are_released(shard: Shard) -> None:
    shard.retain("1 version")
    shard.hold("audit", 1, epoch=2, note="year end")
    shard.compact()
    assert shard.since == Frontier(1)
    with pytest.raises(FencedError):
        shard.release_hold("audit", epoch=1)
    shard.release_hold("audit", epoch=2)
    shard.compact()
    assert shard.since == Frontier(4)


def test_an_epoch_fences_older_ones(shard: Shard) -> None:
    shard.fence(3)
    with shard.writer() as writer:
        with pytest.raises(FencedError):
            writer.compare_and_append(rows(9), lower=5, upper=6, epoch=2)
        assert isinstance(writer.compare_and_append(rows(9), lower=5, upper=6, epoch=3), Appended)


def test_retention_is_what_people_write(shard: Shard) -> None:
    shard.retain("2s or 1 version")
    assert shard.state().retention == Retention(2_000, 1)
    with pytest.raises(UsageError, match="not understood"):
        shard.retain("a while")


def test_a_schema_grows_and_old_rows_follow(shard: Shard) -> None:
    wider = pa.schema([*COLUMNS, ("note", pa.string())])
    shard.evolve(wider)
    shard.evolve(wider)
    assert shard.schema.names == ["id", "name", "note"]
    assert shard.snapshot(4).to_arrow().column("note").null_count == 5
    with pytest.raises(SchemaError):
        shard.evolve(pa.schema([("id", pa.int64())]))


def test_it_shows_itself(shard: Shard) -> None:
    assert repr(shard).startswith("<Shard orders since={0} upper={5}")
    assert "<th>shard</th><td>orders</td>" in shard._repr_html_()


def test_changes_follow_a_snapshot_without_gap(shard: Shard) -> None:
    seen: list[tuple[int, int]] = []
    with shard.subscribe(as_of=1, until=5) as subscription:
        for event in subscription:
            table = getattr(event, "rows", None)
            if table is not None:
                seen += zip(table["id"].to_pylist(), table["_time"].to_pylist(), strict=True)
    assert sorted(seen) == [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4)]
    with shard.listen(as_of=3, until=5) as listening:
        tables = [event.rows for event in listening if hasattr(event, "rows")]
    assert [table["id"].to_pylist() for table in tables] == [[4]]


def test_an_application_is_known_until_it_is_forgotten_by_name(shard: Shard) -> None:
    assert shard.txn("query") is None
    with shard.writer() as writer:
        writer.append(rows(7), txn=("query", 3))
        assert shard.txn("query") == 3
        assert shard.forget_txn("query") == 3
        assert shard.forget_txn("query") is None
        assert isinstance(writer.append(rows(7), txn=("query", 3)), Appended)
    with pytest.raises(NameRefusedError, match="application name"):
        shard.forget_txn("a\nb")


def test_an_application_that_goes_on_meanwhile_is_not_forgotten(shard: Shard) -> None:
    with shard.writer() as writer:
        writer.append(rows(7), txn=("query", 0))
        seen = shard.state()
        writer.append(rows(8), txn=("query", 1))
        with pytest.raises(ConflictError, match="look again"):
            shard.machine.demand(c.ForgetTxn("query", seen.txns["query"].seqno))
    assert shard.txn("query") == 1


def test_a_term_outlives_its_process_and_ends_by_the_stores_clock(lab: Lab, shard: Shard) -> None:
    """What it pinned can be read until then, by whoever knows the names of its objects."""
    with new_store(lab) as planner:
        hold = planner.shard("orders").term_reader(2, term_ms=60_000, purpose="a plan")
        state = planner.shard("orders").state()
        assert hold.until_ms == lab.clock.now + 60_000
        assert (hold.since, hold.seqno) == (2, state.readers[hold.id].seqno)
    keys = [key for batch in state.batches for key in batch.object_keys()]
    shard.retain("1 version")
    for now_ms in (lab.clock.now, hold.until_ms - 1):
        lab.clock.now = now_ms
        shard.compact(full=True)
        assert shard.since == Frontier(2)
        assert shard.snapshot(2).count() == 3
        assert all(lab.blob.get(key) is not None for key in keys)
    lab.clock.now = hold.until_ms
    shard.compact(full=True)
    shard.compact(full=True)
    assert shard.since == Frontier(4)
    assert hold.id not in shard.state().readers


def test_a_term_is_given_back_early_by_its_id_from_any_process(lab: Lab, shard: Shard) -> None:
    hold = shard.term_reader(term_ms=60_000)
    assert hold.since == 0
    with new_store(lab) as other, shard.reader(3) as leased:
        handle = other.shard("orders")
        handle.end_term(hold.id)
        handle.end_term(hold.id)
        assert hold.id not in shard.state().readers
        with pytest.raises(UsageError, match="has no term"):
            handle.end_term(leased.id)
        with pytest.raises(NameRefusedError):
            handle.end_term("quarter")


def test_terms_that_can_not_be_are_refused(shard: Shard) -> None:
    with pytest.raises(UsageError, match="30 days"):
        shard.term_reader(term_ms=0)
    shard.retain("1 version")
    shard.compact()
    with pytest.raises(SinceError, match="oldest"):
        shard.term_reader(2, term_ms=60_000)
    assert shard.state().terms() == {}
