"""Tests of handles in a forked child: what begins there is refused, what ends there is silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident

import pytest

from strandline.errors import HandleClosedError
from strandline.handles.ownership import TimelineOwner
from strandline.handles.shard import Reader, Shard
from strandline.handles.store import Store, Timeline
from strandline.handles.write import Writer
from strandline.reading.snapshot import Snapshot
from strandline.reading.subscribe import Subscription, Worker
from strandline.shard.state import Retention
from strandline.testing.lab import COLUMNS, Lab, new_store, rows


@dataclass
class Handles:
    """One of each, opened by the parent."""

    store: Store
    shard: Shard
    reader: Reader
    writer: Writer
    snapshot: Snapshot
    subscription: Subscription
    worker: Worker
    timeline: Timeline
    owner: TimelineOwner


class Process:
    """Says which of the two this is; the tasks of the parent are none of the child's."""

    def __init__(self) -> None:
        self.parent = True
        self._forked = get_ident()

    def is_here(self) -> bool:
        return self.parent or get_ident() != self._forked


def _opened(store: Store) -> Handles:
    shard = store.shard("orders", schema=COLUMNS, key=["id"])
    writer = shard.writer()
    writer.append(rows(1, 2))
    abroad = shard.subscribe()
    timeline = store.timeline("shop")
    owner = timeline.own()
    snapshot, subscription, reader = shard.snapshot(), shard.subscribe(), shard.reader(since=0)
    return Handles(
        store,
        shard,
        reader,
        writer,
        snapshot,
        subscription,
        abroad.worker(0),
        timeline,
        owner,
    )


CALLS: dict[str, Callable[[Handles], object]] = {
    "store.shard": lambda h: h.store.shard("orders"),
    "store.shards": lambda h: h.store.shards(),
    "store.drop": lambda h: h.store.drop("orders"),
    "store.timelines": lambda h: h.store.timelines(),
    "store.pipelines": lambda h: h.store.pipelines(),
    "shard.state": lambda h: h.shard.state(),
    "shard.upper": lambda h: h.shard.upper,
    "shard.snapshot": lambda h: h.shard.snapshot(),
    "shard.reader": lambda h: h.shard.reader(),
    "shard.term_reader": lambda h: h.shard.term_reader(term_ms=60_000),
    "shard.writer": lambda h: h.shard.writer(),
    "shard.subscribe": lambda h: h.shard.subscribe(),
    "shard.listen": lambda h: h.shard.listen(),
    "shard.wait_past": lambda h: h.shard.wait_past(7),
    "shard.hold": lambda h: h.shard.hold("mine", 0),
    "shard.fence": lambda h: h.shard.fence(3),
    "shard.retain": lambda h: h.shard.retain(Retention()),
    "shard.evolve": lambda h: h.shard.evolve(COLUMNS),
    "shard.compact": lambda h: h.shard.compact(full=True),
    "upkeep.run_once": lambda h: h.store.upkeep.run_once(h.shard.machine),
    "upkeep.collect": lambda h: h.store.upkeep.collector.collect(h.shard.machine),
    "upkeep.sweep": lambda h: h.store.upkeep.collector.sweep(h.shard.machine, delete=True),
    "reader.snapshot": lambda h: h.reader.snapshot(),
    "reader.clone": lambda h: h.reader.clone(),
    "reader.downgrade": lambda h: h.reader.downgrade(0),
    "writer.append": lambda h: h.writer.append(rows(3)),
    "writer.compare_and_append": lambda h: h.writer.compare_and_append(rows(3), lower=1, upper=2),
    "writer.advance": lambda h: h.writer.advance(4),
    "writer.prepare": lambda h: h.writer.prepare(rows(3), lower=1, upper=2),
    "writer.verify": lambda h: h.writer.verify(rows(3), lower=0, upper=1),
    "snapshot.to_arrow": lambda h: h.snapshot.to_arrow(),
    "snapshot.updates": lambda h: h.snapshot.updates(),
    "snapshot.parts": lambda h: h.snapshot.parts(),
    "subscription.poll": lambda h: h.subscription.poll(),
    "subscription.next": lambda h: next(h.subscription),
    "subscription.status": lambda h: h.subscription.status(),
    "subscription.worker": lambda h: h.subscription.worker(0),
    "worker.take": lambda h: h.worker.take(),
    "worker.press": lambda h: h.worker.press(),
    "timeline.upper": lambda h: h.timeline.upper,
    "timeline.own": lambda h: h.timeline.own(),
    "timeline.attach": lambda h: h.timeline.attach(h.shard),
    "owner.stage": lambda h: h.owner.stage("orders", rows(3)),
    "owner.commit": lambda h: h.owner.commit(),
}


def test_what_begins_with_an_inherited_handle_is_refused_by_name(lab: Lab) -> None:
    process = Process()
    with new_store(lab, is_here=process.is_here) as store:
        handles = _opened(store)
        before = handles.shard.state().seqno
        process.parent = False
        for name, call in CALLS.items():
            with pytest.raises(HandleClosedError, match="fork; open the store again"):
                pytest.fail(f"{name}: {call(handles)!r}")
        process.parent = True
        assert handles.shard.state().seqno == before


def test_closing_inherited_handles_is_silent_and_takes_nothing_from_the_parent(lab: Lab) -> None:
    process = Process()
    with new_store(lab, is_here=process.is_here) as store:
        handles = _opened(store)
        before = handles.shard.state()
        process.parent = False
        # Held by another task at the fork, and so for ever in the child.
        with store.leases.changed:
            handles.snapshot.close()
            handles.reader.close()
            handles.subscription.stop()
            handles.subscription.close()
        handles.writer.close()
        handles.owner.close()
        store.close()
        process.parent = True
        after = handles.shard.state()
        assert (after.readers, after.writers) == (before.readers, before.writers)
        assert handles.subscription.poll(10_000) is not None


def test_an_inherited_handle_can_be_shown(lab: Lab) -> None:
    process = Process()
    with new_store(lab, is_here=process.is_here) as store:
        handles = _opened(store)
        process.parent = False
        for each in (store, handles.shard, handles.writer, handles.snapshot, handles.subscription):
            assert repr(each).startswith("<")
        assert handles.shard.schema == COLUMNS
        process.parent = True
