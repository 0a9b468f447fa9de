"""Pieces, and the groups of a range of places, as tasks fetch them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import strandline
from strandline.errors import CorruptionError, LeaseLostError
from strandline.parts.index import PartIndex
from strandline.parts.layout import places_of
from strandline.parts.part import PLACE_MAX
from strandline.spark.source_fetch import fetch_held, fetch_streamed, groups_between

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = 300_000


class Counting:
    """A blob that counts the bytes which are read."""

    def __init__(self, blob):
        self.blob, self.bytes = blob, 0

    def get(self, key):
        found = self.blob.get(key)
        self.bytes += len(found or b"")
        return found

    def get_range(self, key, start, length):
        found = self.blob.get_range(key, start, length)
        self.bytes += len(found or b"")
        return found


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    with strandline.open(str(tmp_path_factory.mktemp("f") / "lake"), upkeep=False) as store:
        shard = store.shard("t", COLUMNS, key=["k"])
        with shard.writer() as writer:
            keys = np.arange(ROWS)
            writer.append(pa.table({"k": keys, "v": [f"{key:040}" for key in keys]}))
        yield shard


@pytest.fixture
def piece(shard):
    with shard.snapshot() as snapshot:
        (piece,) = snapshot.parts()
        return piece


@pytest.mark.parametrize("fetcher", [lambda b: fetch_held(b, 1), fetch_streamed])
def test_ranges_together_give_every_row_and_each_reads_its_share(shard, piece, fetcher):
    blob = Counting(shard.machine.env.blob)
    fetch = fetcher(blob)
    whole = fetch(piece, 0, PLACE_MAX)
    assert whole.num_rows == ROWS
    once = blob.bytes
    edges = [PLACE_MAX // 4 * n for n in range(4)] + [PLACE_MAX + 1]
    seen = 0
    for lo, hi in pairwise(edges):
        found = fetch(piece, lo, hi - 1)
        assert found.schema == whole.schema
        places = places_of(found, piece.schema)
        seen += int(((places >= np.uint64(lo)) & (places <= np.uint64(hi - 1))).sum())
    assert seen == ROWS
    # The groups at the borders are read twice, and the footer by each.
    assert blob.bytes - once < 3 * once


@pytest.mark.parametrize(
    ("lo", "hi", "groups"),
    [(0, 5, (0, 1)), (0, 10, (0, 1)), (15, 25, (0, 2)), (20, 20, (0, 2)), (35, 99, (2, 3))],
)
def test_a_range_touches_the_groups_that_may_hold_it(lo, hi, groups):
    numbers = np.arange(3)
    index = PartIndex.__new__(PartIndex)
    object.__setattr__(index, "places", np.array([10, 20, 30], np.uint64))
    object.__setattr__(index, "rows", numbers)
    assert groups_between(index, lo, hi) == groups


def test_a_piece_that_is_gone_is_told_as_whoever_held_it_has_to_hear(shard, piece):
    class Gone:
        def get(self, key):
            return None

        def get_range(self, key, start, length):
            return None

    for lo in (0, 5):
        with pytest.raises(LeaseLostError, match=r"lease lost: part .* 77 ms"):
            fetch_held(Gone(), 77)(piece, lo, PLACE_MAX)
        with pytest.raises(CorruptionError, match="is missing, so the batch fails"):
            fetch_streamed(Gone())(piece, lo, PLACE_MAX)
