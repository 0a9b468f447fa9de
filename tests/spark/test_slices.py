"""Rows on their way between tasks: what is staged comes back, and damage is noticed."""

import numpy as np
import pyarrow as pa
import pytest

from strandline.errors import CorruptionError
from strandline.spark import slices
from strandline.spark.instruction import Slice, Staged

MANY = 200_000


def staged() -> tuple[pa.Table, np.ndarray, Staged, bytes]:
    places = np.sort(np.random.default_rng(1).integers(0, 2**64, MANY, dtype=np.uint64))
    table = pa.table({"n": np.arange(MANY), "s": [f"row {n}" for n in range(MANY)]})
    described, encoded = slices.stage(table, places)
    return table, places, Staged("a/b/c.rows", described.schema, described.slices), encoded


def read(described: Staged, encoded: bytes) -> pa.Table:
    batches = []
    for run in slices.runs(described.slices):
        batches += slices.unstage(described, run, encoded[run[0].start : run[-1].stop])
    return pa.Table.from_batches(batches)


def test_all_slices_together_are_the_rows():
    table, _, described, encoded = staged()
    assert len(described.slices) > 2
    assert read(described, encoded).equals(table)


def test_a_range_reads_only_slices_that_it_touches():
    table, places, described, encoded = staged()
    lo, hi = int(places[MANY // 2]), int(places[MANY // 2 + 10])
    touched = slices.touching(described, lo, hi)
    assert touched is not None
    assert touched.size < described.size / 2
    found = read(touched, encoded)
    inside = table.filter(pa.array((places >= lo) & (places <= hi)))
    assert set(inside["n"].to_pylist()) <= set(found["n"].to_pylist())


def test_a_range_without_rows_touches_nothing():
    described = Staged("k", b"", (Slice(5, 9, 0, 10, 1, 0),))
    assert slices.touching(described, 10, 20) is None
    assert slices.touching(described, 0, 4) is None
    assert slices.touching(described, 9, 9) is not None


def test_slices_that_lie_side_by_side_are_one_read():
    cut = [Slice(0, 0, start, start + 10, 1, 0) for start in (0, 10, 30, 40)]
    assert [len(run) for run in slices.runs(cut)] == [2, 2]


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_damage_is_noticed(damage):
    _, _, described, encoded = staged()
    run = described.slices[:1]
    piece: bytes | None = encoded[run[0].start : run[0].stop]
    assert piece is not None
    middle = len(piece) // 2
    wrong = {
        "flipped": piece[:middle] + bytes([piece[middle] ^ 1]) + piece[middle + 1 :],
        "cut": piece[:-1],
        "missing": None,
    }[damage]
    with pytest.raises(CorruptionError, match=r"a/b/c\.rows"):
        slices.unstage(described, run, wrong)


def test_a_stream_comes_back_and_a_broken_one_is_damage():
    table = pa.table({"n": [1, 2]})
    encoded = slices.to_stream(table)
    assert slices.from_stream(encoded, "it").equals(table)
    with pytest.raises(CorruptionError, match="it is damaged"):
        slices.from_stream(encoded[:10], "it")


def test_rows_between_places_are_found_in_any_order():
    table = pa.table({"n": [0, 1, 2]})
    places = np.array([9, 3, 5], np.uint64)
    found, kept = slices.between(table, places, 3, 5)
    assert found["n"].to_pylist() == [1, 2]
    assert kept.tolist() == [3, 5]
