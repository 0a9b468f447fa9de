"""Roles around a pipeline: replicas that run the real loop, whoever feeds it, and who looks on.

A shop has one topic of orders, which feeders write and every replica reads. What was sent, and
what owners of explicit transactions did, is remembered here, outside of every process; in the end
the whole history is computed again in plain Python and compared at every time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.errors import (
    ConflictError,
    FencedError,
    JournalError,
    LeaseLostError,
    NotFoundError,
    StoreError,
    UsageError,
)
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.journal.next import Want
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import recorded, replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import rigged
from strandline.pipeline.rows import staged_rows
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.checkers import HistoryError
from strandline.testing.computing import ArrowComputer
from strandline.testing.roles import repeat
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.views.parse import parse

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.handles.store import Store
    from strandline.journal.record import Input
    from strandline.journal.standing import Standing
    from strandline.pipeline.rig import Rig
    from strandline.testing.roles import Role
    from strandline.testing.world import Host, World

NAME = "shop"
TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, seq BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (sequenceBy 'seq');
CREATE MATERIALIZED VIEW large AS SELECT id, amount + 1 AS more FROM orders WHERE amount > 3;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders;
"""
LATER = TEXT.replace("amount > 3", "amount > 6")
"""The program that some histories are switched to."""
_LIMITS = {parse(TEXT).hash: 3, parse(LATER).hash: 6}
_TABLE = parse(TEXT).tables[0]
_SETTINGS = PipelineSettings(rows_max=3, delay_ms=40, poll_ms=20, handle_ttl_ms=3_000)
_SWITCHED = (FencedError, UsageError)
_KEYS = 5
_SAMPLED = 6
"""At so many times everything is read once more in the end."""
_Row = dict[str, int | None]
_Stored = dict[int, tuple[int, int | None]]
"""What a key holds, by its sequence: a tombstone has one, too."""


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
    text: str = TEXT
    """The program that replicas are started with."""
    sent: int = 0
    fed: bool = False
    """Nothing more is sent."""
    seen: dict[tuple[str, int], list[_Row]] = field(default_factory=dict)
    """What readers saw of a shard at a time."""
    wrong: list[str] = field(default_factory=list)


