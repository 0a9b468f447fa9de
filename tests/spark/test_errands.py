"""Errands on their way: few in the closure, many in one object, each task its own."""

import pytest

from strandline.errors import CorruptionError
from strandline.spark.errands import CARRIED_BYTES, send
from strandline.spark.instruction import Errand, RangeWork

SHARD = "s" + "0" * 32


class Shelf:
    """Where objects are put."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, encoded: bytes, kind: str) -> str:
        self.kept[f"x.{kind}"] = encoded
        return f"x.{kind}"

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        found = self.kept.get(key)
        return None if found is None else found[start : start + length]


def errands(size: int) -> list[Errand]:
    return [Errand((RangeWork(n, n, rows=bytes(size)),), as_of=n) for n in range(3)]


@pytest.mark.parametrize("size", [10, CARRIED_BYTES])
def test_each_task_gets_its_own_errand(size):
    shelf = Shelf()
    sent = send(errands(size), SHARD, shelf.put)
    assert bool(shelf.kept) == (size == CARRIED_BYTES)
    assert [sent.of(task, shelf.get_range) for task in range(3)] == errands(size)


def test_errands_that_are_gone_are_missed_by_name():
    shelf = Shelf()
    sent = send(errands(CARRIED_BYTES), SHARD, shelf.put)
    shelf.kept.clear()
    with pytest.raises(CorruptionError, match=r"x\.errands"):
        sent.of(0, shelf.get_range)
