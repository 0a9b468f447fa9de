"""One replica of an ingest: how it starts, ends, fails, spills and takes over."""

import pyarrow as pa
import pytest

from strandline.errors import ReplicaDivergedError, SchemaError, SinceError, UsageError
from strandline.ingest.feed import Polled
from strandline.ingest.health import Health
from strandline.ingest.road import ArrowRoad
from strandline.ingest.upserter import Options, Upserter
from strandline.model.frontier import Frontier
from strandline.testing.lab import new_store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


class Feed:
    """Gives out what the test has put, once."""

    def __init__(self) -> None:
        self.put: list[tuple[pa.Table | None, int | None]] = []
        self.last = Polled(None, Frontier(0))
        self.since = Frontier(0)
        self.wants = []

    def give(self, *rows, frontier):
        found = [dict(zip(("_time", "k", "v"), row, strict=True)) for row in rows]
        layout = pa.schema([*SCHEMA, ("_time", pa.int64())])
        self.put.append((pa.Table.from_pylist(found, schema=layout), frontier))

    def poll(self, want):
        self.wants.append(want)
        commands, frontier = self.put.pop(0) if self.put else (None, self.last.frontier.time)
        self.last = Polled(commands, Frontier(frontier), self.since)
        return self.last

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def store(lab):
    with new_store(lab) as opened:
        yield opened


@pytest.fixture
def shard(store):
    return store.shard("t", SCHEMA, ["k"])


@pytest.fixture
def feed():
    return Feed()


def content(shard, time):
    return sorted(tuple(row.values()) for row in shard.snapshot(time).to_arrow().to_pylist())


def test_an_input_that_ends_closes_the_output_and_ends_the_run(store, shard, feed):
    feed.give((0, 1, "a"), frontier=2)
    feed.give((3, 1, "b"), frontier=None)
    with Upserter(store, shard, feed) as upserter:
        status = upserter.run()
    assert (status.health, status.restarts) == (Health.CLOSED, 0)
    assert shard.upper.is_closed
    assert (content(shard, 2), content(shard, 3)) == ([(1, "a")], [(1, "b")])


def test_a_second_run_is_a_restart_and_is_counted(store, shard, feed):
    with Upserter(store, shard, feed) as upserter:
        upserter.stop()
        assert upserter.run().restarts == 0
        upserter.stop()
        assert upserter.run().restarts == 1


def test_a_run_can_be_cancelled(store, shard, feed):
    cancel = store.cancel()
    cancel.cancel()
    with Upserter(store, shard, feed) as upserter:
        assert upserter.run(cancel).health is Health.CLOSED


def test_a_shard_without_a_key_is_refused(store, feed):
    with pytest.raises(UsageError, match="has no key"):
        Upserter(store, store.shard("plain", SCHEMA), feed)


def test_without_a_collection_of_errors_a_bad_command_stops_it_by_name(store, shard, feed):
    feed.give((0, None, "a"), frontier=1)
    with Upserter(store, shard, feed) as upserter:
        with pytest.raises(SchemaError, match="a column of the key is null"):
            upserter.run()
        assert upserter.status().health is Health.FAILED
    assert shard.upper == Frontier(0)


def test_a_lagging_collection_of_errors_is_caught_up_and_new_times_are_past_the_table(
    store, shard, feed
):
    with shard.writer() as writer:
        writer.advance(10)
    feed.give((10, 1, "a"), frontier=11)
    with Upserter(store, shard, feed, Options(errors="t_errors")) as upserter:
        upserter.step()
        assert upserter.upper == Frontier(11)
    assert (feed.wants[0].needed, feed.wants[0].reached) == (Frontier(0), Frontier(10))
    assert store.shard("t_errors").upper == Frontier(11)


