"""Roles around a pipeline: replicas that run the real loop, whoever feeds it, and who looks on.

A shop has one topic of orders, which feeders write and every replica reads. What was sent, and
what owners of explicit transactions did, is remembered here, outside of every process; in the end
the whole history is computed again in plain Python and compared at every time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.raw import raw_batch
from strandline.errors import ConflictError, FencedError, JournalError, NotFoundError, StoreError
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.journal.next import Want
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import recorded, replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import rigged
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.checkers import HistoryError
from strandline.testing.computing import ArrowComputer
from strandline.testing.roles import repeat
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.views.parse import parse

if TYPE_CHECKING:
    from strandline.handles.store import Store
    from strandline.journal.standing import Standing
    from strandline.pipeline.rig import Rig
    from strandline.testing.roles import Role
    from strandline.testing.world import Host, World

NAME = "shop"
TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW large AS SELECT id, amount + 1 AS more FROM orders WHERE amount > 3;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders;
"""
_KEYS = 5
_Row = dict[str, int | None]


@dataclass
class Shop:
    """What outlives every process of a history."""

    topic: ScriptedTopic = field(default_factory=lambda: ScriptedTopic(["0", "1"]))
    inserted: dict[str, list[_Row]] = field(default_factory=dict)
    """What each explicit handle's owner staged, and was told that it is."""
    asked: set[str] = field(default_factory=set)
    """Handles whose owner asked for the commit, or may have."""
    promised: set[str] = field(default_factory=set)
    """Handles whose owner was told that it is asked for."""
    sent: int = 0
    fed: bool = False
    """Nothing more is sent."""
    seen: dict[tuple[str, int], list[_Row]] = field(default_factory=dict)
    """What readers saw of a collection at a time."""
    wrong: list[str] = field(default_factory=list)


def rig_of(shop: Shop, store: Store, settings: PipelineSettings) -> Rig:
    program = parse(TEXT)
    return rigged(
        store,
        NAME,
        program,
        TEXT,
        sources={"orders": ScriptedSource(shop.topic)},
        computer=ArrowComputer(store, fetch=shop.topic.fetch),
        settings=settings,
    )


def feeder(shop: Shop) -> Role:
    """Sends orders and deletions of a few keys, while faults last."""

    def run(process: Host) -> None:
        while process.running():
            key = process.random.randrange(_KEYS)
            shop.sent += 1
            value = None if process.random.random() < 0.2 else _value(key, shop.sent % 9)
            # A key's records are in one partition, as in any topic.
            shop.topic.send(str(key % 2), str(key).encode(), value)
            process.sleep(60)
        shop.fed = True

    return run


def replica(shop: Shop) -> Role:
    """Runs the pipeline in this process, in all of its lives."""

    def run(process: Host) -> None:
        settings = PipelineSettings(rows_max=3, delay_ms=40, poll_ms=20, handle_ttl_ms=3_000)
        running = Replica(rig_of(shop, process.store, settings))

        def step() -> None:
            nonlocal running
            if process.random.random() < 0.03:
                running.want(Want.CHECKPOINT)
            try:
                if running.step() > 0:
                    process.sleep(40)
            except FencedError:
                running.close()
                running = Replica(rig_of(shop, process.store, settings))
            except Exception:
                running.renew()
                raise

        repeat(process, step, pause_ms=5)
        _drain(shop, process, running)
        running.close()

    return run


def _drain(shop: Shop, process: Host, running: Replica) -> None:
    """When peace has come, go on until nothing more is sent and all that was is committed."""
    for _ in range(5_000):
        try:
            rest_ms = running.step()
        except StoreError:
            running.renew()
            rest_ms = 100
        if rest_ms > 0:
            if shop.fed and running.standing.sealed is None and _taken(shop, running.standing):
                return
            process.sleep(rest_ms)
    raise HistoryError(f"{process.name} still has work after 5,000 steps of peace")


def _taken(shop: Shop, standing: Standing) -> bool:
    sent = {partition: end for partition, end in shop.topic.ends.items() if end}
    return standing.positions.get("orders", {}) == sent


def shopper(shop: Shop) -> Role:
    """Owns explicit transactions: commits some, aborts some, leaves some open."""

    def run(process: Host) -> None:
        handles = Handles(process.store.env, NAME)
        while process.running():
            try:
                _shopping(shop, process, handles)
            except (StoreError, ConflictError, NotFoundError) as error:
                process.world.sim.sometimes(f"a shopper: {type(error).__name__}")
            process.sleep(400)

    return run


def _shopping(shop: Shop, process: Host, handles: Handles) -> None:
    """One transaction; chunks whose answer got lost are sent again."""
    handle = handles.open(Journal(process.store.env, NAME).refresh())
    shop.inserted[handle] = []
    for chunk in range(process.random.randrange(1, 3)):
        key = 100 + process.random.randrange(3)
        row: _Row = {"id": key, "amount": process.random.randrange(9)}
        shop.inserted[handle].append(row)
        for _ in range(process.random.randrange(1, 3)):
            handles.insert(handle, chunk, "orders", _payload(row, chunk), 1)
    drawn = process.random.random()
    if drawn < 0.6:
        shop.asked.add(handle)
        handles.freeze(handle, commit=True)
        shop.promised.add(handle)
    elif drawn < 0.8:
        handles.freeze(handle, commit=False)


