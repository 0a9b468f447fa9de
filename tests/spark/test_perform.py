"""Task code without Spark: what is few comes back, what is many is put, and rows are right."""

import pyarrow as pa
import pytest
from tests.spark.workbench import SCHEMA, bench, blocks, rows, stored

from strandline.errors import SchemaError, UsageError
from strandline.model.digest import Digest
from strandline.parts.lookup import Keys
from strandline.parts.part import PLACE_MAX
from strandline.spark import perform, slices
from strandline.spark.instruction import Counts, Errand, RangeWork

MANY = 10**9


def pairs(table: pa.Table) -> list[tuple]:
    return sorted(
        zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
    )


def batches(*tables: pa.Table) -> list[pa.RecordBatch]:
    return [batch for table in tables for batch in table.to_batches()]


def work(came: pa.Table, parts=(), inline: pa.Table | None = None) -> RangeWork:
    return RangeWork(
        0,
        PLACE_MAX,
        rows=slices.to_stream(came),
        parts=tuple(parts),
        inline=b"" if inline is None else slices.to_stream(inline),
    )


# ---- append


def test_few_appended_rows_come_back():
    made = bench()
    answer = perform.append(made, batches(rows((1, "a"))), None, MANY)
    assert not answer.parts
    found = slices.from_stream(answer.rows, "it")
    assert pairs(found) == [(1, "a", 1)]
    assert not list(made.blob.list(""))


def test_many_appended_rows_become_untimed_parts_with_their_digest():
    answer = perform.append(bench(), batches(rows((1, "a"), (2, None))), None, 0)
    (part,) = answer.parts
    assert part.untimed
    assert part.inserts
    assert answer.digests == ((0, part.digest),)
    assert answer.rows_in == 2


def test_an_empty_task_says_nothing():
    assert perform.append(bench(), [], None, 0) == perform.Answer()
    assert perform.stage(bench(), [], 0) == perform.Answer()


def test_rows_with_times_keep_them():
    timed = rows((1, "a"), (2, "b")).append_column("_time", pa.array([5, 6]))
    answer = perform.append(bench(), batches(timed), (5, 7), 0)
    assert [time for time, _ in answer.digests] == [5, 6]
    assert not answer.parts[0].untimed


def test_rows_come_in_flushes_of_bounded_size():
    made = batches(*(rows((n, "x" * 1000)) for n in range(100)))
    size = made[0].nbytes
    flushed = list(perform.flushes(made, 10 * size))
    assert [table.num_rows for table, _ in flushed] == [10] * 10
    assert [last for _, last in flushed] == [False] * 9 + [True]


# ---- stage


def test_few_staged_rows_come_back_and_many_are_put_by_place():
    made = bench()
    came = batches(rows((3, "c"), (1, "a")), rows((2, "b")))
    few = perform.stage(made, came, MANY)
    assert pairs(slices.from_stream(few.rows, "it")) == [(1, "a"), (2, "b"), (3, "c")]
    many = perform.stage(made, came, 0)
    assert not many.rows
    (staged,) = many.staged
    assert pairs(pa.Table.from_batches(made.unstaged(staged))) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_null_in_the_key_is_refused_by_name():
    wrong = pa.table({"k": pa.array([1, None]), "v": ["a", "b"]})
    with pytest.raises(SchemaError, match=r"row 1 .* null in 'k'"):
        perform.stage(bench(), batches(wrong), MANY)


def test_values_that_do_not_fit_are_refused_and_others_are_cast():
    narrow = pa.table({"k": pa.array([1], pa.int8()), "v": pa.array(["a"], pa.large_string())})
    assert perform.accepted(narrow, SCHEMA).schema.types == [pa.int64(), pa.string()]
    wrong = pa.table({"k": pa.array([2**63], pa.uint64()), "v": ["a"]})
    with pytest.raises(SchemaError):
        perform.accepted(wrong, SCHEMA)


# ---- lookup


