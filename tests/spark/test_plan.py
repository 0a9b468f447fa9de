"""What tasks are told: everything that came, once; and every part that may hold an old row."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from tests.spark.workbench import SCHEMA, bench, rows, stored

from strandline.model.frontier import Frontier
from strandline.parts.inline import encode_inline
from strandline.parts.lookup import Keys
from strandline.parts.part import PLACE_MAX
from strandline.parts.rows import check_rows
from strandline.spark import slices
from strandline.spark.instruction import Answer
from strandline.spark.perform import put_by_place
from strandline.spark.plan import (
    HEAVIER_MOST,
    Gathered,
    Stored,
    decoded_inline,
    everywhere,
    ranges,
)
from strandline.spark.schedule import RANGE_BYTES, TASK_KEYS, TASK_PARTS

NOTHING = Stored.of((), (), SCHEMA, None)


def many(count: int) -> pa.Table:
    return rows(*((n, "x") for n in range(count)))


def keys_in(works: list[list]) -> list[int]:
    return [
        key
        for task in works
        for work in task
        if work.rows
        for key in slices.from_stream(work.rows, "it")["k"].to_pylist()
    ]


def test_few_rows_are_one_task_and_more_are_divided():
    few = Gathered.of([many(10)], (), SCHEMA)
    assert len(ranges(few, NOTHING, 2)) == 1
    more = Gathered.of([many(3 * TASK_KEYS)], (), SCHEMA)
    works = ranges(more, NOTHING, 4)
    assert len(works) == 3
    assert len(ranges(more, NOTHING, 2)) == 2
    assert sorted(keys_in(works)) == list(range(3 * TASK_KEYS))


def test_few_keys_that_touch_many_parts_are_divided():
    parts = stored(bench(part_rows=20), many(1000))
    assert len(parts) > 2 * TASK_PARTS
    few = Gathered.of([many(1000)], (), SCHEMA)
    works = ranges(few, Stored.of(parts, (), SCHEMA, None), 2)
    assert [len(task) for task in works] == [1, 1]
    assert sorted(keys_in(works)) == list(range(1000))
    assert len(ranges(few, Stored.of(parts[:TASK_PARTS], (), SCHEMA, None), 2)) == 1


def test_what_deletes_heavy_rows_is_divided_by_what_it_deletes():
    made = bench()
    light = stored(made, many(1000))
    heavy = [replace(part, size=part.rows * 20_000) for part in light]
    came = many(200_000)
    here, put = Gathered.of([came], (), SCHEMA), Gathered.of([], [put_by_place(made, came)], SCHEMA)
    for gathered in (here, put):
        few, more = (
            sorted(
                (work.place_lo, work.place_hi)
                for task in ranges(gathered, stand, 1)
                for work in task
            )
            for stand in (Stored.of(parts, (), SCHEMA, None) for parts in (light, heavy))
        )
        assert len(few) <= 2
        # As if the rows that came were 64 times as large, and not more.
        assert 0 <= len(more) - came.nbytes * HEAVIER_MOST / RANGE_BYTES < 2
        assert (more[0][0], more[-1][1]) == (0, PLACE_MAX)
        assert all(last + 1 == first for (_, last), (first, _) in pairwise(more))
    assert sorted(keys_in(ranges(here, Stored.of(heavy, (), SCHEMA, None), 1))) == [*range(200_000)]


def test_rows_of_tasks_and_staged_objects_are_gathered():
    made = bench()
    staged = put_by_place(made, many(5000))
    answers = [Answer(rows=slices.to_stream(rows((9999, "y")))), Answer(staged=(staged,))]
    came = Gathered.from_answers(answers, SCHEMA)
    assert came.wanted is None
    works = [work for task in ranges(came, NOTHING, 2) for work in task]
    assert keys_in([works]) == [9999]
    assert len(works) >= 2
    assert min(work.place_lo for work in works) == 0
    assert max(work.place_hi for work in works) == PLACE_MAX
    assert all(work.staged for work in works)


def test_nothing_that_came_is_nothing_to_plan():
    came = Gathered.from_answers([Answer()], SCHEMA)
    assert not came
    assert ranges(came, NOTHING, 2) == []


def test_each_range_gets_the_parts_and_inline_rows_that_it_touches():
    made = bench(part_rows=500)
    parts = stored(made, many(4000))
    inline = check_rows(many(50), SCHEMA, lower=1, upper=Frontier(2))
    table = decoded_inline(encode_inline(inline), SCHEMA, "t", 1)
    came = Gathered.of([many(3 * TASK_KEYS)], (), SCHEMA)
    there = Stored.of(parts, [table], SCHEMA, None)
    works = [work for task in ranges(came, there, 2) for work in task]
    listed = [part.key for work in works for part in work.parts]
    assert set(listed) == {part.key for part in parts}
    assert len(listed) < len(parts) * len(works)
    assert all(part.stats == b"" for work in works for part in work.parts)
    inline_keys = [
        key
        for work in works
        if work.inline
        for key in slices.from_stream(work.inline, "it")["k"].to_pylist()
    ]
    assert sorted(inline_keys) == list(range(50))


def test_only_inline_updates_of_wanted_keys_travel():
    inline = check_rows(many(50), SCHEMA, lower=1, upper=Frontier(2))
    table = decoded_inline(encode_inline(inline), SCHEMA, "t", 1)
    there = Stored.of((), [table], SCHEMA, Keys.of(pa.table({"k": [7, 8, 99]}), SCHEMA))
    assert sorted(there.inline["k"].to_pylist()) == [7, 8]
    assert everywhere(there).inline


def test_inline_updates_after_the_time_are_left_out():
    timed = many(4).append_column("_time", pa.array([1, 2, 3, 4]))
    inline = encode_inline(check_rows(timed, SCHEMA, lower=1, upper=Frontier(5)))
    assert sorted(decoded_inline(inline, SCHEMA, "t", 2)["k"].to_pylist()) == [0, 1]


def test_wanted_places_are_known_where_all_rows_are_here():
    came = Gathered.of([rows((1, "a"), (1, "b"), (2, "c"))], (), SCHEMA)
    assert came.wanted is not None
    assert len(came.wanted) == 2
    assert (np.diff(came.places.astype(np.float64)) >= 0).all()
