"""Tables open their sources by the connector's own options."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.connectors.registry import fetch
from strandline.connectors.source import Ports, Split
from strandline.errors import UsageError
from strandline.pipeline.sources import (
    close_sources,
    open_sources,
    options_of,
    origin_of,
    reached_as,
    same_rows,
)
from strandline.system import SystemClock
from strandline.views.parse import parse

PORTS = Ports(SystemClock(), str)
KEYED = "CREATE TABLE t (id BIGINT, note STRING, PRIMARY KEY (id)) USING "


def test_a_generator_makes_the_columns_of_its_table() -> None:
    table = parse(KEYED + "generator OPTIONS (seed '3', envelope 'upsert');").tables[0]
    assert options_of(table) == {"seed": "3", "columns": "id bigint, note string"}


@pytest.mark.parametrize(
    ("key", "more", "deleted"),
    [
        ("id", "", None),
        ("id", ", sequenceBy 'at'", "id, at"),
        ("id, at", "", "id, at"),
        ("at", ", sequenceBy 'at'", None),
        ("id", ", sequenceBy 'at', deleted 'id'", "id"),
    ],
)
def test_deletions_of_a_generator_have_a_key_and_a_place_in_the_order(
    key: str, more: str, deleted: str | None
) -> None:
    columns = f"CREATE TABLE t (id BIGINT, at BIGINT, note STRING, PRIMARY KEY ({key})) USING "
    text = columns + f"generator OPTIONS (deletes '0.5', keys '50', rows '200'{more});"
    (table,) = parse(text).tables
    options = options_of(table)
    assert options.get("deleted") == deleted
    assert "deleted" not in options_of(
        parse(text.replace("'0.5'", "'0'").replace(", deleted 'id'", "")).tables[0]
    )
    rows = pa.Table.from_batches(fetch(Split("generator", options, "0", 0, 200), str))
    gone = rows.filter(rows["_delete"])
    # What somebody says himself counts.
    needed = [*table.key, *(() if deleted == "id" else table.sequence_by)]
    assert gone.num_rows > 50
    assert all(gone[name].null_count == 0 for name in needed)
    assert gone["note"].null_count == gone.num_rows


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


KAFKA = "kafka OPTIONS (subscribe 'a', kafka.bootstrap.servers 'x:1'{})"
CSV = "files OPTIONS (path '/a', format 'csv', csv.delimiter ';'{})"


@pytest.mark.parametrize(
    ("text", "other", "same"),
    [
        (KAFKA, "kafka OPTIONS (subscribe 'a', kafka.bootstrap.servers 'y:1')", True),
        (KAFKA, KAFKA.format(", kafka.sasl.password 'env:P', maxRecordsPerPartition '7'"), True),
        (KAFKA, KAFKA.format(", startingOffsets 'latest', format 'avro'"), True),
        (KAFKA, KAFKA.format(", kafka.isolation.level 'read_uncommitted'"), False),
        (KAFKA, KAFKA.format(", kafka.Isolation.Level 'read_uncommitted'"), False),
        (KAFKA, KAFKA.replace("'a'", "'b'"), False),
        (CSV, CSV.format(", suffix '.csv', transaction 'file', maxRatio '7'"), True),
        (CSV, CSV.replace("'/a'", "'/a/'"), True),
        (CSV, CSV.replace("csv'", "json'"), False),
        (CSV, CSV.replace("';'", "','"), False),
        (CSV, CSV.format(", csv.columns 'id,note'"), False),
        ("generator OPTIONS (rows '1')", "generator OPTIONS (rowsPerSecond '2')", True),
        ("generator OPTIONS (keys '1')", "generator OPTIONS (keys '2')", False),
        ("generator OPTIONS (skew '1')", "generator OPTIONS (deletes '0.1')", False),
        ("http", "http OPTIONS (bufferRows '7')", True),
    ],
)  # fmt: skip
def test_what_was_taken_has_the_same_rows_unless_an_option_decides_them(
    text: str, other: str, *, same: bool
) -> None:
    one, two = (parse(KEYED + each.format("") + ";").tables[0] for each in (text, other))
    assert same_rows(one, two) is same
    assert same_rows(two, one) is same


@pytest.mark.parametrize("using", ["generator", "strandline OPTIONS (shard 'a')"])
def test_a_source_that_is_read_by_its_table_s_columns_reads_otherwise_with_more(using: str) -> None:
    wider = KEYED.replace("note STRING", "note STRING, more BIGINT")
    one, two = (parse(each + using + ";").tables[0] for each in (KEYED, wider))
    assert not same_rows(one, two)


def test_an_earlier_table_reads_what_it_read_and_is_reached_as_is_said_now() -> None:
    then = parse(
        KEYED + "kafka OPTIONS (subscribe 'a', kafka.bootstrap.servers 'x:1', format 'csv',"
        " kafka.sasl.password 'env:OLD', kafka.isolation.level 'read_uncommitted');"
    ).tables[0]
    now = parse(
        KEYED + "kafka OPTIONS (subscribe 'a', kafka.bootstrap.servers 'y:1', format 'json',"
        " kafka.ssl.ca.location '/ca');"
    ).tables[0]
    assert reached_as(then, now).options == {
        "subscribe": "a",
        "kafka.bootstrap.servers": "y:1",
        "kafka.ssl.ca.location": "/ca",
        "kafka.isolation.level": "read_uncommitted",
        "format": "csv",
    }
    assert same_rows(then, reached_as(then, now))


def test_an_earlier_table_of_another_source_is_reached_as_it_was() -> None:
    then, now = (
        parse(KEYED + KAFKA.format("").replace("'a'", f"'{each}'") + ";").tables[0] for each in "ab"
    )
    assert reached_as(then, now) is then
