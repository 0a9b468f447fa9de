"""Test data written as a table becomes values, and what can't be right is refused."""

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pytest

from strandline.model.frontier import Frontier
from strandline.testing.tables import CRASH, arrow, rows, script


@dataclass
class Upsert:
    key: str
    value: str | None
    time: int


class Point(NamedTuple):
    x: float
    on: bool = True
    at: Frontier | None = None


def test_each_line_is_one_value_with_the_types_of_its_fields():
    assert rows(
        Upsert,
        """
        key    value    time
        a      green     5    # late
        7      -        12    # text that looks like a number, and a null

        "b c"  "-"       1    # blanks and a dash need quotes
        "#"    ""        2
        """,
    ) == [
        Upsert("a", "green", 5),
        Upsert("7", None, 12),
        Upsert("b c", "-", 1),
        Upsert("#", "", 2),
    ]


def test_any_type_that_takes_text_can_be_a_field():
    found = rows(Point, "x on\n 1.5 false\n -2 true")
    assert found == [Point(1.5, False), Point(-2.0, True)]
    assert rows(Point, "x on at\n 1 true -") == [Point(1.0, True, None)]


def test_a_crash_is_a_row_of_a_script():
    text = "key value time\n a x 1\n CRASH  # here\n a y 2"
    assert script(Upsert, text) == [Upsert("a", "x", 1), CRASH, Upsert("a", "y", 2)]
    with pytest.raises(ValueError, match="step of a script"):
        rows(Upsert, text)


def test_an_arrow_table_takes_the_types_of_the_schema():
    schema = pa.schema([("id", pa.int64()), ("when", pa.timestamp("us")), ("ok", pa.bool_())])
    found = arrow(
        schema,
        """
        id  when                   ok     _time  _diff
        1   "2024-01-02 03:04:05"  true   7      1
        -   -                      false  7      -1    # a retraction
        """,
    )
    assert found.schema.types == [*schema.types, pa.int64(), pa.int64()]
    assert found.column("id").to_pylist() == [1, None]
    assert found.column("_diff").to_pylist() == [1, -1]
    assert str(found.column("when")[0].as_py()) == "2024-01-02 03:04:05"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "name each field once"),
        ("a a\n 1 2", "name each field once"),
        ("a -\n 1 2", "name each field once"),
        ("key value time\n a x", "line 2 has 2 cells"),
        ("key value time\n a x 1 2", "line 2 has 4 cells"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        rows(Upsert, text)


def test_an_unknown_column_is_refused():
    with pytest.raises(KeyError):
        arrow(pa.schema([("id", pa.int64())]), "id nope\n 1 2")
