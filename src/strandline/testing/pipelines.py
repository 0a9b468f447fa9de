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
from strandline.journal.log import Journal, Lost
from strandline.journal.next import Want
from strandline.journal.record import Amend
from strandline.pipeline.catalog import builds
from strandline.pipeline.meaning import packed_rows
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
    from strandline.journal.standing import Standing
    from strandline.pipeline.rig import Rig
    from strandline.testing.roles import Role
    from strandline.testing.world import Host

NAME = "shop"
TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, seq BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (envelope 'debezium', sequenceBy 'seq');
CREATE MATERIALIZED VIEW large AS SELECT id, amount + 1 AS more FROM orders WHERE amount > 3;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders;
"""
LATER = TEXT.replace("amount > 3", "amount > 6")
"""The program that some histories are switched to."""
_TABLE = parse(TEXT).tables[0]
SETTINGS = PipelineSettings(rows_max=3, delay_ms=40, poll_ms=20, handle_ttl_ms=3_000)
SWITCHED = (FencedError, UsageError)
"""What a replica is told when another program was promoted."""
_KEYS = 5
Row = dict[str, int | None]


@dataclass
class Shop:
    """What outlives every process of a history."""

    topic: ScriptedTopic = field(default_factory=lambda: ScriptedTopic(["0", "1"]))
    inserted: dict[str, list[Row]] = field(default_factory=dict)
    """What each explicit handle's owner staged, and was told that it is."""
    asked: set[str] = field(default_factory=set)
    """Handles whose owner asked for the commit, or may have."""
    promised: set[str] = field(default_factory=set)
    """Handles whose owner was told that it is asked for."""
    replaces: set[str] = field(default_factory=set)
    """Handles that replace what there is."""
    text: str = TEXT
    """The program that replicas are started with."""
    sent: int = 0
    fed: bool = False
    """Nothing more is sent."""
    shopped: bool = True
    """No more explicit transactions come."""
    seen: dict[tuple[str, int], list[Row]] = field(default_factory=dict)
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
    """Sends orders and deletions of a few keys, and now and then a truncation."""

    def run(process: Host) -> None:
        # At least one: whoever reads waits for the first transaction.
        while process.running() or not shop.sent:
            key = process.random.randrange(_KEYS)
            shop.sent += 1
            # Some come late: what a key holds by then, or held when it went, is newer.
            late = 37 if process.random.random() < 0.2 else 0
            row: Row = {"id": key, "amount": shop.sent % 9, "seq": 100 + shop.sent * 10 - late}
            drawn = process.random.random()
            op = "t" if drawn < 0.06 else "d" if drawn < 0.3 else "u"
            # A key's records are in one partition, as in any topic.
            shop.topic.send(str(key % 2), str(key).encode(), json.dumps(change(op, row)).encode())
            process.sleep(60)
        shop.fed = True

    return run


def change(op: str, row: Row) -> dict[str, object]:
    """What happened to a row, as Debezium writes it."""
    sides = {"u": (None, row), "d": ({"id": row["id"]}, None), "t": (None, None)}
    before, after = sides[op]
    return {"op": op, "before": before, "after": after, "source": {"seq": row["seq"]}}


def said(value: bytes | None) -> Row:
    """A row that `change` wrote, as `Ledger` takes it."""
    found = json.loads(value or b"{}")
    row: Row = {"id": None, **(found.get("after") or found.get("before") or {})}
    marks = {"d": {"_delete": True}, "t": {"_truncate": True}}
    return {**row, **marks.get(found.get("op"), {}), "seq": (found.get("source") or {}).get("seq")}


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


def switched(error: Exception, replica: Replica, program: str) -> bool:
    """Whether a replica failed since another program than its own was promoted, or is fenced."""
    return isinstance(error, FencedError) or replica.standing.program != program


class _Running:
    """A replica that is started again when another program was promoted."""

    def __init__(self, shop: Shop, process: Host) -> None:
        self._shop = shop
        self._process = process
        self._finished = False
        self._start()

    def _start(self) -> None:
        rig = rig_of(self._shop, self._process.store, SETTINGS)
        self._program = rig.program.hash
        self.replica = Replica(rig)

    def step(self) -> None:
        if self._process.random.random() < 0.03:
            self.replica.want(Want.CHECKPOINT)
        try:
            last = self._shop.fed and self._shop.shopped
            idle = self.replica.step() > 0
            self._finished = last and idle
            if idle:
                self._process.sleep(40)
        except SWITCHED as error:
            if not switched(error, self.replica, self._program):
                raise
            # Another program was promoted, or is about to be told to this process.
            self.replica.close()
            self._process.sleep(40)
            self._start()
        except Exception:
            self.replica.renew()
            raise

    def done(self) -> bool:
        """Nothing more comes, and there was nothing left to do since."""
        standing = self.replica.standing
        return self._finished and standing.sealed is None and taken_all(self._shop, standing)


