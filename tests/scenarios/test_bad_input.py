"""Bad input through the public handles: a clear error that names the thing, and nothing lost."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from strandline.assembly import open_store
from strandline.errors import (
    BoundsError,
    NameRefusedError,
    NotAppliedError,
    SchemaError,
    UsageError,
)
from strandline.shard.settings import Settings

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
IMPATIENT = Settings(commit_deadline_ms=150, read_deadline_ms=50, inline_max_bytes=0)
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def table(**columns):
    return pa.table(columns)


GOOD = table(id=[7], name=["x"])


@pytest.fixture(scope="module")
def shard():
    """Two rows at time 0; no case below may change them."""
    with open_store("memory://") as store:
        made = store.shard("orders", COLUMNS, ["id"])
        with made.writer() as writer:
            writer.append(ROWS)
        yield made


@pytest.fixture(autouse=True)
def nothing_is_lost(request):
    yield
    if "shard" in request.fixturenames:
        made = request.getfixturevalue("shard")
        assert made.upper.time == 1
        assert made.snapshot().to_arrow().sort_by("id").to_pylist() == ROWS


def append(rows, lower=1, upper=2):
    def call(shard):
        with shard.writer() as writer:
            writer.compare_and_append(rows, lower=lower, upper=upper)

    return call


def append_next(rows):
    def call(shard):
        with shard.writer() as writer:
            writer.append(rows)

    return call


def snapshot(*args, **words):
    return lambda shard: shard.snapshot(*args, timeout_ms=0, **words).to_arrow()


def where(*conditions):
    return snapshot(filter=list(conditions))


def at(*times, diff=(1,)):
    count = len(times)
    return table(
        id=list(range(count)), name=["x"] * count, _time=list(times), _diff=list(diff) * count
    )


HUGE = 2**63
CALLS = {
    # rows that do not fit the schema
    "a missing column": (append(table(id=[1])), SchemaError, r"lack.*name.*add what is missing"),
    "an extra column": (
        append(table(id=[1], name=["a"], more=[1])),
        SchemaError,
        r"no column 'more'.*drop it",
    ),
    "a wrong type": (append(table(id=["1"], name=["a"])), SchemaError, r"column 'id'.*cast it"),
    "a float in an integer": (
        append(table(id=[1.5], name=["a"])),
        SchemaError,
        r"column 'id'.*cast it",
    ),
    "a value that is too large": (
        append(table(id=pa.array([HUGE], pa.uint64()), name=["a"])),
        SchemaError,
        r"column 'id'",
    ),
    "a null in the key": (
        append(table(id=pa.array([1, None]), name=["a", "b"])),
        SchemaError,
        r"'id' is part of the key and row 1",
    ),
    "a column twice": (
        append(pa.Table.from_arrays([pa.array([1])] * 2 + [pa.array(["a"])], ["id", "id", "name"])),
        SchemaError,
        r"several columns 'id'",
    ),
    "no columns at all": (append(pa.table({})), SchemaError, r"lack"),
    "rows that are no rows": (append(42), SchemaError, r"rows must be an Arrow table.*not int"),
    "a list of no dicts": (append([1, 2]), SchemaError, r"row 0 is a int, not a dict"),
    "a dict with a stranger": (
        append([{"id": 1, "name": "a", "nmae": "b"}]),
        SchemaError,
        r"'nmae'",
    ),
    "a dict of wrong values": (
        append([{"id": "one", "name": "a"}]),
        SchemaError,
        r"the rows can't be read",
    ),
    "a nested value": (append(table(id=[1], name=[["a"]])), SchemaError, r"column 'name'"),
    "a diff that is no number": (
        append(table(id=[1], name=["a"], _diff=["1"])),
        SchemaError,
        r"_diff must hold whole numbers",
    ),
    "a null diff": (
        append(table(id=[1], name=["a"], _diff=pa.array([None], pa.int64()))),
        SchemaError,
        r"null in _diff",
    ),
    # times outside what the call declares
    "a time below lower": (append(at(0)), BoundsError, r"row 0 .*_time 0.*outside \[1, 2\)"),
    "a time at upper": (append(at(1, 2)), BoundsError, r"row 1 .*_time 2.*outside \[1, 2\)"),
    "a negative time": (append(at(-1)), BoundsError, r"_time -1"),
    "a huge time": (
        append(table(id=[1], name=["a"], _time=pa.array([HUGE], pa.uint64()))),
        BoundsError,
        r"_time.*beyond 64 bits",
    ),
    "a null time": (
        append(table(id=[1], name=["a"], _time=pa.array([None], pa.int64()))),
        BoundsError,
        r"null in _time",
    ),
    "a time that is text": (
        append(table(id=[1], name=["a"], _time=["1"])),
        BoundsError,
        r"_time must hold whole numbers",
    ),
    "rows without a time in a wide interval": (append(GOOD, 1, 5), BoundsError, r"add the column"),
    "an empty interval": (append(GOOD, 1, 1), BoundsError, r"upper must be greater"),
    "an interval that goes back": (append(GOOD, 5, 2), BoundsError, r"upper must be greater"),
    "a negative lower": (append(GOOD, -1, 2), BoundsError, r"lower -1 is outside"),
    "a huge upper": (append(GOOD, 1, HUGE), BoundsError, r"upper 9223372036854775808 is outside"),
    "a lower that is a bool": (
        append(GOOD, True, 2),
        BoundsError,
        r"lower must be a whole number, not True",
    ),
    "a lower that is a float": (
        append(GOOD, 1.0, 2),
        BoundsError,
        r"lower must be a whole number, not 1.0",
    ),
    "a lower that is None": (
        append(GOOD, None, 2),
        BoundsError,
        r"lower must be a whole number, not None",
    ),
    "an upper that is a numpy float": (
        append(GOOD, 1, np.float64(2)),
        BoundsError,
        r"upper must be a whole number",
    ),
    "a time of one's own in append": (
        append_next(at(1)),
        BoundsError,
        r"append chooses the time itself",
    ),
    # reads
    "a read before zero": (snapshot(-1), BoundsError, r"as_of -1 is outside"),
    "a read of a huge time": (snapshot(HUGE), BoundsError, r"as_of 9223372036854775808 is outside"),
    "a read of a bool": (snapshot(False), BoundsError, r"as_of must be a whole number, not False"),
    "a read of a float": (snapshot(0.0), BoundsError, r"as_of must be a whole number"),
    "a read of text": (snapshot("0"), BoundsError, r"as_of must be a whole number"),
    "a read of a time to come": (snapshot(7), NotAppliedError, r"shard orders.*its upper is \{1\}"),
    "a read of an instant without a zone": (
        snapshot(datetime(2026, 1, 1)),  # noqa: DTZ001
        BoundsError,
        r"no time zone",
    ),
    "an unknown column": (
        snapshot(columns=["nmae"]),
        SchemaError,
        r"no column 'nmae': there are 'id, name'",
    ),
    "a column named twice": (snapshot(columns=["id", "id"]), SchemaError, r"names a column twice"),
    "no column": (snapshot(columns=[]), SchemaError, r"at least one column"),
    "columns as text": (snapshot(columns="id"), SchemaError, r"write \['id'\]"),
    "a filter on an unknown column": (where(("nmae", "=", "a")), SchemaError, r"'nmae'"),
    "a filter on our column": (where(("_time", ">", 0)), SchemaError, r"'_time'"),
    "a filter with a strange operator": (where(("id", "~", 1)), SchemaError, r"'~'"),
    "a filter with a wrong value": (where(("id", ">", "ten")), SchemaError, r"id"),
    "a filter with null": (where(("id", "=", None)), SchemaError, r"null"),
    "a filter with too few words": (where(("id", "=")), SchemaError, r"condition|filter"),
    "a filter that is text": (snapshot(filter="id = 1"), SchemaError, r"filter"),
    "in without a list": (where(("id", "in", 5)), SchemaError, r"in"),
    "a reader from a time to come": (
        lambda shard: shard.reader(since=HUGE),
        BoundsError,
        r"since 9223372036854775808",
    ),
    "a reader of a negative time": (lambda shard: shard.reader(since=-5), BoundsError, r"since -5"),
    "a subscription from a negative time": (
        lambda shard: shard.subscribe(-2).close(),
        BoundsError,
        r"-2",
    ),
    "a subscription with an unknown column": (
        lambda shard: shard.subscribe(0, columns=["x"]).close(),
        SchemaError,
        r"no column 'x'",
    ),
    "a subscription with a bad filter": (
        lambda shard: shard.subscribe(0, filter=[("x", "=", 1)]).close(),
        SchemaError,
        r"'x'",
    ),
    "a subscription with a bad handler": (
        lambda shard: shard.subscribe(0, on_error="explode").close(),
        UsageError,
        r"on_error is",
    ),
    # holds, retention and the shard itself
    "a hold with a bad name": (
        lambda shard: shard.hold("../x", 0),
        NameRefusedError,
        r"hold name '../x'",
    ),
    "a hold at no time": (
        lambda shard: shard.hold("h", True),
        BoundsError,
        r"since must be a whole number",
    ),
    "a retention that means nothing": (
        lambda shard: shard.retain("a while"),
        UsageError,
        r"a while",
    ),
    "a retention of no time": (lambda shard: shard.retain("-1h"), UsageError, r"-1h"),
    "a schema that drops a column": (
        lambda shard: shard.evolve(pa.schema([("id", pa.int64())])),
        SchemaError,
        r"'name' is missing.*can't be dropped",
    ),
    "a schema that narrows": (
        lambda shard: shard.evolve(pa.schema([("id", pa.int32()), ("name", pa.string())])),
        SchemaError,
        r"'id' can't change",
    ),
    "a wait for no time": (lambda shard: shard.wait_past("x"), BoundsError, r"whole number"),
}

SCHEMAS = {
    "a reserved name": (pa.schema([("_time", pa.int64())]), (), SchemaError, r"'_time' is ours"),
    "a reserved name in capitals": (
        pa.schema([("_DIFF", pa.int64())]),
        (),
        SchemaError,
        r"'_DIFF' is ours",
    ),
    "a name twice": (
        pa.schema([("a", pa.int64()), ("a", pa.int64())]),
        (),
        SchemaError,
        r"'a' and 'a' are the same",
    ),
    "names that differ by case": (
        pa.schema([("a", pa.int64()), ("A", pa.int64())]),
        (),
        SchemaError,
        r"rename one",
    ),
    "an empty name": (pa.schema([("", pa.int64())]), (), SchemaError, r"name '' is refused"),
    "a name with a control character": (
        pa.schema([("a\x1b[31m", pa.int64())]),
        (),
        SchemaError,
        r"'a\\x1b\[31m' is refused",
    ),
    "a name with a direction mark": (
        pa.schema([("a\u202eb", pa.int64())]),
        (),
        SchemaError,
        r"a\\u202eb",
    ),
    "no columns": (pa.schema([]), (), SchemaError, r"at least one column"),
    "no schema": ({"id": "int64"}, (), SchemaError, r"must be a pyarrow Schema, not dict"),
    "a column of nulls": (
        pa.schema([("a", pa.null())]),
        (),
        SchemaError,
        r"column 'a'.*has no type",
    ),
    "a key that is no column": (COLUMNS, ["nope"], SchemaError, r"no column 'nope'"),
    "a key twice": (COLUMNS, ["id", "id"], SchemaError, r"names a column twice"),
    "a key as text": (COLUMNS, "id", SchemaError, r"write \('id',\)"),
    "a key of floats": (
        pa.schema([("a", pa.float64())]),
        ["a"],
        SchemaError,
        r"can't be part of a key",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_that_cannot_be_right_says_why(case, shard):
    call, kind, message = CALLS[case]
    with pytest.raises(kind, match=message) as told:
        call(shard)
    assert str(told.value).isprintable(), "one line, without control characters"
    assert len(str(told.value)) < 600


@pytest.mark.parametrize("case", SCHEMAS)
def test_a_shard_with_a_schema_that_cannot_be_kept_is_not_created(case):
    schema, key, kind, message = SCHEMAS[case]
    with open_store("memory://") as store:
        with pytest.raises(kind, match=message) as told:
            store.shard("orders", schema, key)
        assert str(told.value).isprintable()
        assert store.shards() == []


def test_a_time_that_is_a_numpy_number_is_refused_or_taken_for_what_it_is(shard):
    for time in (np.int64(0), np.int32(0), np.uint8(0)):
        try:
            assert shard.snapshot(time).to_arrow().num_rows == 2
        except BoundsError as error:
            assert "whole number" in str(error)  # noqa: PT017 - either answer is definite


def test_an_upper_that_is_not_there_is_an_answer_and_not_an_error(shard):
    with shard.writer() as writer:
        for lower in (0, 5):
            answer = writer.compare_and_append(GOOD, lower=lower, upper=lower + 1)
            assert answer.upper.time == 1


def test_empty_tables_settle_times_and_add_nothing():
    with open_store("memory://") as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            writer.append(COLUMNS.empty_table())
            writer.append([])
            writer.compare_and_append(COLUMNS.empty_table(), lower=2, upper=10)
            assert shard.upper.time == 10
            assert shard.snapshot().to_arrow().num_rows == 0
            writer.append(GOOD)
            assert shard.snapshot().to_arrow().num_rows == 1


def test_unicode_names_and_values_come_back_as_they_were():
    schema = pa.schema([("naïve 名", pa.string()), ("id", pa.int64())])
    rows = [{"naïve 名": "\x1b[2J\n\0 \u202e 🦀", "id": 1}]
    with open_store("memory://") as store:
        shard = store.shard("orders", schema)
        with shard.writer() as writer:
            writer.append(rows)
        assert shard.snapshot(filter=[("naïve 名", "=", rows[0]["naïve 名"])]).count() == 1
        assert shard.snapshot().to_arrow().to_pylist() == rows


def test_a_value_of_100_mb_is_kept_whole(tmp_path):
    value = b"x" * 100_000_000
    with open_store(str(tmp_path / "lake"), upkeep=False) as store:
        shard = store.shard("large", pa.schema([("v", pa.binary())]))
        with shard.writer() as writer:
            writer.append(pa.table({"v": pa.array([value], pa.binary())}))
        (found,) = shard.snapshot().to_arrow().column("v").to_pylist()
        assert found == value
        (batch,) = shard.state().batches
        assert batch.inline is None
        assert sum(len(part.stats) for part in batch.parts) < 1000, "bounds are short"
