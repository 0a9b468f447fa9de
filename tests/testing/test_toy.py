"""The toy shard reads what was appended, whatever pieces hold it."""

from __future__ import annotations

import pytest

from strandline.errors import InvariantError
from strandline.shard import command as c
from strandline.testing import toy

UPDATES = ((7, 0, 1), (8, 1, 1), (7, 1, -1))


@pytest.mark.parametrize("key", ["", "p1"])
def test_a_read_sees_what_was_appended_up_to_its_time(key):
    shard = toy.ToyShard()
    if key:
        shard.put(key, UPDATES)
    append = toy.toy_append(UPDATES, lower=0, upper=2, token="t", key=key)
    state = toy.step(toy.created(), append)
    assert shard.read(state, 0) == {7: 1}
    assert shard.read(state, 1) == {8: 1}


def test_merging_moves_times_up_and_drops_what_cancels():
    assert toy.merged(UPDATES, 1) == [(8, 1, 1)]
    assert toy.merged(UPDATES, 0) == [(7, 0, 1), (7, 1, -1), (8, 1, 1)]
    assert toy.digest_of(toy.merged(UPDATES, 1)) == toy.digest_of(UPDATES)


def test_a_step_that_changes_nothing_is_a_mistake_in_a_test():
    with pytest.raises(InvariantError, match="Unchanged"):
        toy.step(toy.created(), c.RegisterWriter(toy.W1, "0.0"))
