"""Tables open their sources by the connector's own options."""

from __future__ import annotations

import pytest

from strandline.connectors.source import Ports
from strandline.errors import UsageError
from strandline.pipeline.sources import close_sources, open_sources, options_of, origin_of
from strandline.system import SystemClock
from strandline.views.parse import parse

PORTS = Ports(SystemClock(), str)
KEYED = "CREATE TABLE t (id BIGINT, note STRING, PRIMARY KEY (id)) USING "


def test_a_generator_makes_the_columns_of_its_table() -> None:
    table = parse(KEYED + "generator OPTIONS (seed '3', envelope 'upsert');").tables[0]
    assert options_of(table) == {"seed": "3", "columns": "id bigint, note string"}


def test_files_are_told_where_rows_end() -> None:
    text = KEYED + "files OPTIONS (path '/x', format 'csv', csv.delimiter ';');"
    assert options_of(parse(text).tables[0]) == {
        "path": "/x",
        "format": "csv",
        "csv.delimiter": ";",
    }


def test_a_program_opens_one_source_for_each_table() -> None:
    sources = open_sources(parse(KEYED + "generator;"), PORTS)
    assert set(sources) == {"t"}
    close_sources(sources)


def test_an_option_that_no_connector_knows_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="colour"):
        open_sources(parse(KEYED + "generator OPTIONS (colour 'red');"), PORTS)


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        ("kafka OPTIONS (subscribe 'a', kafka.bootstrap.servers 'x:1')",
         "kafka OPTIONS (subscribe 'a', kafka.bootstrap.servers 'y:1')", True),
        ("kafka OPTIONS (subscribe 'a', kafka.bootstrap.servers 'x:1')",
         "kafka OPTIONS (subscribe 'b', kafka.bootstrap.servers 'x:1')", False),
        ("files OPTIONS (path '/a')", "files OPTIONS (path '/a/')", True),
        ("files OPTIONS (path '/a')", "files OPTIONS (path '/b')", False),
        ("kafka OPTIONS (subscribe 'a', kafka.bootstrap.servers 'x:1')",
         "kafka OPTIONS (subscribe ' a ', kafka.bootstrap.servers 'x:1')", True),
        ("files OPTIONS (path 'in/a')", "files OPTIONS (path './in//a/')", True),
        ("files OPTIONS (path 'a')", "files OPTIONS (path '/a')", False),
        ("generator OPTIONS (rows '1')", "generator OPTIONS (rows '2')", True),
        ("generator OPTIONS (seed '1')", "generator OPTIONS (seed '2')", False),
        ("strandline OPTIONS (shard 'a')", "strandline OPTIONS (shard 'b')", False),
        ("http", "generator", False),
    ],
)  # fmt: skip
def test_some_options_say_which_source_it_is_and_others_do_not(
    text: str, other: str, *, same: bool
) -> None:
    one, two = (parse(KEYED + each + ";").tables[0] for each in (text, other))
    assert (origin_of(one) == origin_of(two)) is same
