"""Connectors are found by name."""

from importlib import import_module

import pytest

from strandline.connectors.registry import CONNECTORS, fetch, open_source
from strandline.connectors.source import Limits, Ports, Split
from strandline.errors import UsageError


class Stopped:
    def monotonic_ms(self):
        return 5


PORTS = Ports(Stopped(), lambda value: value)


def test_a_connector_is_opened_and_read_by_its_name():
    source = open_source("generator", {"rowsPerSecond": "0", "rows": "3"}, PORTS)
    taken = source.plan({}, Limits())
    rows = [
        row for split in source.splits(taken) for b in fetch(split, str) for row in b["_offset"]
    ]
    assert [row.as_py() for row in rows] == [0, 1, 2]


def test_an_unknown_connector_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match=r"no connector 'os'.*files, generator"):
        open_source("os", {}, PORTS)
    with pytest.raises(UsageError, match="no connector"):
        fetch(Split("strandline.errors", {}, "0", 0, 1), str)


def test_s90_a_source_is_not_opened_with_a_secret_in_its_options():
    with pytest.raises(UsageError, match="env:NAME") as caught:
        open_source("generator", {"password": "hunter2"}, PORTS)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(CONNECTORS) - {"kafka"}))
def test_each_connector_can_be_opened_and_fetched_from(name):
    module = import_module(CONNECTORS[name])
    assert callable(module.open_source)
    assert callable(module.fetch)
