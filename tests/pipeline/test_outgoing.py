"""A sink's changes: whole transactions in order, from where its target is, while all is well."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from strandline.connectors.sink import NOTHING_YET
from strandline.errors import SinkStoppedError
from strandline.handles.shard import Shard
from strandline.handles.store import Store
from strandline.pipeline.outgoing import Outgoing
from strandline.testing.lab import Lab, new_store

COLUMNS = pa.schema([("id", pa.int64())])
ERRORS = pa.schema([("row", pa.string()), ("reason", pa.string())])
HOLD = "sink.shop.out"


@pytest.fixture
def store() -> Iterator[Store]:
    lab = Lab()
    with new_store(lab) as made:
        yield made
    lab.close()


def append(shard: Shard, t: int, rows: list[tuple[object, int]]) -> None:
    """Settle a time, with these rows and their diffs."""
    first, *others = shard.schema.names
    table = pa.table(
        {
            first: [row for row, _ in rows],
            **{name: ["it raises"] * len(rows) for name in others},
            "_time": [t] * len(rows),
            "_diff": [diff for _, diff in rows],
        },
        schema=pa.schema([*shard.schema, ("_time", pa.int64()), ("_diff", pa.int64())]),
    )
    with shard.writer() as writer:
        writer.compare_and_append(table, lower=t, upper=t + 1)


def taken(outgoing: Outgoing, upto: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """The transactions until everything up to a time was seen."""
    found = []
    while outgoing.reached < upto:
        transaction = outgoing.next(100)
        if transaction is not None:
            rows = pa.Table.from_batches(transaction.batches())
            pairs = zip(rows["id"].to_pylist(), rows["_diff"].to_pylist(), strict=True)
            found.append((transaction.t, sorted(pairs)))
    return found


def test_times_without_changes_are_passed_over(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    for t, rows in enumerate([[], [(1, 1)], [], [(1, -1), (2, 1)], []]):
        append(shard, t, rows)
    with Outgoing(shard, None, NOTHING_YET, HOLD) as outgoing:
        assert taken(outgoing, 4) == [(1, [(1, 1)]), (3, [(1, -1), (2, 1)])]
    with Outgoing(shard, None, 1, HOLD) as outgoing:
        assert taken(outgoing, 4) == [(3, [(1, -1), (2, 1)])]


def test_a_new_sink_begins_with_all_that_there_is(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    for t, rows in enumerate([[(1, 1)], [(2, 1)], [(1, -1)], [(3, 1)]]):
        append(shard, t, rows)
    shard.hold(HOLD, 2)
    with Outgoing(shard, None, NOTHING_YET, HOLD) as outgoing:
        assert taken(outgoing, 3) == [(2, [(2, 1)]), (3, [(3, 1)])]


def test_what_is_not_delivered_is_held(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    for t in range(4):
        append(shard, t, [(t, 1)])
    with Outgoing(shard, None, NOTHING_YET, HOLD) as outgoing:
        assert shard.state().holds[HOLD].since == 0
        taken(outgoing, 3)
        outgoing.delivered(2)
        assert shard.state().holds[HOLD].since == 2


def test_history_that_is_merged_past_the_target_stops_it_by_name(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    for t in range(4):
        append(shard, t, [(t, 1)])
    shard.retain("1 versions")
    while shard.since.time == 0:
        store.upkeep.run_once(shard.machine)
    with pytest.raises(SinkStoppedError, match="its target is at 0, and v can be read from"):
        Outgoing(shard, None, 0, HOLD)


def test_a_view_that_raises_is_waited_for_and_its_changes_come_when_it_heals(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    errors = store.shard("v_errors", ERRORS)
    changes = [[(1, 1)], [(2, 1)], [(2, -1), (3, 1)], [], [(4, 1)]]
    wrong = [[], [("row 2", 1)], [], [("row 2", -1)], []]
    for t in range(3):
        append(shard, t, changes[t])
        append(errors, t, wrong[t])
    with Outgoing(shard, errors, NOTHING_YET, HOLD) as outgoing:
        assert taken(outgoing, 0) == [(0, [(1, 1)])]
        while not outgoing.raising:
            assert outgoing.next(100) is None
        assert outgoing.raising == "row 2, it raises"
        assert outgoing.reached == 0
        for t in (3, 4):
            append(shard, t, changes[t])
            append(errors, t, wrong[t])
        assert taken(outgoing, 4) == [(3, [(3, 1)]), (4, [(4, 1)])]
        assert outgoing.raising == ""
