"""Options are checked at once, with every reason."""

import pyarrow as pa
import pytest

from strandline.connectors.reading import reading
from strandline.connectors.values import Notation
from strandline.errors import UsageError

SCHEMA = pa.schema([("id", pa.int64()), ("lsn", pa.int64()), ("tags", pa.list_(pa.string()))])


def test_defaults_follow_the_key_and_the_envelope():
    plain, keyed = reading(SCHEMA, (), {}), reading(SCHEMA, ("id",), {})
    assert (plain.envelope, plain.keyed, plain.new_columns) == ("append", False, "ignore")
    assert (keyed.envelope, keyed.keyed, keyed.format) == ("upsert", True, "json")
    assert reading(SCHEMA, ("id",), {"envelope": "debezium"}).new_columns == "ignore"


def test_options_say_how_rows_are_read():
    made = reading(
        SCHEMA,
        ("id",),
        {"sequenceBy": "lsn, id", "numberUnit": "us", "decimals": "base64", "path": "x"},
    )
    assert made.sequence_by == ("lsn", "id")
    assert made.notation == Notation("us", "base64")
    keeps = {"7d": 604_800_000, "12h": 43_200_000, "3m": 180_000, "45s": 45_000, "forever": None}
    found = [
        reading(SCHEMA, ("id",), {"sequenceBy": "lsn", "keepDeleted": each}).keep_deleted_ms
        for each in keeps
    ]
    assert found == list(keeps.values())
    assert made.keep_deleted_ms == keeps["7d"]
    assert [reading(SCHEMA, (), o).fails for o in ({}, {"onError": "fail"})] == [False, True]


@pytest.mark.parametrize(
    ("key", "options", "reasons"),
    [
        ((), {"format": "xml"}, ["option format is 'xml'"]),
        ((), {"envelope": "upsert"}, ["needs a PRIMARY KEY"]),
        (("no",), {}, ["key column 'no'"]),
        (("id",), {"sequenceBy": "ts"}, ["sequenceBy names 'ts'"]),
        ((), {"sequenceBy": "lsn"}, ["means nothing for envelope append"]),
        (
            (),
            {"format": "csv"},
            ["column 'tags' of type list<item: string> can't be read from CSV"],
        ),
        (("id",), {"format": "csv", "envelope": "debezium"}, ["tags", "debezium is not written"]),
        ((), {"format": "csv", "csv.delimiter": '"'}, ["csv.delimiter"]),
        (("id",), {"sequenceBy": "lsn", "keepDeleted": "7"}, ["keepDeleted '7' is no period"]),
        (("id",), {"keepDeleted": "7d"}, ["keepDeleted means nothing without sequenceBy"]),
        ((), {"numberUnit": "h", "decimals": "x"}, ["option numberUnit", "option decimals"]),
    ],
)
def test_every_reason_is_said_at_once(key, options, reasons):
    with pytest.raises(UsageError) as caught:
        reading(SCHEMA, key, options)
    assert [reason for reason in reasons if reason not in str(caught.value)] == []


def test_units_of_columns_are_checked_by_name():
    schema = pa.schema([("id", pa.int64()), ("placed", pa.timestamp("us"))])
    how = reading(schema, (), {"numberUnit": "s", "numberUnit.placed": "us"})
    assert (how.notation_of("id").unit, how.notation_of("placed").unit) == ("s", "us")
    with pytest.raises(
        UsageError, match=r"'gone' names no column.*'placed' is 'h': set it to d or"
    ):
        reading(schema, (), {"numberUnit.gone": "us", "numberUnit.placed": "h"})
