"""Digests add up like the multisets they stand for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import CorruptionError
from strandline.model import digest as digest_module
from strandline.model.digest import Digest, per_time
from strandline.model.rowhash import DIGEST_SALT_A, DIGEST_SALT_B, mix64, row_base

U64_MAX = 2**64 - 1
Update = tuple[int, int, int]  # base hash, time, diff

bases = st.integers(0, U64_MAX)
updates = st.lists(st.tuples(bases, st.integers(0, 5), st.integers(-3, 3)), max_size=40)


def arrays(some: list[Update]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    base, times, diffs = zip(*some, strict=True) if some else ((), (), ())
    return np.array(base, np.uint64), np.array(times, np.int64), np.array(diffs, np.int64)


def digest(some: list[Update]) -> Digest:
    base, _, diffs = arrays(some)
    return Digest.of(base, diffs)


def reference(some: list[Update]) -> Digest:
    return Digest(
        sum(diff for _, _, diff in some),
        sum(diff * mix64(base + DIGEST_SALT_A) for base, _, diff in some) % 2**64,
        sum(diff * mix64(base + DIGEST_SALT_B) for base, _, diff in some) % 2**64,
    )


@settings(deadline=None)
@given(updates)
def test_a_digest_is_the_sums_that_its_definition_says(some: list[Update]):
    assert digest(some) == reference(some)


@settings(deadline=None)
@given(updates, updates)
def test_digests_of_two_batches_add_up_to_that_of_both(some: list[Update], more: list[Update]):
    assert digest(some) + digest(more) == digest(some + more)
    assert digest(some + more) - digest(more) == digest(some)


@settings(deadline=None)
@given(updates.flatmap(lambda some: st.tuples(st.just(some), st.permutations(some))))
def test_the_order_of_updates_does_not_matter(pair: tuple[list[Update], list[Update]]):
    some, shuffled = pair
    assert digest(some) == digest(shuffled)


@settings(deadline=None)
@given(updates, st.integers(0, 40))
def test_where_a_batch_is_cut_does_not_matter(some: list[Update], cut: int):
    assert digest(some[:cut]) + digest(some[cut:]) == digest(some)


@settings(deadline=None)
@given(updates, bases)
def test_an_insertion_and_its_retraction_leave_nothing(some: list[Update], base: int):
    assert digest([*some, (base, 0, 1), (base, 3, -1)]) == digest(some)
    assert not digest([(base, 0, 1), (base, 3, -1)])


@settings(deadline=None)
@given(bases, bases)
def test_s69_two_identical_rows_do_not_cancel(base: int, other: int):
    pair = digest([(base, 0, 1), (base, 0, 1)])
    assert pair == digest([(base, 0, 2)])
    # Exclusive-or would make every identical pair zero, and so equal to every other pair.
    assert (pair.a, pair.b) != (0, 0)
    assert (pair == digest([(other, 0, 1), (other, 0, 1)])) == (base == other)


def test_s69_a_duplicated_and_a_dropped_row_are_seen_although_the_count_is_right():
    base = row_base(pa.table({"v": ["x", "y", "z"]}), [1])
    sent = Digest.of(base, np.array([1, 1, 1]))
    found = Digest.of(base, np.array([2, 0, 1]))
    assert sent.count == found.count
    assert sent != found


@settings(deadline=None)
@given(updates)
def test_a_digest_per_time_is_the_digest_of_the_updates_at_that_time(some: list[Update]):
    expected = {t: digest([u for u in some if u[1] == t]) for t in sorted({u[1] for u in some})}
    found = per_time(*arrays(some))
    assert found == expected
    assert list(found) == list(expected)


@settings(deadline=None)
@given(updates)
def test_blocks_do_not_show(some: list[Update]):
    whole, times = digest(some), per_time(*arrays(some))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest_module, "_BLOCK", 3)
        assert digest(some) == whole
        assert per_time(*arrays(some)) == times


def test_times_at_the_ends_of_their_range_are_told_apart():
    base = np.arange(4, dtype=np.uint64)
    times = np.array([2**63 - 2, 0, -(2**63), 0])
    found = per_time(base, times, np.ones(4, np.int64))
    assert {time: each.count for time, each in found.items()} == {-(2**63): 1, 0: 2, 2**63 - 2: 1}


@settings(deadline=None)
@given(updates)
def test_a_digest_survives_24_bytes(some: list[Update]):
    packed = digest(some).pack()
    assert len(packed) == 24
    assert Digest.unpack(packed) == digest(some)


@pytest.mark.parametrize("packed", [b"", b"\0" * 23, b"\0" * 25])
def test_bytes_of_another_length_are_no_digest(packed: bytes):
    with pytest.raises(CorruptionError, match="24 bytes"):
        Digest.unpack(packed)


def test_a_count_that_leaves_64_bits_wraps_so_that_every_digest_can_be_packed():
    most = Digest(2**63 - 1, 0, 0)
    assert (most + Digest(1, 0, 0)).count == -(2**63)
    assert most + Digest(1, 0, 0) - Digest(1, 0, 0) == most


def test_diffs_that_are_a_strided_view_count_like_others():
    both = np.array([[1, 9], [-1, 9], [2, 9]])
    base = np.arange(3, dtype=np.uint64)
    assert Digest.of(base, both[:, 0]) == Digest.of(base, np.array([1, -1, 2]))
