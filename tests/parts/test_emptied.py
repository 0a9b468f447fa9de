"""What rows make of a table that is emptied among them, against a plain dict."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.model.engine import Rules
from strandline.model.schema import Schema
from strandline.parts.emptied import NOTHING, Emptying, There, among, later, resolve_emptied
from strandline.parts.tombstones import tomb_schema

SCHEMA = Schema.create(
    pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("seq", pa.int64())]
    ),
    ["id"],
)
BURY = Rules(compare_stored=("seq",), bury=True)
PLAIN = Rules()
TOMBS = tomb_schema(SCHEMA, BURY)
INCOMING = pa.schema(
    [
        *SCHEMA.arrow(),
        ("_delete", pa.bool_()),
        ("_order0", pa.int64()),
        ("_order1", pa.int64()),
        ("_time", pa.int64()),
    ]
)


class Table:
    """Rows and tombstones as a pipeline keeps them, and the same in plain dicts."""

    def __init__(self, rules):
        self.rules = rules
        self.rows, self.tombs = SCHEMA.arrow().empty_table(), TOMBS.arrow().empty_table()
        self.floor = None
        self.held, self.buried, self.lowest = {}, {}, None
        self.time = 0

    def run(self, events, *, reload=False):
        """Events are (kind, key, value, sequence), each at its own place in the source."""
        placed = [(*event, place) for place, event in enumerate(events)]
        truncations = [each for each in placed if each[0] == "t"]
        rows = [
            {
                "id": key,
                "v": value,
                "seq": seq,
                "_delete": kind == "d",
                "_order0": seq if self.rules.bury else place,
                "_order1": place,
                "_time": self.time,
            }
            for kind, key, value, seq, place in placed
            if kind != "t"
        ]
        marks = [
            pa.table({"_order0": [seq if self.rules.bury else place], "_order1": [place]})
            for _, _, _, seq, place in truncations
        ]
        at = later(marks)
        raised = None
        if at is not None and self.rules.bury:
            raised = at.select(["_order0"]).rename_columns(["seq"])
        self.floor = later([self.floor, raised])
        found, tombs = resolve_emptied(
            pa.Table.from_pylist(rows, INCOMING),
            There(self.rows, self.tombs if self.rules.bury else None),
            SCHEMA,
            self.rules,
            Emptying(reload, at, self.floor),
            self.time,
        )
        self.updates = found.to_pylist()
        assert all(row["_time"] == self.time for row in self.updates)
        self.rows = applied(self.rows, found)
        if tombs is not None:
            self.tombs = applied(self.tombs, tombs)
        self.expect(placed, truncations, reload=reload)
        self.time += 1

    def expect(self, placed, truncations, *, reload):
        def order(event):
            return (event[3], event[4]) if self.rules.bury else event[4]

        before = dict(self.held)
        if reload:
            self.expect_reload(sorted(placed, key=order))
        else:
            self.expect_events(sorted(placed, key=order), truncations, order)
        assert {row["id"]: (row["v"], row["seq"]) for row in self.rows.to_pylist()} == self.held
        if self.rules.bury:
            assert {row["id"]: row["seq"] for row in self.tombs.to_pylist()} == self.buried
        changed = {k for k in {*before, *self.held} if before.get(k) != self.held.get(k)}
        assert {row["id"] for row in self.updates} == changed

    def expect_reload(self, events):
        new = {key: (value, seq) for _, key, value, seq, _ in events}
        self.buried |= {k: seq for k, (_, seq) in self.held.items() if k not in new}
        self.buried = {k: seq for k, seq in self.buried.items() if k not in new}
        self.held = new

    def expect_events(self, events, truncations, order):
        if truncations:
            last = max(truncations, key=order)
            stays = (lambda seq: seq > last[3]) if self.rules.bury else (lambda _: False)
            self.held = {k: (v, seq) for k, (v, seq) in self.held.items() if stays(seq)}
            self.lowest = max(last[3], -1 if self.lowest is None else self.lowest)
            events = [each for each in events if order(each) > order(last)]
        for kind, key, value, seq, _ in {
            each[1]: each for each in events if each[0] != "t"
        }.values():
            if self.rules.bury and seq < self.order_of(key):
                continue
            self.held.pop(key, None)
            self.buried.pop(key, None)
            if kind == "d":
                self.buried[key] = seq
            else:
                self.held[key] = (value, seq)

    def order_of(self, key):
        if key in self.held:
            return self.held[key][1]
        return max(self.buried.get(key, -1), -1 if self.lowest is None else self.lowest)


def applied(rows, updates):
    held = [tuple(row.items()) for row in rows.to_pylist()]
    for row in updates.drop_columns(["_time"]).to_pylist():
        diff = row.pop("_diff")
        if diff > 0:
            held.append(tuple(row.items()))
        else:
            held.remove(tuple(row.items()))
    return pa.Table.from_pylist([dict(row) for row in held], rows.schema)


events = st.lists(
    st.tuples(
        st.sampled_from("ppppdt"), st.integers(0, 4), st.sampled_from("ab"), st.integers(0, 12)
    ),
    max_size=8,
)
reloads = st.lists(
    st.tuples(st.just("p"), st.integers(0, 4), st.sampled_from("ab"), st.integers(0, 12)),
    max_size=5,
)
histories = st.lists(
    st.one_of(events.map(lambda e: (e, False)), reloads.map(lambda e: (e, True))), max_size=6
)


@pytest.mark.parametrize("rules", [BURY, PLAIN], ids=["sequence", "source order"])
@settings(max_examples=60, deadline=None)
@given(history=histories)
def test_any_history_of_truncations_and_reloads_is_a_dicts(rules, history):
    table = Table(rules)
    for some, reload in history:
        table.run(some, reload=reload)


def test_a_late_event_brings_nothing_back_that_a_truncation_removed():
    table = Table(BURY)
    table.run([("p", 1, "a", 3), ("p", 2, "a", 4), ("p", 3, "a", 9)])
    table.run([("p", 4, "a", 6), ("t", None, None, 7), ("p", 2, "b", 8)])
    assert sorted(table.held) == [2, 3]
    # Key 5 was never seen: the floor alone knows that it was there before the truncation.
    table.run([("p", 1, "late", 5), ("p", 5, "late", 6), ("d", 6, "", 2)])
    assert sorted(table.held) == [2, 3]
    assert table.tombs.num_rows == 0
    table.run([("p", 5, "new", 7)])
    assert sorted(table.held) == [2, 3, 5]


def test_a_reload_emits_only_the_difference():
    table = Table(BURY)
    table.run([("p", key, "a", 5) for key in range(5)])
    table.run([("p", 0, "a", 5), ("p", 1, "b", 2), ("p", 9, "c", 0)], reload=True)
    found = sorted((row["id"], row["v"], row["_diff"]) for row in table.updates)
    assert found == [
        (1, "a", -1), (1, "b", 1), (2, "a", -1), (3, "a", -1), (4, "a", -1), (9, "c", 1)
    ]  # fmt: skip
    # Older than what the reload removed, newer than what it brought.
    table.run([("p", 2, "late", 4), ("p", 1, "next", 3)])
    assert (2 in table.held, table.held[1]) == (False, ("next", 3))


def test_a_row_that_keeps_a_column_keeps_nothing_of_what_was_truncated():
    rows = pa.table({"id": [1], "v": ["old"], "seq": [1]}).cast(SCHEMA.arrow())
    came = pa.Table.from_pylist(
        [{"id": 1, "seq": 5, "_delete": False, "_order0": 5, "_order1": 1, "_time": 0}], INCOMING
    ).append_column("_keep", pa.array([["v"]], pa.list_(pa.string())))
    mark = pa.table({"_order0": [4], "_order1": [0]})
    there = There(rows, TOMBS.arrow().empty_table())
    found, _ = resolve_emptied(came, there, SCHEMA, BURY, Emptying(at=mark), 0)
    assert [(row["v"], row["seq"], row["_diff"]) for row in found.to_pylist()] == [
        ("old", 1, -1), (None, 5, 1)
    ]  # fmt: skip
    kept, _ = resolve_emptied(came, there, SCHEMA, BURY, NOTHING, 0)
    assert [(row["v"], row["_diff"]) for row in kept.to_pylist()] == [("old", -1), ("old", 1)]


def test_the_later_of_marks_and_who_is_among_whom():
    marks = [pa.table({"a": [a], "b": [b]}) for a, b in ((1, 9), (2, 1), (2, 0))]
    assert later([None, *marks, marks[0].slice(0, 0)]).to_pylist() == [{"a": 2, "b": 1}]
    assert later([None]) is None
    rows = pa.table({"id": [3, 1, 2]})
    assert among(rows, pa.table({"id": [2, 3, 7]}), SCHEMA).tolist() == [True, False, True]