def looker(shop: Shop) -> Role:
    """Reads the collections at their newest time: what it sees must never change."""

    def run(process: Host) -> None:
        def step() -> None:
            try:
                names = _shards(process.store)
                for name, shard in names.items():
                    with process.store.shard(shard).snapshot() as snapshot:
                        found = _sorted(snapshot.to_arrow())
                        at = snapshot.as_of
                    known = shop.seen.setdefault((name, at), found)
                    if known != found:
                        shop.wrong.append(f"{name} at {at} was {known} and is {found}")
            except (NotFoundError, JournalError, KeyError):
                process.sleep(50)

        repeat(process, step, pause_ms=150)

    return run


def pipelines(world: World) -> None:
    """Two replicas, a feeder, a shopper and a reader."""
    shop = Shop()
    world.batches[NAME] = shop  # type: ignore[assignment]  # what a history keeps, whatever it is
    world.start("f1", feeder(shop))
    world.start("a", replica(shop))
    world.start("b", replica(shop))
    world.start("s1", shopper(shop))
    world.start("l1", looker(shop))


def judge(world: World) -> None:
    """Compute the whole history again, in plain Python and by replay, and compare at each time."""
    shop: Shop = world.batches[NAME]  # type: ignore[assignment]
    wrong = list(shop.wrong)

    def look(process: Host) -> None:
        process.heal()
        wrong.extend(_differences(shop, process.store))

    world.start("judge", look)
    world.sim.run_until(world.all_done)
    if wrong:
        raise HistoryError("\n".join(f"pipeline: {what}" for what in wrong[:10]))


def _differences(shop: Shop, store: Store) -> list[str]:
    rig = rig_of(shop, store, PipelineSettings())
    standing = rig.journal.refresh()
    wrong = []
    if standing.sealed is not None:
        wrong.append(f"{standing.sealed.t} is sealed and nobody finished it")
    if not _taken(shop, standing):
        wrong.append(f"{shop.topic.ends} was sent and {standing.positions} is committed")
    wrong += _handles(shop, rig.journal)
    expected = history(shop, rig.journal)
    if len(expected) != standing.next_t:
        wrong.append(f"{len(expected)} transactions are on record, {standing.next_t} are committed")
    wrong += _contents(shop, store, expected)
    if not wrong:
        list(replay(rig, Planner(rig), 0, standing.next_t))
    return wrong


def _contents(shop: Shop, store: Store, expected: list[dict[int, int]]) -> list[str]:
    """What each collection is at each time, and what was seen of it, against what it should be."""
    wrong = []
    shards = _shards(store) if expected else {}
    for at, orders in enumerate(expected):
        for name, rows in _collections(orders).items():
            with store.shard(shards[name]).snapshot(as_of=at) as snapshot:
                found = _sorted(snapshot.to_arrow())
            seen = shop.seen.get((name, at), rows)
            if found != rows or seen != rows:
                wrong.append(f"{name} at {at} is {found}, was {seen}, and should be {rows}")
    return wrong


def _handles(shop: Shop, journal: Journal) -> list[str]:
    """The journal may have forgotten which ones it closed; its records have not."""
    found = recorded(journal, 0, journal.refresh().next_t)
    order = [each.sealed.begin.handle for each in found if each.sealed.begin.handle is not None]
    committed = set(order)
    wrong = [f"{each} was committed unasked" for each in committed - shop.asked]
    wrong += [f"{each} was committed twice" for each in committed if order.count(each) > 1]
    return wrong + [f"{each} was not committed" for each in shop.promised - committed]


def history(shop: Shop, journal: Journal) -> list[dict[int, int]]:
    """The orders at each time, from what was sent and from which of it each transaction took."""
    orders: dict[int, int] = {}
    found = []
    for each in recorded(journal, 0, journal.refresh().next_t):
        for taken in each.sealed.inputs:
            for partition, (start, stop) in sorted((taken.taken or {}).items()):
                for offset in range(start, stop):
                    _apply(orders, *shop.topic.record(partition, offset))
        if each.sealed.begin.handle is not None:
            for row in shop.inserted[each.sealed.begin.handle]:
                orders[row["id"] or 0] = row["amount"] or 0
        found.append(dict(orders))
    return found


def _apply(orders: dict[int, int], key: bytes | None, value: bytes | None) -> None:
    if value is None:
        orders.pop(int(key or b"0"), None)
    else:
        row = json.loads(value)
        orders[row["id"]] = row["amount"]


def _collections(orders: dict[int, int]) -> dict[str, list[_Row]]:
    rows: list[_Row] = [{"id": key, "amount": orders[key]} for key in orders]
    large: list[_Row] = [{"id": k, "more": orders[k] + 1} for k in orders if orders[k] > 3]
    amount = sum(orders.values()) if orders else None
    totals: list[_Row] = [{"orders": len(orders), "amount": amount}]
    found = {"orders": rows, "large": large, "totals": totals}
    return {name: sorted(each, key=str) for name, each in found.items()}


def _shards(store: Store) -> dict[str, str]:
    standing = Journal(store.env, NAME).refresh()
    names = ("orders", "large", "totals")
    return {name: standing.bindings[name].shard for name in names}


def _sorted(table: pa.Table) -> list[_Row]:
    rows: list[_Row] = table.to_pylist()
    return sorted(rows, key=str)


def _value(key: int, amount: int) -> bytes:
    return json.dumps({"id": key, "amount": amount}).encode()


def _payload(row: _Row, chunk: int) -> bytes:
    """What comes later in a transaction wins, so a chunk's number is its rows' place."""
    batch = raw_batch([json.dumps(row).encode()], "0", [chunk])
    return packed_rows(pa.Table.from_batches([batch]))
