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


@pytest.mark.parametrize("connector", ["kafka", "postgresql", "iceberg", "callback"])
def test_a_sink_that_does_not_say_where_to_is_refused_by_name(connector: str) -> None:
    with pytest.raises(ProgramError, match=f"{connector} needs the option"):
        parse(f"{TABLE} CREATE SINK out FROM orders USING {connector};")


def test_a_connector_that_takes_no_rows_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="no connector 'generator'"):
        open_sink("generator", {}, WHAT, PORTS)


def test_a_sink_on_record_goes_on_with_what_is_a_secret_only_since() -> None:
    options = "(table 'a.b', catalog.uri 'http://h/', catalog.header.Authorization 'Bearer x')"
    text = f"{TABLE} CREATE SINK out FROM orders USING iceberg OPTIONS {options};"
    with pytest.raises(ProgramError, match="holds a secret"):
        parse(text)
    (target,) = targets(parse(text, recorded=True), PORTS)
    target.open(WHAT).close()


def _two(first: str, second: str) -> str:
    sinks = [
        f"CREATE SINK {name} FROM orders USING kafka OPTIONS ({said});"
        for name, said in (("a", first), ("b", second))
    ]
    return "".join([TABLE, *sinks])


ONE = "kafka.bootstrap.servers 'h:9092, i:9092', topic 't', envelope 'upsert'"


@pytest.mark.parametrize(
    "other",
    [
        ONE,
        "kafka.bootstrap.servers 'I:9092', topic 't', envelope 'debezium'",
        "kafka.bootstrap.servers 'h:9092', topic 't', envelope 'changes'",
    ],
)
def test_two_sinks_on_one_topic_by_key_are_refused_by_name(other: str) -> None:
    """The one would delete the keys of the other."""
    for program in (_two(ONE, other), _two(other, ONE)):
        with pytest.raises(UsageError, match="sinks a and b publish to one topic, 't'"):
            targets(parse(program), PORTS)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ONE, "kafka.bootstrap.servers 'h:9092', topic 'u', envelope 'upsert'"),
        (ONE, "kafka.bootstrap.servers 'j:9092', topic 't', envelope 'upsert'"),
        (ONE.replace("upsert", "changes"), ONE.replace("upsert", "changes")),
    ],
)
def test_sinks_that_do_not_touch_each_other_may_be(first: str, second: str) -> None:
    assert [each.name for each in targets(parse(_two(first, second)), PORTS)] == ["a", "b"]
