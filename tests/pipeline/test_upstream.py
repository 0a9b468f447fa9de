"""A pipeline's tables are fed from other shards: what they hold, and what is held for them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import strandline
from strandline.connectors.position import Range
from strandline.connectors.shard import ShardSource, fetch_changes
from strandline.errors import NotFoundError, SchemaError, SourceGoneError, UsageError
from strandline.handles.store import Store
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.states import State
from strandline.pipeline.upstream import Upstream, admitted, hold_name, upstreams
from strandline.shard.state import Retention
from strandline.testing.conformance_source import Stand, check_source
from strandline.testing.engines import arrow_engine

SETTINGS = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=5)
SHOP = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '20', deletes '0.2', rows '60', rowsPerSecond '0');
"""
COPY = """
CREATE TABLE copy (id BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING strandline OPTIONS (shard 'shop.orders');
CREATE TABLE bag (amount BIGINT) USING strandline OPTIONS (shard 'shop.orders');
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM copy WHERE amount > 10;
"""
FEW = pa.schema([("k", pa.int64()), ("v", pa.int64())])
MIRROR = """
CREATE TABLE mirror (k BIGINT, v BIGINT, PRIMARY KEY (k))
  USING strandline OPTIONS (shard 'numbers');
"""


@pytest.fixture
def store() -> Iterator[Store]:
    with strandline.open("memory://", upkeep=False) as opened:
        yield opened


def pipeline(store: Store, name: str, text: str, **settings: object) -> Pipeline:
    used = PipelineSettings(**{"rows_max": 10, "delay_ms": 0, "poll_ms": 5, **settings})
    return store.pipeline(name, text, settings=used, engine=arrow_engine)


def rows(shard: strandline.Shard, *columns: str) -> list[tuple[object, ...]]:
    found = shard.snapshot().to_arrow().select(list(columns)).to_pylist()
    return sorted(tuple(each.values()) for each in found)


def put(store: Store, *updates: tuple[int, int, int], key: bool = True) -> None:
    """Settle one more time of shard `numbers` with these (k, v, diff)."""
    shard = store.shard("numbers", FEW, ["k"] if key else [])
    k, v, diff = zip(*updates, strict=True)
    with shard.writer() as writer:
        writer.append(pa.table({"k": k, "v": v, "_diff": diff}))


def test_tables_follow_the_table_of_another_pipeline_and_its_restarts(store: Store) -> None:
    with pipeline(store, "shop", SHOP) as shop, pipeline(store, "down", COPY) as down:
        shop.run(transactions=2)
        down.run(until_idle=True)
        assert rows(down.table("copy"), "id", "amount") == rows(
            shop.table("orders"), "id", "amount"
        )
    with pipeline(store, "shop", SHOP) as shop, pipeline(store, "down", COPY) as down:
        shop.run(until_idle=True)
        down.run(until_idle=True)
        orders = rows(shop.table("orders"), "id", "amount")
        assert orders
        assert rows(down.table("copy"), "id", "amount") == orders
        assert rows(down.table("bag"), "amount") == sorted((amount,) for _, amount in orders)
        assert rows(down.view("large"), "id", "amount") == [o for o in orders if o[1] > 10]
        assert len(list(down.replay())) == down.status().committed.time
        # Idle times of the shop are no transactions here.
        before = down.committed
        with shop.transaction() as work:
            work.insert("orders", [])
        assert down.run(until_idle=True).committed == before
        assert {each.name: each.behind for each in down.status().endpoints} == {"copy": 0, "bag": 0}


def test_a_real_shard_is_a_source() -> None:
    stores: list[Store] = []

    def stand() -> Stand:
        store = strandline.open("memory://", upkeep=False)
        stores.append(store)
        shard = store.shard("numbers", FEW, ["k"])
        made = iter(range(1_000))

        def grow() -> None:
            for _ in range(2):
                put(store, (next(made), 1, 1), (next(made), 2, 1))

        def forget(taken: Range) -> None:
            for _ in range(taken.parts["t"][1]):
                grow()
            shard.retain(Retention(None, 1))
            shard.compact(full=True)

        return Stand(
            lambda: ShardSource({"shard": "numbers"}, Upstream(store, "numbers")),
            lambda split: fetch_changes(split, Upstream(store, "numbers")),
            grow, forget, counts_rows=False, strict=False,
        )  # fmt: skip

    try:
        check_source(stand)
    finally:
        for each in stores:
            each.close()


