"""What people write becomes values, or a sentence about what is wrong with it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from strandline.cli.conditions import parse_as_of, parse_columns, parse_conditions
from strandline.errors import StrandlineError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("share", pa.float64()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("id > 10", ("id", ">", 10)),
        ("id>=10", ("id", ">=", 10)),
        ("id=-3", ("id", "=", -3)),
        ("name == NO", ("name", "==", "NO")),
        ("name = 'a b'", ("name", "=", "a b")),
        ('name != ""', ("name", "!=", "")),
        ("name=x=y", ("name", "=", "x=y")),
        ("share < 0.5", ("share", "<", 0.5)),
        ("ok = true", ("ok", "=", True)),
        ("day >= 2026-01-02", ("day", ">=", date(2026, 1, 2))),
        ("at < 2026-01-02T03:00:00Z", ("at", "<", datetime(2026, 1, 2, 3, tzinfo=UTC))),
        ("id in 1, 2,3", ("id", "in", [1, 2, 3])),
        ("name NOT IN (a, b)", ("name", "not in", ["a", "b"])),
        ("name is null", ("name", "is null", None)),
        ("name IS  NOT  NULL", ("name", "is not null", None)),
    ],
)
def test_a_condition_has_its_value_in_the_type_of_its_column(text, condition):
    assert parse_conditions([text], SCHEMA) == [condition]


def test_no_conditions_are_no_filter():
    assert parse_conditions([], SCHEMA) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id", "is not understood"),
        ("id ~ 3", "is not understood"),
        ("= 3", "is not understood"),
        ("nope = 3", "unknown column 'nope': there are id, name"),
        ("id = many", "column id is a int64: it can't be compared with 'many'"),
        ("\x1b[31m", r"\x1b[31m"),
    ],
)
def test_a_wrong_condition_is_refused_by_name(text, said):
    with pytest.raises(StrandlineError) as error:
        parse_conditions([text], SCHEMA)
    assert said in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("text", "as_of"),
    [
        ("17", 17),
        (" 0 ", 0),
        ("2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01 12:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T12:00+02:00", datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_as_of_is_a_time_or_an_instant(text, as_of):
    assert parse_as_of(text) == as_of


@pytest.mark.parametrize("text", ["yesterday", "", "-1", "1.5", "99999999999999999999"])
def test_what_is_neither_time_nor_instant_is_refused(text):
    with pytest.raises(StrandlineError, match="--as-of"):
        parse_as_of(text)


@pytest.mark.parametrize(
    ("text", "columns"), [(None, None), ("a", ["a"]), (" a, b ,", ["a", "b"]), ("", [])]
)
def test_columns_are_names_between_commas(text, columns):
    assert parse_columns(text) == columns
