"""A shard's times are offsets, its changes are rows."""

import pyarrow as pa
import pytest

from strandline.connectors.position import Range
from strandline.connectors.shard import ShardSource, fetch, fetch_changes, open_source
from strandline.connectors.source import Limits, Ports, Split
from strandline.errors import (
    ConflictError,
    SchemaError,
    SinceError,
    SourceGoneError,
    UsageError,
)
from strandline.testing.conformance_source import Stand, check_source

UPDATES = pa.schema(
    [("k", pa.int64()), ("v", pa.string()), ("_time", pa.int64()), ("_diff", pa.int64())]
)


class Remembered:
    """The changes of a shard in memory."""

    def __init__(self):
        self.updates, self.at, self.merged, self.held, self.id = [], 0, 0, None, 77
        self.over = ""

    def put(self, *updates):
        """Settle one more time with these (k, v, diff)."""
        self.updates += [(k, v, self.at, diff) for k, v, diff in updates]
        self.at += 1

    def schema(self):
        return pa.schema([UPDATES.field("k"), UPDATES.field("v")])

    def since(self):
        return self.merged

    def upper(self):
        return self.at

    def key(self):
        return ()

    def identity(self):
        return self.id

    def filled(self):
        return max((t for _, _, t, _ in self.updates), default=-1) + 1

    def given_up(self):
        return self.over

    def admit(self, start, stop, rows):
        return min(stop, start + rows)

    def changes(self, start, stop):
        if self.merged >= (start or stop):
            raise SourceGoneError(f"history is merged up to {self.merged} and no longer there")
        times = [(k, v, max(t, self.merged), d) for k, v, t, d in self.updates if start <= t < stop]
        rows = [dict(zip(UPDATES.names, each, strict=True)) for each in times]
        yield pa.Table.from_pylist(rows, UPDATES)

    def hold(self, since):
        if since < self.merged:
            raise SinceError("merged", oldest=self.merged)
        self.held = since

    def move_hold(self, since):
        self.held = since if self.held is not None else None


def stand():
    shard = Remembered()

    def grow():
        for _ in range(2):
            key = shard.at % 3
            shard.put((key, f"at {shard.at}", 1), (key + 10, "y", 1))

    def forget(taken):
        shard.merged = taken.parts["t"][1]

    return Stand(
        lambda: ShardSource({"shard": "a.b"}, shard),
        lambda split: fetch_changes(split, shard), grow, forget, strict=False,
    )  # fmt: skip


def test_a_shard_is_a_source():
    check_source(stand)


def read(shard, key, start, stop):
    options = {"shard": "s", "columns": '["k", "v"]', **({"key": '["k"]'} if key else {})}
    split = Split("shard", options, "t", start, stop)
    return [
        tuple(row[name] for name in row if name != "_partition")
        for batch in fetch_changes(split, shard)
        for row in batch.to_pylist()
    ]


def test_changes_come_as_what_each_key_holds_from_then_on():
    shard = Remembered()
    shard.put((1, "a", 1), (2, "b", 1))
    shard.put((1, "a", -1), (1, "c", 1), (2, "b", -1))
    assert read(shard, "k", 0, 1) == [(1, "a", 0, False), (2, "b", 0, False)]
    assert read(shard, "k", 1, 2) == [(1, "c", 1, False), (2, "b", 1, True)]
    assert read(shard, "", 1, 2) == [(1, "a", 1, -1), (1, "c", 1, 1), (2, "b", 1, -1)]


def test_rows_come_as_often_as_they_occur_and_the_first_ones_as_of_the_last_time():
    shard = Remembered()
    shard.put((1, "a", 2))
    shard.put((1, "a", -2), (2, "b", 1))
    assert read(shard, "", 1, 2) == [(1, "a", 1, -1), (1, "a", 1, -1), (2, "b", 1, 1)]
    shard.updates = [(2, "b", 0, 1)]
    assert read(shard, "", 0, 4) == [(2, "b", 3, 1)]


def test_exactly_the_columns_of_the_table_are_read():
    shard = Remembered()
    shard.put((1, "a", 1))
    split = Split("shard", {"shard": "s", "columns": '["v"]'}, "t", 0, 1)
    (batch,) = fetch_changes(split, shard)
    assert batch.schema.names == ["v", "_partition", "_offset", "_diff"]


