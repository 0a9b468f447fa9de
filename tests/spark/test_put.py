"""What tasks put: names that nobody else has, and doubts that leave orphans only."""

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.workbench import SCHEMA, SHARD, WRITER, bench, rows

from strandline.errors import MaybeAppliedError, NotAppliedError
from strandline.model.frontier import Frontier
from strandline.parts.parquet import Owner, decode_part
from strandline.parts.rows import check_rows
from strandline.store.memory import MemoryBlob


class DoubtfulBlob(MemoryBlob):
    """The first puts happen, but nobody is told so."""

    def __init__(self, doubts: int) -> None:
        super().__init__()
        self.doubts = doubts

    def put(self, key: str, value: bytes) -> None:
        super().put(key, value)
        if self.doubts:
            self.doubts -= 1
            raise MaybeAppliedError("it may be there")


def updates(*pairs: tuple[int, str]) -> pa.Table:
    return check_rows(rows(*pairs), SCHEMA, lower=4, upper=Frontier(5)).updates


def test_parts_lie_under_the_writers_id_and_read_back():
    made = bench()
    (part,) = made.put_updates(updates((1, "a"), (2, "b")), untimed=True)
    assert part.key.startswith(f"{SHARD}/{WRITER}/")
    assert part.key.endswith(".parquet")
    assert part.untimed
    encoded = made.blob.get(part.key)
    assert encoded is not None
    found = decode_part(encoded, part, SCHEMA, owner=Owner(SHARD, part.key))
    assert sorted(found.select(["k", "v"]).to_pylist(), key=str) == [
        {"k": 1, "v": "a"},
        {"k": 2, "v": "b"},
    ]


def test_parts_are_cut_where_they_become_too_large():
    made = bench(part_rows=100)
    parts = made.put_updates(updates(*((n, "x") for n in range(1000))), untimed=True)
    assert len(parts) > 5
    assert sum(part.rows for part in parts) == 1000


def test_a_put_of_unknown_fate_is_repeated_under_another_name():
    blob = DoubtfulBlob(2)
    made = bench(blob)
    (part,) = made.put_updates(updates((1, "a")), untimed=True)
    keys = {entry.key for entry in blob.list("")}
    assert len(keys) == 3
    assert part.key in keys


def test_rows_are_put_by_place_and_read_back():
    made = bench()
    table = rows((1, "a"), (2, "b"), (3, "c"))
    staged = made.put_rows(table, np.array([1, 5, 9], np.uint64))
    assert staged.key.startswith(f"{SHARD}/{WRITER}/")
    assert pa.Table.from_batches(made.unstaged(staged)).equals(table)


def test_a_store_that_stays_away_is_told_in_the_end():
    made = bench()
    calls = []

    def away() -> None:
        calls.append(1)
        raise NotAppliedError("away")

    with pytest.raises(NotAppliedError):
        made.patient(away)
    assert len(calls) > 3


@pytest.mark.parametrize("part_rows", [7, 10**6])
def test_hashes_that_are_known_give_the_same_digests_as_hashes_that_are_not(part_rows):
    given = rows(*((n * 7919 % 101, "x" * (n % 5)) for n in range(100)))
    checked = check_rows(given, SCHEMA, lower=0, upper=Frontier(1))
    made = bench(part_rows=part_rows)
    known = made.put_updates(checked.updates, untimed=True, hashes=checked.hashes)
    found = made.put_updates(checked.updates, untimed=True)
    assert [part.digest for part in known] == [part.digest for part in found]
