"""Random histories of upserts, resolved by the kernel and by the reference engine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import UsageError
from strandline.model.engine import Rules
from strandline.model.schema import Schema
from strandline.parts import layout
from strandline.parts.consolidate import consolidate
from strandline.parts.upsert import resolve
from strandline.testing.reference import ReferenceEngine, canonical

NAN = float("nan")
STORED = Rules(("s",))
WIDE = Schema.create(
    pa.schema(
        [
            ("g", pa.string()),
            ("k", pa.int8()),
            ("x", pa.float64()),
            ("l", pa.list_(pa.float32())),
            ("s", pa.float64()),
        ]
    ),
    ("k", "g"),
)
ORDER = st.sampled_from([None, -1.0, -0.0, 0.0, 2.0, NAN])
EVENT = st.fixed_dictionaries(
    {
        "g": st.sampled_from(["", "a"]),
        "k": st.integers(0, 1),
        "x": st.sampled_from([None, 0.0, -0.0, NAN, 1.0]),
        "l": st.sampled_from([None, [], [-0.0], [0.0], [NAN]]),
        "s": ORDER,
        "_time": st.integers(0, 3),
        "_delete": st.sampled_from([None, False, False, True]),
    }
)
HISTORY = st.lists(st.lists(EVENT, max_size=10), min_size=1, max_size=3)
LAST = 4
"""Each batch of a history has this many times."""


def counted(updates: list[dict]) -> Counter:
    found: Counter = Counter()
    for update in updates:
        found[canonical({n: x for n, x in update.items() if n != "_diff"})] += update["_diff"]
    return Counter({row: diff for row, diff in found.items() if diff})


def as_incoming(events: list[dict], orders: int, shift: int) -> list[dict]:
    """With the columns by which rows are put in order: none, or `s`, or something and `s`."""
    found = []
    for event in events:
        row = {**event, "_time": event["_time"] + shift}
        if orders:
            row["_order0"] = event["s"]
        if orders > 1:
            row["_order1"] = event["k"] if event["x"] is None else event["x"]
        found.append(row)
    return found


def as_table(rows: list[dict], orders: int) -> pa.Table:
    fields = [*WIDE.arrow(), pa.field("_time", pa.int64()), pa.field("_delete", pa.bool_())]
    fields += [pa.field(f"_order{at}", pa.float64()) for at in range(orders)]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def crowded(table: pa.Table, _schema: Schema) -> np.ndarray:
    return table["k"].to_numpy().astype(np.uint64)


@pytest.mark.parametrize("crowd", [False, True], ids=["", "keys share places"])
@pytest.mark.parametrize(
    ("orders", "rules"),
    [(0, Rules()), (1, Rules()), (2, Rules()), (1, STORED), (2, Rules(("s", "x")))],
)
@settings(deadline=None, max_examples=60)
@given(history=HISTORY, chance=st.randoms(use_true_random=False))
def test_a_random_history_is_resolved_as_the_reference_does(orders, rules, crowd, history, chance):
    engine = ReferenceEngine()
    engine.create("t", WIDE)
    live = WIDE.arrow().empty_table()
    for number, events in enumerate(history):
        shift, upper = number * LAST, (number + 1) * LAST
        rows = as_incoming(events, orders, shift)
        if orders == 2 and rules.compare_stored:
            rows = [{**row, "_order1": row["x"]} for row in rows]
        mixed = chance.sample(rows, len(rows))
        with pytest.MonkeyPatch.context() as patch:
            if crowd:
                patch.setattr(layout, "places_of", crowded)
            try:
                written = engine.upsert("t", rows, upper, rules)
            except UsageError:
                with pytest.raises(UsageError):
                    resolve(as_table(mixed, orders), live, WIDE, rules)
                return
            found = resolve(as_table(mixed, orders), live, WIDE, rules)
        told = engine.changes("t", shift, upper)
        assert counted(found.updates.to_pylist()) == counted(told)
        assert found.updates.num_rows == written.updates
        counts = (written.superseded, written.late, written.unchanged)
        assert (found.superseded, found.late, found.unchanged) == counts
        before = live.append_column("_diff", pa.repeat(pa.scalar(1, pa.int64()), live.num_rows))
        after = found.updates.drop_columns(["_time"])
        both = consolidate(pa.concat_tables([before.cast(after.schema), after]))
        assert both["_diff"].to_pylist() == [1] * both.num_rows
        live = both.drop_columns(["_diff"])


@pytest.mark.parametrize(("orders", "rules"), [(1, Rules()), (1, STORED)])
@settings(deadline=None, max_examples=60)
@given(events=st.lists(EVENT, max_size=12), cut=st.integers(1, LAST - 1))
def test_it_does_not_matter_how_times_are_divided_among_calls(orders, rules, events, cut):
    rows = as_incoming(events, orders, 0)
    none = WIDE.arrow().empty_table()
    whole = resolve(as_table(rows, orders), none, WIDE, rules)
    first = resolve(as_table([r for r in rows if r["_time"] < cut], orders), none, WIDE, rules)
    live = consolidate(first.updates.drop_columns(["_time"])).drop_columns(["_diff"])
    rest = resolve(as_table([r for r in rows if r["_time"] >= cut], orders), live, WIDE, rules)
    halves = pa.concat_tables([first.updates, rest.updates]).to_pylist()
    assert counted(halves) == counted(whole.updates.to_pylist())
    assert whole.late == first.late + rest.late