def test_a_key_that_is_not_the_shards_is_refused():
    shard = Remembered()
    shard.put((1, "a", 2))
    with pytest.raises(SchemaError, match="several rows with the same k"):
        read(shard, "k", 0, 1)
    for wrong in ({"key": '["x"]'}, {"columns": '["x"]'}):
        with pytest.raises(SchemaError, match="no column 'x'"):
            ShardSource({"shard": "s", **wrong}, shard)
    shard.key = lambda: ("v",)
    with pytest.raises(SchemaError, match=r"has the key .v., and the table that it feeds .k."):
        ShardSource({"shard": "s", "key": '["k"]'}, shard)


def test_history_is_held_just_before_what_may_be_read_again():
    shard = Remembered()
    source = ShardSource({"shard": "s"}, shard)
    source.acknowledge({})
    assert shard.held is None
    source.acknowledge({"t": 7})
    assert shard.held is None
    source.secure(Range({"t": (0, 4)}))
    assert shard.held == 3
    source.secure(Range({"t": (4, 9)}))
    source.acknowledge({"t": 7})
    assert shard.held == 6


def test_a_range_that_went_before_it_was_sealed_is_planned_again():
    shard = Remembered()
    shard.put((1, "a", 1))
    source = ShardSource({"shard": "s"}, shard)
    taken = source.plan({}, Limits())
    shard.merged = 5
    with pytest.raises(ConflictError, match="merged while"):
        source.secure(taken)


def test_another_shard_of_the_same_name_is_not_mistaken_for_it():
    shard = Remembered()
    shard.put((1, "a", 1))
    source = ShardSource({"shard": "s"}, shard)
    taken = source.plan({}, Limits())
    shard.id = 78
    with pytest.raises(SourceGoneError, match="is another one"):
        source.plan(taken.after({}), Limits())
    with pytest.raises(SourceGoneError, match="is another one"):
        source.check(taken)


def test_times_without_changes_are_not_offered():
    shard = Remembered()
    source = ShardSource({"shard": "s"}, shard)
    shard.put()
    assert source.plan({}, Limits()) is None
    shard.put((1, "a", 1))
    shard.put()
    position = source.plan({}, Limits()).after({})
    position = source.plan(position, Limits()).after(position)
    assert position["t"] == 2
    assert source.plan(position, Limits()) is None
    # What it merged was empty, so nothing is lost until something comes.
    shard.merged = 2
    assert source.plan(position, Limits()) is None
    shard.put((2, "b", 1))
    with pytest.raises(SourceGoneError, match="merged its history up to 2"):
        source.plan(position, Limits())


@pytest.mark.parametrize(
    ("start", "stop", "merged", "readable"),
    [
        (0, 5, 0, True), (0, 5, 4, True), (0, 5, 5, False),
        (3, 5, 2, True), (3, 5, 3, False), (3, 5, 9, False),
    ],
)  # fmt: skip
def test_what_is_merged_can_not_be_told_apart(start, stop, merged, readable):
    shard = Remembered()
    shard.merged = merged
    taken = ShardSource({"shard": "s"}, shard)

    wanted = Range({"t": (start, stop)})
    if readable:
        taken.check(wanted)
    else:
        with pytest.raises(SourceGoneError, match=f"up to {merged}"):
            taken.check(wanted)


def test_the_first_range_goes_beyond_what_is_merged():
    shard = Remembered()
    for at in range(9):
        shard.put((at, "x", 1))
    shard.merged = 5
    source = ShardSource({"shard": "s"}, shard)
    taken = source.plan({}, Limits(rows=1))
    source.check(taken)
    assert taken.parts == {"t": (0, 6), "shard": (77, 77)}
    assert source.plan(taken.after({}), Limits(rows=2)).parts["t"] == (6, 8)


def test_a_shard_needs_its_store():
    ports = Ports(None, str)
    with pytest.raises(UsageError, match="no store"):
        open_source({"shard": "s"}, ports)
    with pytest.raises(UsageError, match="without its store"):
        fetch(Split("shard", {"shard": "s"}, "t", 0, 1), str)
    found = open_source({"shard": "s"}, Ports(None, str, lambda name: Remembered()))
    assert found.latest() == {"t": 0, "shard": 77}


def test_a_shard_that_nobody_writes_to_any_more_is_refused_once_all_of_it_was_taken():
    shard = Remembered()
    shard.put((1, "a", 1))
    source = ShardSource({"shard": "numbers"}, shard)
    shard.over = "its view is another one now"
    taken = source.plan({}, Limits())
    assert taken.parts["t"] == (0, 1)
    with pytest.raises(SourceGoneError, match=r"'numbers' will not change .* another one now"):
        source.plan(taken.after({}), Limits())
