"""Opening for one verb: never creating, and with the next step in every error."""

from __future__ import annotations

import pytest

from strandline.assembly import open_store
from strandline.cli.opening import opened, sight_of
from strandline.errors import NotFoundError, SinceError
from strandline.model.frontier import Frontier


def test_an_error_inside_is_given_the_next_command(filled):
    with pytest.raises(SinceError) as error, opened(filled, "orders"):
        raise SinceError("too old")
    assert error.value.__notes__ == [f"strandline history {filled} orders"]


def test_a_store_that_is_not_there_stays_so(tmp_path):
    with pytest.raises(NotFoundError), opened(str(tmp_path / "lake")):
        pass
    assert not (tmp_path / "lake").exists()


def test_the_store_is_closed_afterwards(filled):
    with opened(filled) as store:
        assert "orders" in store.shards()
    with pytest.raises(Exception, match="was closed"):
        store.machine("orders")


def test_a_shard_on_a_timeline_is_seen_as_its_readers_see_it(tmp_path):
    import pyarrow as pa

    with open_store(str(tmp_path / "lake"), upkeep=False) as store:
        shard = store.shard("a", schema=pa.schema([("x", pa.int64())]))
        timeline = store.timeline("main")
        timeline.attach(shard)
        seen = sight_of(store.machine("a"))
        assert (seen.upper, seen.settled_ms) == (Frontier(0), None)


def test_when_the_newest_time_was_settled_is_known(filled):
    with opened(filled) as store:
        orders, empty = (sight_of(store.machine(name)) for name in ("orders", "empty"))
        assert orders.settled_ms == orders.state.moments[-1].instant_ms
        assert orders.now_ms >= orders.settled_ms
        assert empty.settled_ms is None
