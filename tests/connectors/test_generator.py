"""Rows made up from a seed depend on (seed, offset) alone."""

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.connectors.generator import (
    Generator,
    columns_option,
    fetch,
    parse_columns,
    recipe,
)
from strandline.connectors.source import Limits
from strandline.errors import UsageError
from strandline.testing.conformance_source import Stand, check_source

EVERY = (
    "id bigint, a boolean, b int, c bigint, d double, e string, f date, g timestamp, "
    "h decimal(12,2), i decimal(3, 3)"
)


class Hand:
    """A clock that somebody turns."""

    def __init__(self):
        self.ms = 1_000

    def monotonic_ms(self):
        return self.ms


def stand():
    clock = Hand()

    def grow():
        clock.ms += 100

    options = {"rowsPerSecond": "30", "deletes": "0.3", "columns": EVERY}
    return Stand(lambda: Generator(options, clock), lambda split: fetch(split, str), grow)


def test_the_generator_is_a_source():
    check_source(stand)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**63), st.integers(0, 500), st.integers(0, 60), st.integers(1, 7))
def test_rows_do_not_depend_on_how_ranges_are_cut(seed, start, count, step):
    made = recipe({"seed": str(seed), "columns": EVERY, "deletes": "0.2"})
    whole = made.rows(start, start + count)
    whole.validate(full=True)
    cuts = range(start, start + count, step)
    pieces = [made.rows(at, min(at + step, start + count)) for at in cuts]
    assert pa.Table.from_batches(pieces, made.schema()) == pa.Table.from_batches([whole])


def test_the_rows_of_a_seed_never_change():
    rows = recipe({"seed": "7", "keys": "5", "deletes": "0.3"}).rows(0, 4).to_pylist()
    assert [(r["id"], r["value"], r["note"], r["_delete"]) for r in rows] == [
        (3, None, None, True),
        (1, None, None, True),
        (4, 685211, "6993", False),
        (0, 576264, "2044", False),
    ]


def test_seeds_differ():
    assert recipe({"seed": "1"}).rows(0, 50) != recipe({"seed": "2"}).rows(0, 50)


def test_keys_deletes_and_skew_are_as_asked():
    rows = recipe({"keys": "100", "deletes": "0.25"}).rows(0, 20_000).to_pydict()
    assert set(rows["id"]) == set(range(100))
    assert 0.23 < sum(rows["_delete"]) / 20_000 < 0.27
    assert all((v is None) == gone for v, gone in zip(rows["value"], rows["_delete"], strict=True))
    skewed = recipe({"keys": "100", "skew": "3"}).rows(0, 20_000)["id"].to_pylist()
    assert sum(key < 10 for key in skewed) > 20_000 * 0.5
    assert set(skewed) <= set(range(100))


def test_what_is_offered_follows_the_clock_and_the_limits():
    clock = Hand()
    source = Generator({"rowsPerSecond": "100", "rows": "1000"}, clock)
    assert source.plan({"0": 40}, Limits()) is None
    clock.ms += 500
    assert source.plan({"0": 40}, Limits()).parts == {"0": (40, 90)}
    assert source.plan({"0": 40}, Limits(rows=7)).parts == {"0": (40, 47)}
    assert source.plan({"0": 40}, Limits(bytes=1)).parts == {"0": (40, 41)}
    assert source.plan({"0": 90}, Limits()) is None
    clock.ms += 1_000_000
    assert source.plan({"0": 90}, Limits()).parts == {"0": (90, 1000)}
    assert source.plan({"0": 1000}, Limits()) is None


def test_large_ranges_are_cut_into_several_splits():
    source = Generator({"rowsPerSecond": "0"}, Hand())
    assert len(source.splits(source.plan({}, Limits()))) == 10


@pytest.mark.parametrize(
    "options",
    [
        {"keys": "0"}, {"keys": "x"}, {"seed": "-1"}, {"skew": "-1"}, {"deletes": "2"},
        {"deletes": "nan"}, {"rows": "1.5"}, {"columns": "id"}, {"columns": "id blob"},
        {"columns": "d double, id bigint"}, {"unknown": "1"}, {"columns": ""},
    ],
)  # fmt: skip
def test_wrong_options_are_refused_by_name(options):
    with pytest.raises(UsageError, match=r"option|key") as caught:
        Generator(options, Hand())
    assert next(iter(options)) in str(caught.value) or "key" in str(caught.value)


def test_a_tables_columns_become_an_option():
    schema = pa.schema([("v", pa.decimal128(5, 2)), ("id", pa.int64()), ("n", pa.string())])
    text = columns_option(schema, "id")
    assert text == "id bigint, v decimal(5,2), n string"
    assert pa.schema(parse_columns(text)).names == ["id", "v", "n"]
    with pytest.raises(UsageError, match="column 'v'"):
        columns_option(pa.schema([("v", pa.list_(pa.int8()))]), "id")


def test_a_row_that_deletes_has_what_it_is_told_to_have():
    options = {"deletes": "0.5", "columns": "id bigint, at timestamp, note string"}
    before, after = (
        recipe(options | more).rows(0, 100).to_pydict() for more in ({}, {"deleted": "id, at"})
    )
    assert (before["id"], before["note"]) == (after["id"], after["note"])
    gone = [at for at, each in enumerate(after["_delete"]) if each]
    assert gone
    assert all(after["note"][at] is None and after["at"][at] is not None for at in gone)
    assert all(before["at"][at] is None for at in gone)
    with pytest.raises(UsageError, match="deleted names 'when'"):
        recipe(options | {"deleted": "when"})
