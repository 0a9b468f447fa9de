"""A sink's changes: whole transactions in order, from where its target is, while all is well."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from strandline.connectors.sink import NOTHING_YET
from strandline.errors import InvariantError, SinkStoppedError, StoreError
from strandline.handles.shard import Shard
from strandline.handles.store import Store
from strandline.pipeline.outgoing import Outgoing, Wish
from strandline.testing.lab import Lab, new_store

COLUMNS = pa.schema([("id", pa.int64())])
ERRORS = pa.schema([("row", pa.string()), ("reason", pa.string())])
CHANGES = COLUMNS.append(pa.field("_diff", pa.int64(), nullable=False))
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
            rows = pa.Table.from_batches(transaction.batches(), CHANGES)
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


REPLACING = Wish(replaces=True)


def test_what_replaces_something_begins_even_with_nothing(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    for t, rows in enumerate([[(1, 1)], [(1, -1)], [], [], [(3, 1)]]):
        append(shard, t, rows)
    shard.hold(HOLD, 2)
    with Outgoing(shard, None, NOTHING_YET, HOLD, REPLACING) as outgoing:
        assert taken(outgoing, 4) == [(2, []), (4, [(3, 1)])]
    with Outgoing(shard, None, NOTHING_YET, HOLD) as outgoing:
        assert taken(outgoing, 4) == [(4, [(3, 1)])]
    with Outgoing(shard, None, 2, HOLD, REPLACING) as outgoing:
        assert taken(outgoing, 4) == [(4, [(3, 1)])], "only what begins replaces anything"


def test_what_replaces_something_and_has_rows_begins_with_them_alone(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    for t, rows in enumerate([[(1, 1)], [], [(1, -1)], []]):
        append(shard, t, rows)
    with Outgoing(shard, None, NOTHING_YET, HOLD, REPLACING) as outgoing:
        assert taken(outgoing, 3) == [(0, [(1, 1)]), (2, [(1, -1)])]


def test_an_empty_beginning_waits_for_a_view_that_raises(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    errors = store.shard("v_errors", ERRORS)
    wrong = [[("row 2", 1)], [], [("row 2", -1)], []]
    for t in range(2):
        append(shard, t, [])
        append(errors, t, wrong[t])
    with Outgoing(shard, errors, NOTHING_YET, HOLD, REPLACING) as outgoing:
        while not outgoing.raising:
            assert outgoing.next(100) is None
        assert outgoing.reached == NOTHING_YET
        for t in (2, 3):
            append(shard, t, [])
            append(errors, t, wrong[t])
        assert taken(outgoing, 3) == [(2, [])]


@pytest.mark.parametrize("rows", [[(1, 1)], []])
def test_an_interval_begins_with_one_transaction_when_all_is_well(
    store: Store, rows: list[tuple[object, int]]
) -> None:
    shard = store.shard("v", COLUMNS)
    errors = store.shard("v_errors", ERRORS)
    append(shard, 0, [])
    append(errors, 0, [("row 2", 1)])
    wish = Wish(every_ms=3_600_000, replaces=True)
    with Outgoing(shard, errors, NOTHING_YET, HOLD, wish) as outgoing:
        while not outgoing.raising:
            assert outgoing.next(100) is None
        for t, some, wrong in ((1, rows, []), (2, [], [("row 2", -1)])):
            append(shard, t, some)
            append(errors, t, wrong)
        assert taken(outgoing, 2) == [(2, rows)]


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


def test_changes_of_one_key_come_next_to_each_other_what_goes_first(store: Store) -> None:
    columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
    shard = store.shard("k", columns)
    rows = [(3, "new", 1), (1, "old", -1), (3, "old", -1), (2, "gone", -1), (1, "new", 1)]
    for t, some in enumerate([[(1, "old", 1), (3, "old", 1), (2, "gone", 1)], rows]):
        ids, names, diffs = zip(*some, strict=True)
        table = pa.table({"id": ids, "name": names, "_time": [t] * len(some), "_diff": diffs})
        with shard.writer() as writer:
            writer.compare_and_append(table, lower=t, upper=t + 1)
    with Outgoing(shard, None, 0, HOLD, Wish(key=("id",))) as outgoing:
        while (found := outgoing.next(100)) is None:
            continue
        came = pa.Table.from_batches(found.batches())
    assert list(zip(came["id"].to_pylist(), came["_diff"].to_pylist(), strict=True)) == [
        (1, -1), (1, 1), (2, -1), (3, -1), (3, 1),
    ]  # fmt: skip


def rest_until(outgoing: Outgoing, frontier: int) -> None:
    """Let an interval end when all of it was seen: what is seen in pieces is handed over so."""
    outgoing._rested_ms += 3_600_000
    while min(each.frontier for each in outgoing._follows) < frontier:
        assert outgoing.next(100) is None
    outgoing._rested_ms -= 3_600_000


def test_what_changed_within_an_interval_is_one_transaction_at_its_end(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    errors = store.shard("v_errors", ERRORS)
    for t, rows in enumerate([[(1, 1)], [(2, 1)], [(1, -1)], []]):
        append(shard, t, rows)
        append(errors, t, [("row 2", 1 if t == 1 else -1)] if t in {1, 2} else [])
    with Outgoing(shard, errors, 0, HOLD, Wish(every_ms=3_600_000)) as outgoing:
        rest_until(outgoing, 4)
        assert taken(outgoing, 3) == [(3, [(1, -1), (2, 1)])]
        append(shard, 4, [(5, 1)])
        append(errors, 4, [])
        assert outgoing.next(100) is None, "the interval has not passed"
        assert outgoing.reached == 3


def test_an_interval_ends_early_when_many_transactions_wait(store: Store) -> None:
    """As many as may be behind would hold everybody back until it ends."""
    shard = store.shard("v", COLUMNS)
    append(shard, 0, [(0, 1)])
    with Outgoing(shard, None, NOTHING_YET, HOLD, Wish(every_ms=3_600_000, most=3)) as outgoing:
        assert taken(outgoing, 0) == [(0, [(0, 1)])]
        for t in (1, 2):
            append(shard, t, [(t, 1)])
        while min(each.frontier for each in outgoing._follows) < 3:
            assert outgoing.next(100) is None
        append(shard, 3, [(3, 1)])
        assert taken(outgoing, 3) == [(3, [(1, 1), (2, 1), (3, 1)])]


def test_an_interval_in_which_everything_cancels_is_passed(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    for t, rows in enumerate([[(1, 1)], [(2, 1)], [(3, 1), (2, -1)], [(3, -1)]]):
        append(shard, t, rows)
    with Outgoing(shard, None, 0, HOLD, Wish(every_ms=3_600_000)) as outgoing:
        rest_until(outgoing, 4)
        assert taken(outgoing, 3) == []
        assert outgoing.held == 0, "until it is told that this is on record"
        outgoing.delivered(3)
        assert outgoing.held == shard.state().holds[HOLD].since == 3


def test_a_transaction_that_was_not_taken_whole_is_noticed(store: Store) -> None:
    shard = store.shard("v", COLUMNS)
    append(shard, 0, [(1, 1)])
    with Outgoing(shard, None, NOTHING_YET, HOLD) as outgoing:
        while (found := outgoing.next(100)) is None:
            continue
        with pytest.raises(InvariantError, match="all of transaction 0 was taken"):
            outgoing.next(100)
        found.drop()


def test_rows_of_other_types_than_the_sink_was_told_are_not_handed_over(store: Store) -> None:
    """A table may be widened while it is published: the sink is opened again, and told."""
    narrow = pa.schema([("id", pa.int32())])
    shard = store.shard("v", narrow)
    append(shard, 0, [(1, 1)])
    with Outgoing(shard, None, NOTHING_YET, HOLD, Wish(narrow)) as outgoing:
        while (first := outgoing.next(100)) is None:
            pass
        assert [each.num_rows for each in first.batches()] == [1]
        shard.evolve(COLUMNS)
        append(shard, 1, [(2**40, 1)])
        with pytest.raises(StoreError, match="column 'id' of v is int64 by now, and was int32"):
            taken(outgoing, 1)
    with Outgoing(shard, None, 0, HOLD, Wish(COLUMNS)) as outgoing:
        assert taken(outgoing, 1) == [(1, [(2**40, 1)])]