def test_only_what_is_new_is_taken_and_deletions_come_too(store: Store) -> None:
    put(store, (1, 10, 1), (2, 20, 1))
    with pipeline(store, "down", MIRROR) as down:
        down.run(until_idle=True)
        put(store, (1, 10, -1), (1, 11, 1))
        put(store, (2, 20, -1), (3, 30, 1))
        down.run(until_idle=True)
        assert rows(down.table("mirror"), "k", "v") == [(1, 11), (3, 30)]
        assert [each.rows for each in down.history()] == [3, 2]


def test_history_is_held_upstream_at_what_was_acknowledged(store: Store) -> None:
    """Retention that would overtake a reader waits for it; removing the table lets it go."""
    name = hold_name("down", "mirror")
    put(store, (1, 1, 1))
    numbers = store.shard("numbers")
    numbers.retain(Retention(None, 1))
    with pipeline(store, "down", MIRROR) as down:
        down.run(until_idle=True)
        held = numbers.state().holds[name]
        assert (held.since, "down" in held.note) == (0, True)
        for value in range(2, 9):
            put(store, (1, value - 1, -1), (1, value, 1))
        numbers.compact(full=True)
        assert numbers.since.time == 0
        down.run(until_idle=True)
        assert rows(down.table("mirror"), "k", "v") == [(1, 8)]
        # It stopped with a checkpoint, so what it took is acknowledged.
        assert numbers.state().holds[name].since == 7
    other = "CREATE TABLE other (k BIGINT, PRIMARY KEY (k)) USING http;"
    with pipeline(store, "down", other) as changed:
        changed.promote()
        changed.run(until_idle=True)
    assert name not in numbers.state().holds
    assert "pipeline.down" in store.shard("down.other").state().holds


HTTP = "CREATE TABLE mirror (k BIGINT, v BIGINT, PRIMARY KEY (k)) USING http;"


def test_a_table_that_is_fed_otherwise_lets_go_of_its_shard(store: Store) -> None:
    put(store, (1, 1, 1))
    numbers = store.shard("numbers")
    with pipeline(store, "down", MIRROR) as down:
        down.run(until_idle=True)
    assert hold_name("down", "mirror") in numbers.state().holds
    with pipeline(store, "down", HTTP) as down:
        down.promote()
        down.run(until_idle=True)
    assert not numbers.state().holds


def test_what_is_held_late_is_let_go_at_the_next_checkpoint(store: Store) -> None:
    """A replica of before was paused on its way to a hold, and takes it after the promotion."""
    put(store, (1, 1, 1))
    numbers = store.shard("numbers")
    with pipeline(store, "down", HTTP) as down:
        down.run(until_idle=True)
        for reads, name in (("down", "mirror"), ("down", "old"), ("down.x", "mirror")):
            upstreams(store, reads)(name)("numbers").hold(0)
        numbers.hold("mine", 0)
        down.checkpoint()
    assert set(numbers.state().holds) == {"source.down.x.mirror", "mine"}


def test_a_reader_that_was_overtaken_says_so_and_takes_nothing(store: Store) -> None:
    put(store, (1, 1, 1))
    numbers = store.shard("numbers")
    with pipeline(store, "down", MIRROR) as down:
        down.run(until_idle=True)
        numbers.release_hold(hold_name("down", "mirror"))
        numbers.retain(Retention(None, 1))
        for value in range(2, 5):
            put(store, (1, value - 1, -1), (1, value, 1))
        numbers.compact(full=True)
        with pytest.raises(SourceGoneError, match="'numbers' has merged its history up to"):
            down.run(until_idle=True)
        status = down.status()
        assert (status.state, status.sealed) == (State.FAILED, None)
        assert "merged its history" in status.cause
        assert rows(down.table("mirror"), "k", "v") == [(1, 1)]


