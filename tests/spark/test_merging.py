"""A unit of compaction merged as in a task: objects alone, and Consensus never."""

from __future__ import annotations

import pytest
from tests.spark.workbench import bench, rows, stored

from strandline.errors import InvariantError
from strandline.model.digest import Digest
from strandline.model.ids import SeqNo
from strandline.spark.instruction import Merge
from strandline.spark.merging import NoConsensus, merged
from strandline.store.consensus import Versioned


def test_parts_become_a_base_that_adds_up_to_them():
    made = bench()
    parts = stored(made, rows((1, "a"), (2, "b")), rows((3, "c")))
    told = Merge("full", tuple(parts), (), base=True, halvings=0, level=0, since=1, bytes_max=10**9)
    (base,) = merged(made, told).parts
    assert base.base
    assert base.rows == 3
    assert Digest.unpack(base.digest) == parts[0].total + parts[1].total


@pytest.mark.parametrize(
    "ask",
    [
        lambda none: none.head("k"),
        lambda none: none.compare_and_set("k", Versioned(SeqNo(0), b"")),
        lambda none: none.scan("k", SeqNo(0), 1),
        lambda none: none.truncate("k", SeqNo(0)),
        lambda none: none.keys("k"),
        lambda none: none.now_ms(),
    ],
)
def test_a_task_that_asks_consensus_is_stopped(ask):
    with pytest.raises(InvariantError, match="tasks see objects alone"):
        ask(NoConsensus())