def promoter(shop: Shop, after_ms: float) -> Role:
    """Switches the pipeline to another program, which has one view in another way."""

    def run(process: Host) -> None:
        process.node.tasks.sleep(after_ms)
        running = Replica(rig_of(shop, process.store, SETTINGS, LATER))
        running.want(Want.PROMOTE)
        while running.wants() or builds(running.standing, running.standing.next_t):
            try:
                if running.step() > 0:
                    process.sleep(40)
            except (StoreError, LeaseLostError):
                running.renew()
                process.sleep(50)
            if not running.wants():
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


def amender() -> Role:
    """Replaces what was sealed by a part of it, or by nothing, while it may."""

    def run(process: Host) -> None:
        journal = Journal(process.store.env, NAME)

        def step() -> None:
            sealed = journal.refresh().sealed
            inputs = () if sealed is None or sealed.answer is not None else sealed.inputs
            for each in inputs:
                if each.endpoint == "orders" and each.taken and process.random.random() < 0.3:
                    less = {key: (start, stop - 1) for key, (start, stop) in each.taken.items()}
                    left = {
                        key: (start, stop) for key, (start, stop) in less.items() if stop > start
                    }
                    taken = left if process.random.random() < 0.5 else None
                    amend = Amend(each.t, each.endpoint, taken, (), "to see what happens")
                    if not isinstance(journal.propose(journal.standing, [amend]), Lost):
                        process.world.sim.sometimes("a transaction was amended")

        repeat(process, step, pause_ms=10)

    return run


def taken_all(shop: Shop, standing: Standing) -> bool:
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
        shop.shopped = True

    return run


def _shopping(shop: Shop, process: Host, handles: Handles) -> None:
    """One transaction; chunks whose answer got lost are sent again."""
    handle = handles.open(Journal(process.store.env, NAME).refresh)
    chunks = list(range(process.random.randrange(1, 4)))
    whole = process.random.random() < 0.3
    rows = [_bought(shop, process, whole=whole) for _ in chunks]
    shop.inserted[handle] = rows
    if whole:
        shop.replaces.add(handle)
    # They come in any order, and some twice; their numbers say which is the last.
    process.random.shuffle(chunks)
    for chunk in chunks:
        for _ in range(process.random.randrange(1, 3)):
            payload = _payload(rows[chunk], chunk)
            handles.insert(handle, chunk, "orders", payload, 1, replace=whole)
    drawn = process.random.random()
    if drawn < 0.6:
        shop.asked.add(handle)
        handles.freeze(handle, commit=True)
        shop.promised.add(handle)
    elif drawn < 0.8:
        handles.freeze(handle, commit=False)


def _bought(shop: Shop, process: Host, *, whole: bool) -> Row:
    """A row of an explicit transaction: of a key of its own, unless it replaces all there is."""
    seq = 100 + shop.sent * 10 if process.random.random() < 0.6 else None
    if whole:
        # Often what was there already, so that a difference is less than the whole.
        key = process.random.randrange(_KEYS)
        return {"id": key, "amount": key, "seq": seq}
    key = 100 + process.random.randrange(3)
    return {"id": key, "amount": process.random.randrange(9), "seq": seq}


def looker(shop: Shop) -> Role:
    """Reads the collections at their newest time: what it sees must never change."""

    def run(process: Host) -> None:
        def step() -> None:
            try:
                shard = process.random.choice(_shards(process.store))
                with process.store.shard(shard).snapshot() as snapshot:
                    found = sorted_rows(snapshot.to_arrow())
                    at = snapshot.as_of
                known = shop.seen.setdefault((shard, at), found)
                if known != found:
                    shop.wrong.append(f"{shard} at {at} was {known} and is {found}")
            except (NotFoundError, JournalError, KeyError):
                process.sleep(50)

        repeat(process, step, pause_ms=100)

    return run


def _shards(store: Store) -> list[str]:
    """Of the collections that are looked at, as they are bound now."""
    standing = Journal(store.env, NAME).refresh()
    return [standing.bindings[name].shard for name in ("orders", "large", "totals")]


def sorted_rows(table: pa.Table) -> list[Row]:
    rows: list[Row] = table.to_pylist()
    return sorted(rows, key=str)


def _payload(row: Row, chunk: int) -> bytes:
    """One row as its owner's process stages it."""
    return packed_rows(staged_rows([row], _TABLE, chunk))
