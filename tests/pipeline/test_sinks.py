"""The sinks of a program become targets; what says which target it is decides the lineage."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from strandline.connectors.files_sink import FilesSink
from strandline.connectors.registry import open_sink
from strandline.connectors.sink import Address, Delivered, SinkPorts
from strandline.errors import ProgramError, UsageError
from strandline.pipeline.sinks import targets
from strandline.views.parse import parse

PORTS = SinkPorts(str, lambda: "0" * 32)
WHAT = Delivered(Address("l", "shop", "out", "x"), pa.schema([("id", pa.int64())]))
TABLE = "CREATE TABLE orders (id BIGINT, PRIMARY KEY (id)) USING generator;"


def test_each_sink_of_a_program_is_opened_by_its_connector(tmp_path: Path) -> None:
    options = f"(path '{tmp_path}', format 'json')"
    program = parse(f"{TABLE} CREATE SINK out FROM orders USING files OPTIONS {options};")
    (target,) = targets(program, PORTS)
    assert (target.name, target.source) == ("out", "orders")
    assert target.identity == {"connector": "files", "path": str(tmp_path), "format": "json"}
    assert isinstance(target.open(WHAT), FilesSink)


@pytest.mark.parametrize("connector", ["kafka", "postgresql", "iceberg"])
def test_sinks_that_do_not_exist_yet_are_refused_by_name(connector: str) -> None:
    with pytest.raises(ProgramError, match=f"{connector} sinks do not exist yet"):
        parse(f"{TABLE} CREATE SINK out FROM orders USING {connector};")


def test_a_connector_that_takes_no_rows_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="no connector 'generator'"):
        open_sink("generator", {}, WHAT, PORTS)
