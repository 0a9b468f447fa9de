"""Two multisets are the same, or rows of the difference are named; whatever the order."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from strandline.pipeline import compare
from strandline.pipeline.compare import Columns, Rest, Side, affordable, differing

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
COLUMNS = Columns(SCHEMA, (1, 2))
Row = tuple[int, str | None, int]


def table(rows: list[Row]) -> pa.Table:
    ids, names, diffs = ([row[at] for row in rows] for at in range(3))
    return pa.table({"_diff": diffs, "name": pa.array(names, pa.string()), "id": ids})


def side(*tables: pa.Table) -> Side:
    made = Side(COLUMNS)
    for each in tables:
        made.add(each)
    return made


def left(one: list[Row], other: list[Row]) -> tuple[bool, Counter[tuple[object, object]]]:
    """Whether they are found to differ, and how many more of each row the first has."""
    first, second = side(table(one)), side(table(other))
    places = differing(first, second)
    rest = Rest(COLUMNS, affordable(places, first, second))
    rest.add(table(one), 1)
    rest.add(table(other), -1)
    found = Counter()
    for each in rest.differences(10**6):
        found[each.row["id"], each.row["name"]] += each.more
    return bool(places), found


def test_the_same_rows_in_another_order_and_cut_otherwise_are_the_same() -> None:
    rows = [(each, f"n{each}", 1) for each in range(3_000)]
    history = [
        *rows,
        *((each, "gone", 1) for each in range(50)),
        *((each, "gone", -1) for each in range(50)),
    ]
    random.Random(7).shuffle(history)
    cut = [table(history[at : at + 170]) for at in range(0, len(history), 170)]
    one, other = side(*cut), side(table(rows))
    assert differing(one, other) == []
    assert one.total == other.total
    assert one.total.count == 3_000


@pytest.mark.parametrize("seed", range(8))
def test_what_differs_is_named_exactly(seed: int) -> None:
    chance = random.Random(seed)
    rows = [(each, f"n{each}", 1) for each in range(2_000)]
    changed, expected = list(rows), Counter()
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(changed))
        row = changed[at]
        kind = chance.choice(["gone", "twice", "other"])
        if kind == "twice":
            changed.append(row)
            expected[row[:2]] += 1
        else:
            expected[row[:2]] -= 1
            changed.pop(at)
        if kind == "other":
            changed.append((row[0], None, 1))
            expected[row[0], None] += 1
    found, rest = left(changed, rows)
    assert found
    assert rest == Counter({row: count for row, count in expected.items() if count})


def test_one_row_more_and_one_less_do_not_cancel() -> None:
    found, rest = left([(1, "a", 1), (2, "b", 1)], [(1, "a", 1), (3, "b", 1)])
    assert (found, rest) == (True, Counter({(2, "b"): 1, (3, "b"): -1}))


def test_the_second_look_takes_what_it_can_afford(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = side(table([(each, "x", 1) for each in range(5_000)])), side()
    places = differing(one, other)
    assert len(places) > 900
    assert affordable(places, one, other) == frozenset(places)
    monkeypatch.setattr(compare, "ROWS_MAX", 10)
    some = affordable(places, one, other)
    assert 1 <= len(some) <= 10
    assert sum(one.updates[place] for place in some) <= 10
    monkeypatch.setattr(compare, "ROWS_MAX", 0)
    assert len(affordable(places, one, other)) == 1


def test_what_is_on_both_sides_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "ROWS_MAX", 100)
    rest = Rest(COLUMNS, range(compare.PLACES))
    for _ in range(50):
        rows = table([(each, "x", 1) for each in range(60)])
        rest.add(rows, 1)
        rest.add(rows, -1)
        assert sum(each.num_rows for each in rest._kept) <= 220
    assert rest.differences(5) == []
    assert Rest(COLUMNS, [1]).differences(5) == []


def test_columns_of_other_types_are_taken_if_they_fit() -> None:
    narrow = pa.table({"id": pa.array([1], pa.int32()), "name": ["a"], "_diff": [1], "more": [0]})
    assert side(narrow).total == side(table([(1, "a", 1)])).total
    with pytest.raises(KeyError):
        side(pa.table({"id": [1], "_diff": [1]}))


def test_the_entries_of_a_map_have_no_order() -> None:
    """PostgreSQL keeps them in its own; whoever reads them back finds the same map."""
    kind = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.map_(pa.int8(), pa.bool_())))]))
    columns = Columns(pa.schema([("maps", kind)]), (1,))
    inner = [(1, True), (2, None)]

    def made(*entries: tuple[str, list[tuple[int, bool | None]] | None]) -> pa.Table:
        values = pa.array([[{"m": list(entries)}, None, {"m": None}], None], kind)
        return pa.table({"maps": values, "_diff": [1, 1]})

    one, other, third = Side(columns), Side(columns), Side(columns)
    one.add(made(("bb", inner), ("c", None)))
    other.add(made(("c", None), ("bb", inner[::-1])))
    third.add(made(("c", inner), ("bb", None)))
    assert differing(one, other) == []
    assert differing(one, third)