def test_live_rows_are_what_parts_and_inline_rows_add_up_to(tmp_path):
    made = bench()
    first = rows((1, "a"), (2, "b"), (3, "c"))
    change = rows((1, "a"), (1, "A")).append_column("_diff", pa.array([-1, 1]))
    parts = stored(made, first, change)
    gone = rows((2, "b")).append_column("_time", pa.array([2]))
    gone = gone.append_column("_diff", pa.array([-1])).cast(SCHEMA.updates())
    wanted = Keys.of(pa.table({"k": [1, 2, 9]}), SCHEMA)
    find = blocks(made, tmp_path)
    there = work(rows(), parts, gone)
    assert pairs(perform.live_rows(made, find, there, wanted, 2)) == [(1, "A")]
    without = work(rows(), parts)
    assert pairs(perform.live_rows(made, find, without, wanted, 1)) == [(1, "A"), (2, "b")]
    assert pairs(perform.live_rows(made, find, without, wanted, 0)) == [(1, "a"), (2, "b")]
    assert pairs(perform.live_rows(made, find, without, wanted, None)) == []


def test_a_row_that_is_there_twice_is_found_twice_and_one_below_zero_is_refused(tmp_path):
    made = bench()
    parts = stored(made, rows((1, "a")), rows((1, "a")))
    find = blocks(made, tmp_path)
    wanted = Keys.of(pa.table({"k": [1]}), SCHEMA)
    assert pairs(perform.live_rows(made, find, work(rows(), parts), wanted, 1)) == [(1, "a")] * 2
    below = stored(made, rows((1, "a")).append_column("_diff", pa.array([-1])))
    with pytest.raises(UsageError, match="retracted more often"):
        perform.live_rows(made, find, work(rows(), below), wanted, 0)


def test_hits_that_are_many_are_put_and_keys_can_be_given_back_instead(tmp_path):
    made = bench()
    parts = stored(made, rows((1, "a"), (2, "b")))
    find = blocks(made, tmp_path)
    keys = pa.table({"k": [1, 2]})
    errand = Errand((work(keys, parts),), 0, inline_max=0)
    answer = perform.lookup(made, find, errand)
    assert pairs(pa.Table.from_batches(made.unstaged(answer.staged[0]))) == [(1, "a"), (2, "b")]
    empty = Errand((RangeWork(0, PLACE_MAX, parts=tuple(parts)),), 0, inline_max=0)
    again = perform.lookup_few(made, find, empty, slices.to_stream(keys))
    assert pairs(pa.Table.from_batches(made.unstaged(again.staged[0]))) == [(1,), (2,)]


# ---- upsert


@pytest.mark.parametrize("room", [0, MANY])
def test_an_upsert_puts_what_changes_or_gives_it_back(tmp_path, room):
    made = bench()
    parts = stored(made, rows((1, "a"), (2, "b"), (3, "c")))
    came = rows((1, "A"), (2, "b"), (3, None), (4, "d"))
    came = came.append_column("_delete", pa.array([False, False, True, False]))
    errand = Errand((work(came, parts),), 0, time=1, inline_max=room)
    answer = perform.upsert(made, blocks(made, tmp_path), errand)
    assert answer.counts == Counts(upserted=2, deleted=1, unchanged=1)
    if room:
        found = slices.from_stream(answer.rows, "it")
    else:
        (part,) = answer.parts
        assert part.untimed
        assert dict(answer.digests)[1] == part.digest
        assert Digest.unpack(part.digest).count == 0
        wanted = Keys.of(came, SCHEMA)
        owner = perform.Owner(made.ground.shard_id, part.key)
        found = blocks(made, tmp_path).lookup(part, SCHEMA, owner, wanted, as_of=1)
    assert pairs(found) == [(1, "A", 1, 1), (1, "a", 1, -1), (3, "c", 1, -1), (4, "d", 1, 1)]


def test_staged_rows_of_other_ranges_are_left_to_their_tasks(tmp_path):
    made = bench()
    staged = perform.put_by_place(made, rows(*((n, "x") for n in range(100))))
    half = PLACE_MAX // 2
    counts = Counts()
    for lo, hi in ((0, half), (half + 1, PLACE_MAX)):
        errand = Errand((RangeWork(lo, hi, staged=(staged,)),), None, time=0, inline_max=MANY)
        answer = perform.upsert(made, blocks(made, tmp_path), errand)
        assert 0 < answer.counts.upserted < 100
        counts += answer.counts
    assert counts.upserted == 100


def test_replacements_are_no_deletions_even_beside_other_keys(tmp_path):
    made = bench()
    parts = stored(made, rows(*((n, "x") for n in range(50))))
    came = rows(*((n, "y") for n in range(50)))
    errand = Errand((work(came, parts),), 0, time=1, inline_max=MANY)
    answer = perform.upsert(made, blocks(made, tmp_path), errand)
    assert answer.counts == Counts(upserted=50)
