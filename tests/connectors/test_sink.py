"""What a sink is given: an address of its own, and changes of which there is at least one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from strandline.connectors.sink import Address, filled
from strandline.errors import InvariantError

EMPTY = pa.record_batch({"_diff": pa.array([], pa.int64())})
FULL = pa.record_batch({"_diff": [1]})


def test_every_part_of_an_address_counts() -> None:
    base = Address("l1", "shop", "out", "x")
    others = [
        replace(base, store="l2"),
        replace(base, pipeline="shop2"),
        replace(base, sink="out2"),
        replace(base, lineage="y"),
        Address("l1", "shopout", "", "x"),
    ]
    assert len({base.digest, *(each.digest for each in others)}) == 6


def test_batches_without_rows_are_left_out() -> None:
    assert list(filled(1, [EMPTY, FULL, EMPTY, FULL])) == [FULL, FULL]


@pytest.mark.parametrize("nothing", [[], [EMPTY], [EMPTY, EMPTY]])
def test_only_the_first_of_a_lineage_may_be_without(nothing: list[pa.RecordBatch]) -> None:
    assert list(filled(7, nothing, first=True)) == []
    assert list(filled(7, [*nothing, FULL], first=True)) == [FULL]


@pytest.mark.parametrize("nothing", [[], [EMPTY], [EMPTY, EMPTY]])
def test_a_transaction_without_changes_is_refused(nothing: list[pa.RecordBatch]) -> None:
    with pytest.raises(InvariantError, match="transaction 7"):
        filled(7, nothing)
