"""One replica after another, and several at once: one history."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from strandline.connectors.source import Ports
from strandline.handles.store import Store
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import rigged
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.sources import open_sources
from strandline.system import SystemClock
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store
from strandline.views.parse import parse

TEXT = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '20', deletes '0.1', rows '100', rowsPerSecond '0');
CREATE MATERIALIZED VIEW large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders;
"""
SETTINGS = PipelineSettings(rows_max=10, delay_ms=0)


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def _replica(store: Store, text: str = TEXT) -> Replica:
    program = parse(text)
    sources = open_sources(program, Ports(SystemClock(), str))
    rig = rigged(
        store,
        "shop",
        program,
        text,
        sources=sources,
        computer=ArrowComputer(store),
        settings=SETTINGS,
    )
    return Replica(rig)


def _run(*replicas: Replica) -> None:
    """Take turns until nobody has anything left to do."""
    idle = 0
    while idle < len(replicas):
        idle = 0
        for replica in replicas:
            idle += replica.step() > 0


def _rows(store: Store, name: str, at: int) -> list[dict[str, object]]:
    bound = {each: each for each in store.shards()}
    shard = next(each for each in bound if each.split(".")[1] == name and "_errors" not in each)
    table: pa.Table = store.shard(shard).snapshot(as_of=at).to_arrow()
    return sorted(table.to_pylist(), key=str)


def test_views_are_what_their_queries_say_at_every_time(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = _replica(store)
        _run(replica)
        assert replica.standing.next_t == 10
        for at in range(10):
            orders = _rows(store, "orders", at)
            large = [
                {"id": row["id"], "twice": row["amount"] * 2}
                for row in orders
                if row["amount"] > 10
            ]
            assert _rows(store, "large", at) == sorted(large, key=str)
            amounts = [row["amount"] for row in orders]
            assert _rows(store, "totals", at) == [{"orders": len(orders), "amount": sum(amounts)}]
        replica.close()


def test_two_replicas_make_one_history(lab: Lab) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        first, second = _replica(one), _replica(other)
        _run(first, second)
        assert first.standing.next_t == second.standing.next_t == 10
        with new_store(Lab()) as alone:
            _run(_replica(alone))
            for at in range(10):
                assert _rows(one, "orders", at) == _rows(alone, "orders", at)
        first.close()
        second.close()


def test_whoever_comes_next_finishes_what_is_sealed(lab: Lab) -> None:
    with new_store(lab) as store:
        first = _replica(store)
        while first.standing.sealed is None:
            first.step()
        sealed = first.standing.sealed.t
        first.close()
        second = _replica(store)
        second.step()
        assert second.standing.committed.settled(sealed)
        assert second.standing.sealed is None
        second.close()
