"""Limits allow something, splits survive the wire."""

import msgspec
import pytest

from strandline.connectors.source import Limits, Split
from strandline.errors import UsageError


@pytest.mark.parametrize("limits", [{"rows": 0}, {"bytes": 0}, {"rows": -1, "bytes": 5}])
def test_limits_that_allow_nothing_are_refused(limits):
    with pytest.raises(UsageError, match="takes nothing"):
        Limits(**limits)


def test_a_split_survives_the_wire():
    split = Split("kafka", {"kafka.sasl.password": "env:PASSWORD"}, "0", 3, 2**40)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(split), type=Split) == split
