"""What comes out is what went in, consolidated, however little memory there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import StoreError
from strandline.pipeline.pending import BUCKETS, Pending
from strandline.store.memory import MemoryBlob
from strandline.system import SystemRandom

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("_time", pa.int64()), ("_diff", pa.int64())]
)
_ROW = st.tuples(
    st.integers(0, 9), st.sampled_from("ab"), st.integers(0, 3), st.sampled_from([1, -1])
)


def table(rows: Iterable[tuple[int, str, int, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return pa.table([pa.array(each) for each in columns], SCHEMA.names).cast(SCHEMA)


def pending(memory_max: int, key: tuple[str, ...] = ("id",)) -> tuple[Pending, MemoryBlob]:
    blob = MemoryBlob()
    return Pending(lambda: blob, SystemRandom(), key, memory_max), blob


def summed(pieces: Iterable[pa.Table]) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for piece in pieces:
        assert piece.num_rows, "a piece without rows"
        for row in piece.to_pylist():
            assert (row["id"], row["name"]) not in found, "not consolidated"
            found[row["id"], row["name"]] = row["_diff"]
    return found


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(_ROW, min_size=1)), st.sampled_from([0, 100, 10_000]))
def test_every_time_gives_what_was_added_to_it(batches: list, memory_max: int) -> None:
    held, blob = pending(memory_max)
    expected: dict[int, Counter[tuple[int, str]]] = {}
    for batch in batches:
        held.add(table(batch))
        for id_, name, time, diff in batch:
            expected.setdefault(time, Counter())[id_, name] += diff
    assert held.times() == sorted(expected)
    assert held.memory_bytes <= memory_max
    for time, sums in expected.items():
        assert summed(held.take(time)) == {row: n for row, n in sums.items() if n}
    assert held.times() == []
    assert list(blob.list("")) == [], "what was taken is deleted"


@settings(deadline=None, max_examples=50)
@given(st.lists(_ROW, min_size=1), st.sampled_from([0, 10_000]))
def test_what_is_merged_is_one_change_at_the_later_time(rows: list, memory_max: int) -> None:
    held, _ = pending(memory_max)
    held.add(table(rows))
    held.merge(2)
    early = Counter[tuple[int, str]]()
    for id_, name, time, diff in rows:
        early[id_, name] += diff if time <= 2 else 0
    assert set(held.times()) <= {2, 3}
    assert summed(held.take(2)) == {row: n for row, n in early.items() if n}


@pytest.mark.parametrize("memory_max", [0, 1_000_000])
def test_changes_of_one_key_are_in_one_piece_next_to_each_other(memory_max: int) -> None:
    held, blob = pending(memory_max)
    held.add(table((id_, "new", 0, 1) for id_ in range(1_000)))
    held.add(table((id_, "old", 0, -1) for id_ in reversed(range(1_000))))
    spilled = len(list(blob.list("")))
    assert spilled == (2 * BUCKETS if memory_max == 0 else 0)
    seen = []
    for piece in held.take(0):
        rows = list(zip(piece["id"].to_pylist(), piece["_diff"].to_pylist(), strict=True))
        assert rows == sorted(rows)
        seen += rows
    assert sorted(seen) == [(id_, diff) for id_ in range(1_000) for diff in (-1, 1)]


@pytest.mark.parametrize("memory_max", [0, 1_000_000])
def test_of_one_key_what_goes_is_before_what_comes(memory_max: int) -> None:
    """Also where the keys lie in order already."""
    held, _ = pending(memory_max)
    held.add(table([(1, "a", 0, 1), (2, "new", 0, 1), (2, "old", 0, -1), (3, "a", 0, 1)]))
    rows = [row for piece in held.take(0) for row in piece.to_pylist()]
    assert [row["_diff"] for row in rows if row["id"] == 2] == [-1, 1]
    assert sorted(row["id"] for row in rows) == [1, 2, 2, 3]


MAX = 20_000


def of_keys(keys: Iterable[int], width: int = 100) -> pa.Table:
    return table((key, "x" * width, 0, 1) for key in keys)


@pytest.mark.parametrize("key", [("id",), ()])
def test_a_transaction_of_any_size_leaves_in_pieces_within_the_bound(key: tuple[str, ...]) -> None:
    held, blob = pending(MAX, key)
    for start in range(0, 1_000, 50):
        held.add(of_keys(range(start, start + 50), 3_000))
    spilled = sum(each.size for each in blob.list(""))
    assert spilled > 2 * MAX * BUCKETS, "a bucket is larger than the bound"
    pieces = list(held.take(0))
    assert max(each.nbytes for each in pieces) <= MAX
    assert sorted(id_ for each in pieces for id_ in each["id"].to_pylist()) == list(range(1_000))
    assert list(blob.list("")) == [], "what was taken is deleted"


def test_a_bucket_that_is_cut_again_keeps_keys_together_and_settles_them() -> None:
    held, _ = pending(1_000)
    for name, diff in (("new", 1), ("gone", 1), ("old", -1), ("gone", -1)):
        held.add(table((id_, name, 0, diff) for id_ in range(1_500)))
    where: dict[int, int] = {}
    for number, piece in enumerate(held.take(0)):
        rows = list(zip(piece["id"].to_pylist(), piece["_diff"].to_pylist(), strict=True))
        assert rows == sorted(rows)
        assert {id_ for id_, _ in rows}.isdisjoint(where), "in one piece alone"
        where |= dict.fromkeys((id_ for id_, _ in rows), number)
        assert len(rows) == 2 * len({id_ for id_, _ in rows})
    assert set(where) == set(range(1_500))
    assert len(set(where.values())) > BUCKETS


def test_only_a_key_that_is_too_large_alone_is_beyond_the_bound() -> None:
    held, _ = pending(MAX)
    for start in range(0, 10_000, 1_000):
        held.add(of_keys(range(start, start + 1_000)))
        held.add(table((77, f"{n} {'x' * 100}", 0, 1) for n in range(start, start + 1_000)))
    seen: Counter[int] = Counter()
    for piece in held.take(0):
        seen.update(piece["id"].to_pylist())
        assert piece.nbytes <= MAX or set(piece["id"].to_pylist()) == {77}
    assert seen == Counter(range(10_000)) + Counter({77: 10_000})


def test_a_key_that_is_too_large_is_not_cut_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    held, blob = pending(0)
    held.add(table((77, str(n), 0, 1) for n in range(1_000)))
    monkeypatch.setattr(blob, "put", None)  # Nothing is written again.
    assert [each.num_rows for each in held.take(0)] == [1_000]


def test_hashes_that_differ_in_their_last_bits_alone_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "strandline.pipeline.pending.row_base",
        lambda rows, _: rows["id"].to_numpy().astype("uint64"),
    )
    held, _ = pending(0)
    held.add(table((id_, "a", 0, 1) for id_ in range(16)))
    assert [each["id"].to_pylist() for each in held.take(0)] == [[id_] for id_ in range(16)]


def test_what_is_gone_from_the_disk_is_never_left_out_silently() -> None:
    held, blob = pending(0)
    held.add(table([(1, "a", 0, 1)]))
    for each in list(blob.list("")):
        blob.delete(each.key)
    with pytest.raises(StoreError, match="are gone"):
        list(held.take(0))
