"""A late old row does not bring a deleted key back."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import UsageError
from strandline.model.engine import Rules
from strandline.model.schema import Schema
from strandline.parts.tombstones import BURIED_AT, burials, swept, tomb_schema
from strandline.parts.upsert import resolve

SCHEMA = Schema.create(
    pa.schema([("k", pa.int64()), ("v", pa.string()), ("big", pa.string()), ("s", pa.int64())]),
    ("k",),
)
RULES = Rules(("s",), bury=True)
TOMBS = tomb_schema(SCHEMA, RULES)


def incoming(rows):
    """Rows of (time, key, sequence, offset, v, keeps); v None deletes."""
    return pa.table(
        {
            "k": pa.array([r[1] for r in rows], pa.int64()),
            "v": pa.array([r[4] for r in rows], pa.string()),
            "big": pa.array([None if r[5] else r[4] for r in rows], pa.string()),
            "s": pa.array([None if r[4] is None else r[2] for r in rows], pa.int64()),
            "_time": pa.array([r[0] for r in rows], pa.int64()),
            "_delete": pa.array([r[4] is None for r in rows], pa.bool_()),
            "_order0": pa.array([r[2] for r in rows], pa.int64()),
            "_order1": pa.array([r[3] for r in rows], pa.int64()),
            "_keep": pa.array([["big"] if r[5] else None for r in rows], pa.list_(pa.string())),
        }
    )


def as_table(rows, schema):
    return pa.Table.from_pylist(
        [dict(zip(schema.names, r, strict=True)) for r in rows], schema.arrow()
    )


def applied(content, updates, schema, upto):
    """The rows that a shard holds once it has these updates, up to a time."""
    counts = Counter(content)
    for update in updates.to_pylist():
        if update["_time"] <= upto:
            counts[tuple(update[name] for name in schema.names)] += update["_diff"]
    assert set(counts.values()) <= {0, 1}, counts
    return {row for row, count in counts.items() if count}


class Oracle:
    """What keys hold, one event after the other."""

    def __init__(self):
        self.live, self.tombs = {}, {}

    def step(self, events):
        """All events of one time."""
        time = events[0][0] if events else 0
        for key in {e[1] for e in events}:
            self._step(time, key, sorted(e for e in events if e[1] == key))

    def _step(self, time, key, events):
        row, tomb = self.live.get(key), self.tombs.get(key)
        held = row[3] if row else tomb[1] if tomb else None
        last = None
        for _, _, sequence, _, v, keeps in events:
            if held is not None and sequence < held:
                continue
            big = (row[2] if row else None) if keeps else v
            row = None if v is None else (key, v, big, sequence)
            last = sequence
        if last is None:
            return
        self.live.pop(key, None)
        self.tombs.pop(key, None)
        if row:
            self.live[key] = row
        else:
            same = tomb is not None and tomb[1] == last
            self.tombs[key] = tomb if same else (key, last, time)


event = st.tuples(
    st.integers(0, 4), st.integers(0, 2), st.integers(0, 6), st.just(0),
    st.none() | st.sampled_from("ab"), st.booleans(),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(event, max_size=14), st.sets(st.integers(1, 4)), st.randoms(use_true_random=False))
def test_rows_and_tombstones_equal_the_oracles_however_times_are_divided(events, cuts, chance):
    numbered = [
        (t, k, s, at, v, keeps and v is not None)
        for at, (t, k, s, _, v, keeps) in enumerate(events)
    ]
    live, tombs, oracle = set(), set(), Oracle()
    edges = [0, *sorted(cuts), 5]
    for start, stop in pairwise(edges):
        some = [e for e in numbered if start <= e[0] < stop]
        chance.shuffle(some)
        found = resolve(
            incoming(some), as_table(live, SCHEMA), SCHEMA, RULES, as_table(tombs, TOMBS)
        )
        for time in range(start, stop):
            oracle.step([e for e in some if e[0] == time])
            assert applied(live, found.updates, SCHEMA, time) == set(oracle.live.values())
            assert applied(tombs, found.tombs, TOMBS, time) == set(oracle.tombs.values())
        live = applied(live, found.updates, SCHEMA, stop)
        tombs = applied(tombs, found.tombs, TOMBS, stop)


AT_5 = (1, 5, 3)
CASES = {
    "a late row stays away": ([AT_5], (4, "a"), [], "late"),
    "a newer one comes back": ([AT_5], (6, "a"), [(*AT_5, -1)], None),
    "one of the same order comes back": ([AT_5], (5, "a"), [(*AT_5, -1)], None),
    "an absent key is buried": ([], (5, None), [(1, 5, 9, 1)], "unchanged"),
    "a newer deletion": ([AT_5], (6, None), [(*AT_5, -1), (1, 6, 9, 1)], "unchanged"),
    "the same deletion": ([AT_5], (5, None), [], "unchanged"),
    "an older deletion": ([AT_5], (2, None), [], "late"),
}


@pytest.mark.parametrize(("tombs", "came", "expected", "count"), CASES.values(), ids=CASES.keys())
def test_what_happens_to_a_tombstone(tombs, came, expected, count):
    none = as_table([], SCHEMA)
    sequence, value = came
    rows = incoming([(9, 1, sequence, 0, value, False)])
    found = resolve(rows, none, SCHEMA, RULES, as_table(tombs, TOMBS))
    said = [(u["k"], u["s"], u[BURIED_AT], u["_diff"]) for u in found.tombs.to_pylist()]
    assert said == expected
    assert (found.late, found.unchanged) == (int(count == "late"), int(count == "unchanged"))
    assert found.updates.num_rows == (value is not None and count != "late")


def test_without_the_rule_a_deleted_key_takes_any_row():
    rows = incoming([(1, 1, 5, 0, None, False), (2, 1, 4, 1, "a", False)])
    found = resolve(rows, as_table([], SCHEMA), SCHEMA, Rules(("s",)))
    assert (found.updates.num_rows, found.tombs) == (1, None)
    assert resolve(rows, as_table([], SCHEMA), SCHEMA, RULES).updates.num_rows == 0


def test_tombstones_need_an_order():
    with pytest.raises(UsageError, match="tombstones need an order"):
        resolve(incoming([]), as_table([], SCHEMA), SCHEMA, Rules(bury=True))


def test_the_schema_of_tombstones_is_the_key_the_order_and_a_time():
    assert (TOMBS.names, TOMBS.key) == (("k", "s", BURIED_AT), ("k",))
    same = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",))
    assert tomb_schema(same, Rules(("k",), bury=True)).names == ("k", BURIED_AT)


def test_no_events_bury_nothing():
    none, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    assert [each.tolist() for each in burials(none, flags, none, flags)] == [[], [], []]


def test_tombstones_say_when_they_were_made_and_the_old_ones_are_swept():
    rows = incoming([(4, 1, 5, 0, None, False)])
    held = as_table([(1, "a", None, 2)], SCHEMA)
    for rules, at in ((RULES, 4), (replace(RULES, buried_at=99), 99)):
        made = resolve(rows, held, SCHEMA, rules).tombs
        assert made[BURIED_AT].to_pylist() == [at]
        tombs = made.select(list(TOMBS.names))
        for before, stay in ((at, 1), (at + 1, 0)):
            kept, gone = swept(tombs, before)
            assert (kept.num_rows, gone.num_rows) == (stay, 1 - stay)
    # What is there keeps its own word when it goes.
    again = incoming([(5, 1, 7, 0, "b", False)])
    found = resolve(again, as_table([], SCHEMA), SCHEMA, replace(RULES, buried_at=200), tombs)
    assert found.tombs.select([BURIED_AT, "_diff"]).to_pylist() == [{BURIED_AT: 99, "_diff": -1}]