def rig_of(shop: Shop, store: Store, settings: PipelineSettings, text: str | None = None) -> Rig:
    text = shop.text if text is None else text
    program = parse(text)
    return rigged(
        store,
        NAME,
        program,
        text,
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
            # Some come late: what a key holds by then, or held when it went, is newer.
            late = 37 if process.random.random() < 0.2 else 0
            row = {"id": key, "amount": shop.sent % 9, "seq": 100 + shop.sent * 10 - late}
            if process.random.random() < 0.25:
                row["_delete"] = True
            # A key's records are in one partition, as in any topic.
            shop.topic.send(str(key % 2), str(key).encode(), json.dumps(row).encode())
            process.sleep(60)
        shop.fed = True

    return run


def replica(shop: Shop) -> Role:
    """Runs the pipeline in this process, in all of its lives."""

    def run(process: Host) -> None:
        running = _Running(shop, process)
        repeat(process, running.step, pause_ms=5)
        for _ in range(5_000):
            try:
                running.step()
            except (StoreError, LeaseLostError):
                process.sleep(100)
            if running.done():
                running.replica.close()
                return
        raise HistoryError(f"{process.name} still has work after 5,000 steps of peace")

    return run


class _Running:
    """A replica that is started again when another program was promoted."""

    def __init__(self, shop: Shop, process: Host) -> None:
        self._shop = shop
        self._process = process
        self.replica = Replica(rig_of(shop, process.store, _SETTINGS))

    def step(self) -> None:
        if self._process.random.random() < 0.03:
            self.replica.want(Want.CHECKPOINT)
        try:
            if self.replica.step() > 0:
                self._process.sleep(40)
        except _SWITCHED:
            # Another program was promoted, or is about to be told to this process.
            self.replica.close()
            self._process.sleep(40)
            self.replica = Replica(rig_of(self._shop, self._process.store, _SETTINGS))
        except Exception:
            self.replica.renew()
            raise

    def done(self) -> bool:
        """Nothing more is sent, and all that was is committed."""
        standing = self.replica.standing
        return self._shop.fed and standing.sealed is None and _taken(self._shop, standing)


def promoter(shop: Shop, after_ms: float) -> Role:
    """Switches the pipeline to another program, which has one view in another way."""

    def run(process: Host) -> None:
        process.node.tasks.sleep(after_ms)
        running = Replica(rig_of(shop, process.store, _SETTINGS, LATER))
        running.want(Want.PROMOTE)
        while running.wants():
            try:
                running.step()
            except FencedError:
                # It was promoted, and died before it knew.
                break
            except (StoreError, LeaseLostError):
                running.renew()
                process.sleep(50)
        shop.text = LATER
        running.close()

    return run


def keeper() -> Role:
    """Compacts and collects what replicas write."""

    def run(process: Host) -> None:
        while process.running():
            process.sleep(400)
            try:
                for name in process.store.shards():
                    process.store.upkeep.run_once(process.store.machine(name))
            except (StoreError, LeaseLostError, ConflictError, NotFoundError) as error:
                process.world.sim.sometimes(f"a keeper: {type(error).__name__}")

    return run


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
    key = 100 + process.random.randrange(3)
    chunks = list(range(process.random.randrange(1, 4)))
    rows: list[_Row] = [{"id": key, "amount": process.random.randrange(9)} for _ in chunks]
    shop.inserted[handle] = rows
    # They come in any order, and some twice; their numbers say which is the last.
    process.random.shuffle(chunks)
    for chunk in chunks:
        for _ in range(process.random.randrange(1, 3)):
            handles.insert(handle, chunk, "orders", _payload(rows[chunk], chunk), 1)
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
                shard = process.random.choice(_shards(process.store))
                with process.store.shard(shard).snapshot() as snapshot:
                    found = _sorted(snapshot.to_arrow())
                    at = snapshot.as_of
                known = shop.seen.setdefault((shard, at), found)
                if known != found:
                    shop.wrong.append(f"{shard} at {at} was {known} and is {found}")
            except (NotFoundError, JournalError, KeyError):
                process.sleep(50)

        repeat(process, step, pause_ms=100)

    return run


def pipelines(world: World) -> None:
    """Two replicas, a feeder, a shopper, a reader and upkeep; in some, a new program."""
    shop = Shop()
    world.batches[NAME] = shop  # type: ignore[assignment]  # what a history keeps, whatever it is
    world.start("f1", feeder(shop))
    world.start("a", replica(shop))
    world.start("b", replica(shop))
    world.start("s1", shopper(shop))
    world.start("l1", looker(shop))
    world.start("u1", keeper())
    chance = world.sim.stream("promotion")
    if chance.random() < 0.5:
        world.start("p1", promoter(shop, chance.uniform(200, 1_500)))


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
    expected = _expected(shop, rig.journal)
    if len(expected) != standing.next_t:
        wrong.append(f"{len(expected)} transactions are on record, {standing.next_t} are committed")
    wrong += _contents(shop, store, expected)
    wrong += _leftovers(store, standing)
    if not wrong:
        list(replay(rig, Planner(rig), 0, standing.next_t))
    return wrong


def _leftovers(store: Store, standing: Standing) -> list[str]:
    """Nothing is there that nobody committed: no record says what it is."""
    uppers = {
        each.shard: store.machine(each.shard).refresh() for each in standing.bindings.values()
    }
    return [
        f"{name} has rows up to {state.upper}, and {standing.committed} is committed"
        for name, state in uppers.items()
        if not state.upper <= standing.committed
    ]


def _contents(shop: Shop, store: Store, expected: list[dict[str, list[_Row]]]) -> list[str]:
    """What each shard is at some times, and what was seen of it, against what it should be.

    What it is at the others follows: every transaction is computed again from the one before.
    """
    wrong = [
        f"{shard} at {at} was {seen}, and should be {expected[at][shard]}"
        for (shard, at), seen in shop.seen.items()
        if shard in expected[at] and seen != expected[at][shard]
    ]
    every = max(1, len(expected) // _SAMPLED)
    for at in sorted({*range(0, len(expected), every), len(expected) - 1} - {-1}):
        for shard, rows in expected[at].items():
            with store.shard(shard).snapshot(as_of=at) as snapshot:
                found = _sorted(snapshot.to_arrow())
            if found != rows:
                wrong.append(f"{shard} at {at} is {found}, and should be {rows}")
    return wrong


def _handles(shop: Shop, journal: Journal) -> list[str]:
    """The journal may have forgotten which ones it closed; its records have not."""
    found = recorded(journal, 0, journal.refresh().next_t)
    order = [each.sealed.begin.handle for each in found if each.sealed.begin.handle is not None]
    committed = set(order)
    wrong = [f"{each} was committed unasked" for each in committed - shop.asked]
    wrong += [f"{each} was committed twice" for each in committed if order.count(each) > 1]
    return wrong + [f"{each} was not committed" for each in shop.promised - committed]


def _expected(shop: Shop, journal: Journal) -> list[dict[str, list[_Row]]]:
    """What each shard holds at each time, from what was sent and which of it was taken when."""
    orders: _Stored = {}
    found = []
    for each in recorded(journal, 0, journal.refresh().next_t):
        rows = [row for taken in each.sealed.inputs for row in _sent(shop, taken)]
        handle = each.sealed.begin.handle
        if handle is not None:
            rows += [{**row, "seq": None} for row in shop.inserted[handle]]
        _apply(orders, rows)
        names = {name: bound.shard for name, bound in each.standing.bindings.items()}
        held = _collections(orders, _LIMITS[each.standing.program])
        found.append({names[name]: held[name] for name in held})
    return found


def _sent(shop: Shop, taken: Input) -> list[_Row]:
    records = [
        shop.topic.record(partition, offset)
        for partition, (start, stop) in sorted((taken.taken or {}).items())
        for offset in range(start, stop)
    ]
    return [json.loads(value or b"{}") for _, value in records]


def _apply(orders: _Stored, rows: list[_Row]) -> None:
    """The last row of each key counts, unless what the key has, or had when it went, is newer."""
    last: dict[int, _Row] = {}
    for row in rows:
        key = row["id"] or 0
        if key not in last or _order(row) >= _order(last[key]):
            last[key] = row
    for key, row in last.items():
        if key not in orders or _order(row) >= orders[key][0]:
            orders[key] = (_order(row), None if row.get("_delete") else row["amount"])


def _order(row: _Row) -> int:
    seq = row["seq"]
    return -1 if seq is None else seq


def _collections(orders: _Stored, limit: int) -> dict[str, list[_Row]]:
    amounts = {key: amount for key, (_, amount) in orders.items() if amount is not None}
    sequences = {key: seq for key, (seq, _) in orders.items() if seq >= 0}
    rows: list[_Row] = [
        {"id": key, "amount": amount, "seq": sequences.get(key)} for key, amount in amounts.items()
    ]
    large: list[_Row] = [{"id": k, "more": v + 1} for k, v in amounts.items() if v > limit]
    total = sum(amounts.values()) if amounts else None
    totals: list[_Row] = [{"orders": len(amounts), "amount": total}]
    found = {"orders": rows, "large": large, "totals": totals}
    return {name: sorted(each, key=str) for name, each in found.items()}


def _shards(store: Store) -> list[str]:
    """Of the collections that are looked at, as they are bound now."""
    standing = Journal(store.env, NAME).refresh()
    return [standing.bindings[name].shard for name in ("orders", "large", "totals")]


def _sorted(table: pa.Table) -> list[_Row]:
    rows: list[_Row] = table.to_pylist()
    return sorted(rows, key=str)


def _payload(row: _Row, chunk: int) -> bytes:
    """One row as its owner's process stages it."""
    return packed_rows(staged_rows([row], _TABLE, chunk))
