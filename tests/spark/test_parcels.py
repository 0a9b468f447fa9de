"""What tasks are told: few bytes in the closure, many in an object."""

from __future__ import annotations

import msgspec
import pytest

from strandline.errors import CorruptionError
from strandline.spark.errands import CARRIED_BYTES
from strandline.spark.parcels import unwrap, wrap


@pytest.mark.parametrize("size", [0, 10, CARRIED_BYTES])
def test_each_task_gets_its_own(size):
    put = {}

    def keep(encoded, kind):
        put[kind] = encoded
        return kind

    told = [b"a" * size, b"", b"b" * 3]
    parcels = unwrap(msgspec.msgpack.encode(wrap(told, keep)))

    def read(key, start, length):
        return put[key][start : start + length]

    assert [parcels.of(task, read) for task in range(3)] == told
    assert bool(put) == (size + 3 > CARRIED_BYTES)


def test_an_object_that_is_gone_is_named():
    parcels = wrap([b"x" * (CARRIED_BYTES + 1)], lambda encoded, kind: "the-key")
    with pytest.raises(CorruptionError, match="the-key"):
        parcels.of(0, lambda *_: None)
