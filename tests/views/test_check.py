"""Rules that hold for a whole program; test_parse has the table of what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import ProgramError
from strandline.views.check import checked
from strandline.views.declared import Sink, Table, ViewQuery

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string_view())])


def test_columns_are_what_a_shard_keeps_and_keys_are_not_null():
    found = checked([Table("t", COLUMNS, "http", ("k",))], [], [])
    assert found.tables[0].columns == pa.schema(
        [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())]
    )


@pytest.mark.parametrize(
    ("table", "phrase"),
    [
        (Table("t", "k INT", "http"), "no pyarrow Schema"),
        (Table("t", pa.schema([]), "http"), "at least one column"),
        (Table("t", pa.schema([("k", pa.null())]), "http"), "a column of nulls"),
        (Table("t", COLUMNS, "http", ("k", "k")), "names a column twice"),
        (Table("t", COLUMNS, "http", ("k",), {"a": 3}), "is no text"),
        (Table("t", COLUMNS, "http", ("k",), {"a b": "3"}), "is no option"),
        (Table("t", COLUMNS, "http", ("k",), {"a": "x" * 5000}), "too long"),
        (Table("../t", COLUMNS, "http"), "is refused"),
        (Table("t" * 65, COLUMNS, "http"), "is refused"),
    ],
)
def test_what_only_python_can_say_wrongly_is_refused_too(table, phrase):
    with pytest.raises(ProgramError, match=phrase):
        checked([table], [], [])


def test_a_sequence_of_debezium_may_be_a_field_of_its_own():
    table = Table("t", COLUMNS, "http", ("k",), {}, "debezium", ("lsn",))
    assert checked([table], [], []).tables[0].sequence_by == ("lsn",)


def test_a_sink_is_named_by_what_its_source_was_declared_as():
    found = checked(
        [Table("Orders", COLUMNS, "http")], [], [Sink("s", "orders", "files", {"path": "x"})]
    )
    assert found.sinks[0].source == "Orders"


def test_a_view_of_a_broken_table_is_not_blamed_for_it():
    with pytest.raises(ProgramError) as refused:
        checked([Table("t", COLUMNS, "nothing")], [ViewQuery("v", "SELECT k FROM t")], [])
    assert len(refused.value.troubles) == 1