def test_more_than_fits_is_spilled_to_a_temporary_folder_that_goes(
    store, shard, feed, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    feed.give(*((time, time, "x" * 100) for time in range(50)), frontier=0)
    options = Options(memory_bytes=1_000, limit_bytes=1_000)
    with Upserter(store, shard, feed, options) as upserter:
        upserter.step()
        status = upserter.status()
        assert status.buffered_bytes <= 1_000
        assert status.spilled_bytes > 0
        assert list(tmp_path.iterdir())
        feed.give(frontier=50)
        while upserter.upper < Frontier(50):
            upserter.step()
    assert [k for k, _ in content(shard, 49)] == list(range(50))
    assert list(tmp_path.iterdir()) == []


def test_what_is_held_is_settled_before_more_is_taken_in(store, shard, feed):
    feed.give(*((time, time, "x" * 100) for time in range(20)), frontier=20)
    feed.give((20, 20, "y"), frontier=21)
    options = Options(memory_bytes=500, limit_bytes=300)
    with Upserter(store, shard, feed, options) as upserter:
        while upserter.upper < Frontier(21):
            upserter.step()
            # Beside what is spilled, one interval and what came back with it is in memory.
            assert upserter.status().buffered_bytes < 20 * 200
    assert len(content(shard, 20)) == 21


def test_a_read_only_one_writes_nothing_until_it_is_promoted(store, shard, feed, lab):
    feed.give((0, 1, "a"), frontier=1)
    with new_store(lab) as other, Upserter(other, other.shard("t"), Feed(), Options()) as peer:
        with Upserter(store, shard, feed, Options(read_only=True)) as upserter:
            upserter.step()
            assert not feed.wants[0].binds
            assert shard.upper == Frontier(0)
            upserter.promote(1)
            upserter.step()
            assert feed.wants[-1].binds
        assert shard.upper == Frontier(1)
        assert peer.run().health is Health.FENCED


def test_a_read_only_one_is_told_when_others_have_settled_something_else(store, shard, feed):
    peer = ArrowRoad(shard)
    peer.settle(pa.table({"k": [1], "v": ["other"], "_time": [0]}), 0, Frontier(1))
    peer.close()
    feed.give((0, 1, "a"), frontier=1)
    with Upserter(store, shard, feed, Options(read_only=True)) as upserter:
        with pytest.raises(ReplicaDivergedError):
            upserter.run()
        assert upserter.status().health is Health.FAILED


def test_an_input_that_has_forgotten_what_is_not_settled_is_told_and_not_skipped(
    store, shard, feed
):
    feed.since = Frontier(5)
    feed.give((7, 1, "a"), frontier=8)
    with Upserter(store, shard, feed) as upserter:
        with pytest.raises(SinceError, match="reload"):
            upserter.step()
        assert shard.upper == Frontier(0)
        # Somebody else had settled it, and this one had only not seen that yet.
        peer = ArrowRoad(shard)
        peer.settle(None, 0, Frontier(5))
        peer.close()
        upserter.step()
        assert content(shard, 7) == [(1, "a")], "what came with the error was kept"


def test_another_road_can_compute(store, shard, feed):
    used = []

    def road(target, epoch):
        used.append((target.name, epoch))
        return ArrowRoad(target, epoch=epoch)

    feed.give((0, 1, "a"), frontier=1)
    with Upserter(store, shard, feed, Options(road=road, epoch=4)) as upserter:
        upserter.step()
    assert used == [("t", 4)]
    assert content(shard, 0) == [(1, "a")]


def test_status_can_be_asked_by_another_task_while_a_turn_changes_everything(
    store, shard, feed, monkeypatch
):
    feed.give((3, 1, "a"), (4, 2, "b"), frontier=0)
    with Upserter(store, shard, feed) as upserter:
        upserter.step()
        with monkeypatch.context() as context:
            context.setattr(upserter.table, "stash", None)
            status = upserter.status()
        assert (status.oldest, status.spilled_bytes) == (3, 0)
        assert status.buffered_bytes > 0


def test_closing_lets_go_of_the_rest_if_one_fails(store, shard, feed, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def refuse():
        raise UsageError("not now")

    feed.close = refuse
    upserter = Upserter(store, shard, feed)
    upserter._temporary.blob()
    with pytest.raises(UsageError):
        upserter.close()
    assert list(tmp_path.iterdir()) == []