def test_a_transaction_sealed_before_a_crash_is_finished_although_upstream_would_forget(
    store: Store,
) -> None:
    put(store, (1, 1, 1))
    numbers = store.shard("numbers")
    numbers.retain(Retention(None, 1))
    with pipeline(store, "down", MIRROR) as down:
        while down.committed.time == 0 and not numbers.state().holds:
            down.step()
        # It is sealed, nothing is computed, and this process is gone.
    for value in range(2, 6):
        put(store, (1, value - 1, -1), (1, value, 1))
    numbers.compact(full=True)
    with pipeline(store, "down", MIRROR) as again:
        again.run(until_idle=True)
        early = again.table("mirror").snapshot(as_of=0).to_arrow().to_pylist()
        assert early == [{"k": 1, "v": 1}]
        assert rows(again.table("mirror"), "k", "v") == [(1, 5)]


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("t (k BIGINT) USING strandline OPTIONS (shard 'nowhere')", NotFoundError, "nowhere"),
        ("t (x BIGINT) USING strandline OPTIONS (shard 'numbers')", SchemaError, "no column 'x'"),
        ("t (k BIGINT, v BIGINT, PRIMARY KEY (v)) USING strandline OPTIONS (shard 'numbers')",
         SchemaError, "has the key .k."),
        ("t (k BIGINT, PRIMARY KEY (k)) USING strandline OPTIONS (envelope 'debezium', shard 's')",
         UsageError, "rows and no messages"),
    ],
)  # fmt: skip
def test_a_shard_that_does_not_fit_is_refused_by_name(
    store: Store, text: str, error: type[Exception], reason: str
) -> None:
    put(store, (1, 1, 1))
    with (
        pipeline(store, "down", f"CREATE TABLE {text};") as down,
        pytest.raises(error, match=reason),
    ):
        down.run(until_idle=True)


def test_a_pipeline_does_not_read_its_own_tables(store: Store) -> None:
    with pipeline(store, "shop", SHOP) as shop:
        shop.run(transactions=1)
    text = SHOP + "CREATE TABLE again (id BIGINT) USING strandline OPTIONS (shard 'shop.orders');"
    with (
        pipeline(store, "shop", text) as shop,
        pytest.raises(UsageError, match="which this pipeline writes: make it a view"),
    ):
        shop.run(until_idle=True)


def test_rows_limit_a_range_by_what_the_metadata_says(store: Store) -> None:
    for value in range(6):
        put(store, *((value * 10 + at, at, 1) for at in range(4)))
    state = store.shard("numbers").state()
    assert [admitted(state, (0, 6), most) for most in (1, 4, 9, 24, 99)] == [1, 1, 2, 6, 6]
    assert admitted(state, (3, 6), 8) == 5
    with pipeline(store, "down", MIRROR, rows_max=8) as down:
        down.run(until_idle=True)
        assert [each.rows for each in down.history()] == [4, 8, 8, 4]


VIEW = "CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > {};"


def test_a_view_that_was_replaced_upstream_is_not_taken_for_one_that_is_up_to_date(
    store: Store,
) -> None:
    def promoted(limit: int) -> str:
        with pipeline(store, "shop", SHOP + VIEW.format(limit)) as shop:
            if store.shards():
                shop.promote()
            shop.run(until_idle=True)
            return shop.view("large").name

    old = promoted(10)
    text = f"CREATE TABLE copy (id BIGINT, amount BIGINT) USING strandline OPTIONS (shard '{old}');"
    with pipeline(store, "books", text) as books:
        books.run(until_idle=True)
        assert rows(books.table("copy"), "id") == rows(store.shard(old), "id")
    new = promoted(20)
    with (
        pipeline(store, "books", text) as books,
        pytest.raises(SourceGoneError, match=f"{old}.* pipeline shop means {new} by large since"),
    ):
        books.run(until_idle=True)
    assert promoted(10) == old
    with pipeline(store, "books", text) as books:
        books.run(until_idle=True)
        assert rows(books.table("copy"), "id") == rows(store.shard(old), "id")


def test_shards_of_others_are_not_looked_at_to_find_what_is_held(store: Store) -> None:
    put(store, (1, 1, 1))
    for number in range(3):
        store.shard(f"others.t{number}", FEW, ["k"])
    seen: list[str] = []

    class Watched(type(store.env.consensus)):  # type: ignore[misc]
        def head(self, key: str) -> object:
            seen.append(key)
            return super().head(key)

        def scan(self, key: str, *rest: object) -> object:
            seen.append(key)
            return super().scan(key, *rest)

    store.env.consensus.__class__ = Watched
    with pipeline(store, "down", MIRROR) as down:
        down.run(until_idle=True)
        down.checkpoint()
    assert "shard/numbers" in seen
    assert not [key for key in seen if key.startswith("shard/others.")]
