"""Whole histories of a pipeline, and what is wrong with them in the end.

What was sent, and which of it the journal says was taken when, is computed again in plain Python
and compared with what shards hold and readers saw; then every transaction is computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.journal.record import Checkpoint, Commit, Seal
from strandline.model.digest import Digest
from strandline.pipeline import agree
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import recorded, replay
from strandline.pipeline.settings import PipelineSettings
from strandline.testing import lying
from strandline.testing.checkers import HistoryError
from strandline.testing.ledger import Ledger
from strandline.testing.pipelines import (
    LATER,
    NAME,
    TEXT,
    Row,
    Shop,
    amender,
    feeder,
    keeper,
    looker,
    promoter,
    replica,
    rig_of,
    said,
    shopper,
    sorted_rows,
    taken_all,
)
from strandline.views.parse import parse

if TYPE_CHECKING:
    from strandline.handles.store import Store
    from strandline.journal.log import Journal
    from strandline.journal.record import Input
    from strandline.journal.standing import Standing
    from strandline.pipeline.replay import Recorded
    from strandline.testing.world import Host, World

_LIMITS = {parse(TEXT).hash: 3, parse(LATER).hash: 6}
_SAMPLED = 6
"""At so many times everything is read once more in the end."""


def pipelines(world: World) -> None:
    """Two replicas, a feeder, a shopper, a reader and upkeep; in some a new program, a liar, or
    somebody who amends."""
    shop = Shop(shopped=False)
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
    if chance.random() < 0.6:
        world.start("x1", lying.liar(shop))
    if chance.random() < 0.3:
        world.start("m1", amender())


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
    if not taken_all(shop, standing):
        wrong.append(f"{shop.topic.ends} was sent and {standing.positions} is committed")
    wrong += _handles(shop, rig.journal)
    expected = expected_rows(shop, rig.journal)
    if len(expected) != standing.next_t:
        wrong.append(f"{len(expected)} transactions are on record, {standing.next_t} are committed")
    wrong += _contents(shop, store, expected)
    wrong += _checkpoints(rig.journal)
    if not wrong:
        wrong += _totals(store, standing, list(recorded(rig.journal, 0, standing.next_t)))
    if not wrong:
        list(replay(rig, Planner(rig), 0, standing.next_t))
    return wrong


def _totals(store: Store, standing: Standing, history: list[Recorded]) -> list[str]:
    """Every shard holds what the commits say, and nothing that nobody committed."""
    sums: dict[str, Digest] = {}
    for each in history:
        for name, digest in agree.unpacked(each.commit.deltas).items():
            shard = each.standing.bindings[name].shard
            sums[shard] = sums.get(shard, Digest.ZERO) + digest
    wrong = []
    for shard in sorted({*sums, *(each.shard for each in standing.bindings.values())}):
        state, said = store.machine(shard).refresh(), sums.get(shard, Digest.ZERO)
        if state.total != said or not state.upper <= standing.committed:
            wrong.append(
                f"{shard} holds {state.total} up to {state.upper}; the commits up to "
                f"{standing.committed} say {said}"
            )
    return wrong


def _checkpoints(journal: Journal) -> list[str]:
    """They are between transactions (S64)."""
    sealed, wrong = False, []
    for lsn, record in journal.records():
        if isinstance(record, Checkpoint) and sealed:
            wrong.append(f"checkpoint {lsn} was taken inside of a transaction")
        sealed = isinstance(record, Seal) or (sealed and not isinstance(record, Commit))
    return wrong


def _contents(shop: Shop, store: Store, expected: list[dict[str, list[Row]]]) -> list[str]:
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
                found = sorted_rows(snapshot.to_arrow())
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


def expected_rows(shop: Shop, journal: Journal) -> list[dict[str, list[Row]]]:
    """What each shard holds at each time, from what was sent and which of it was taken when."""
    orders = Ledger()
    found = []
    for each in recorded(journal, 0, journal.refresh().next_t):
        rows = [row for taken in each.sealed.reads for row in _sent(shop, taken)]
        handle = each.sealed.begin.handle
        if handle is not None:
            rows += shop.inserted[handle]
        if handle in shop.replaces:
            orders.reload(rows)
        else:
            orders.apply(rows)
        names = {name: bound.shard for name, bound in each.standing.bindings.items()}
        held = _collections(orders, _LIMITS[each.standing.program])
        found.append({names[name]: held[name] for name in held})
    return found


def _sent(shop: Shop, taken: Input) -> list[Row]:
    records = [
        shop.topic.record(partition, offset)
        for partition, (start, stop) in sorted((taken.taken or {}).items())
        for offset in range(start, stop)
    ]
    return [said(value) for _, value in records]


def _collections(orders: Ledger, limit: int) -> dict[str, list[Row]]:
    amounts = {key: amount for key, (_, amount) in orders.rows.items()}
    large: list[Row] = [{"id": k, "more": v + 1} for k, v in amounts.items() if v > limit]
    total = sum(amounts.values()) if amounts else None
    totals: list[Row] = [{"orders": len(amounts), "amount": total}]
    found = {"orders": orders.held(), "large": large, "totals": totals}
    return {name: sorted(each, key=str) for name, each in found.items()}
