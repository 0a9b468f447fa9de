"""Spark's engine answers as the reference does, however its frames are divided."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.errors import PySparkException

import strandline
from strandline.errors import UsageError
from strandline.model.engine import Engine, Rules
from strandline.model.schema import Schema
from strandline.spark.engine import SparkEngine
from strandline.spark.table import frame_of
from strandline.testing.reference import ReferenceEngine, Rows, canonical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAN = float("nan")
SCHEMA = Schema.create(
    pa.schema([("k", pa.int32()), ("v", pa.float64()), ("tags", pa.list_(pa.string()))]), ("k",)
)
OWN = {"_time": pa.int64(), "_diff": pa.int64(), "_delete": pa.bool_(), "_order0": pa.int64()}
VALUES = {
    "k": st.integers(0, 5),
    "v": st.sampled_from([None, 0.0, -0.0, NAN, 2.0]),
    "tags": st.sampled_from([None, [], ["a"], [None]]),
}
INSERT = st.fixed_dictionaries({**VALUES, "_time": st.integers(0, 2), "_diff": st.just(1)})
UPSERT = st.fixed_dictionaries(
    {**VALUES, "_time": st.integers(0, 2), "_delete": st.booleans(), "_order0": st.integers(0, 2)}
)
STEP = st.one_of(
    st.tuples(st.just("write"), st.lists(INSERT, max_size=3)),
    st.tuples(st.just("upsert"), st.lists(UPSERT, max_size=8)),
)
PLACED = strandline.Settings(inline_max_bytes=0, place_bytes=1, fanout=1)
FEW, MANY = 6, 25
"""How many histories; each takes more than a dozen jobs."""


def frame(spark: SparkSession, rows: Rows, own: tuple[str, ...], partitions: int) -> DataFrame:
    fields = [*SCHEMA.arrow(), *(pa.field(name, OWN[name]) for name in own)]
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    return frame_of(spark, table).repartition(partitions)


def counted(rows: Rows) -> Counter:
    return Counter(canonical(row) for row in rows)


def attempt(call: object, *args: object) -> object:
    """What a call gave, or that it was refused; refusals leave nothing behind."""
    try:
        return astuple(call(*args))
    except UsageError:
        return "refused"


def listed(answer: DataFrame) -> Rows:
    return answer.toArrow().to_pylist()


@pytest.fixture
def conf(spark):
    """Changes a setting of the session for one test."""
    before: dict[str, str | None] = {}

    def change(name: str, value: str) -> None:
        before[name] = spark.conf.get(name, None)
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.mark.parametrize(
    ("partitions", "adaptive", "placed", "examples"),
    [
        (1, True, True, FEW),
        (4, False, False, FEW),
        pytest.param(1, True, False, MANY, marks=pytest.mark.slow),
        pytest.param(2, True, True, MANY, marks=pytest.mark.slow),
        pytest.param(4, True, True, MANY, marks=pytest.mark.slow),
        pytest.param(8, False, True, MANY, marks=pytest.mark.slow),
    ],
)
def test_both_engines_agree_on_every_operation(
    spark, tmp_path, conf, *, partitions, adaptive, placed, examples
):
    conf("spark.sql.adaptive.enabled", str(adaptive).lower())
    names = count()
    # Either few rows stay in the metadata, or all become parts, which are put by place.
    chosen = PLACED if placed else strandline.Settings()
    with strandline.open(str(tmp_path / "lake"), upkeep=False, settings=chosen) as store:

        @settings(
            deadline=None,
            max_examples=examples,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        @given(st.lists(STEP, min_size=1, max_size=3))
        def agree(steps: list[tuple[str, Rows]]) -> None:
            name = f"t{next(names)}"
            plain: Engine[Rows] = ReferenceEngine()
            fast: Engine[DataFrame] = SparkEngine(spark, store)
            plain.create(name, SCHEMA)
            fast.create(name, SCHEMA)
            upper = 0
            for kind, given_rows in steps:
                rows = [{**row, "_time": row["_time"] + upper} for row in given_rows]
                if kind == "write":
                    given_frame = frame(spark, rows, ("_time", "_diff"), partitions)
                    told = attempt(plain.write, name, rows, upper + 3)
                    assert attempt(fast.write, name, given_frame, upper + 3) == told
                else:
                    own = ("_time", "_delete", "_order0")
                    given_frame = frame(spark, rows, own, partitions)
                    told = attempt(plain.upsert, name, rows, upper + 3, Rules())
                    assert attempt(fast.upsert, name, given_frame, upper + 3, Rules()) == told
                upper += 0 if told == "refused" else 3
            if not upper:
                return
            for time in (0, upper - 1):
                assert counted(listed(fast.read(name, time))) == counted(plain.read(name, time))
                assert fast.digest(name, time) == plain.digest(name, time)
                keys: Rows = [{"k": 1}, {"k": 3}, {"k": 3}]
                wanted = spark.createDataFrame([(1,), (3,), (3,)], "k int").repartition(partitions)
                found = listed(fast.lookup(name, wanted, time))
                assert counted(found) == counted(plain.lookup(name, keys, time))
            changes = plain.changes(name, 1, upper)
            assert counted(listed(fast.changes(name, 1, upper))) == counted(changes)
            twice = frame(spark, [*changes, *changes], ("_time", "_diff"), partitions)
            again = plain.consolidate([*changes, *changes])
            assert counted(listed(fast.consolidate(twice))) == counted(again)

        agree()


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_sum_beyond_64_bits_is_an_error_in_every_session(spark, tmp_path, conf, ansi):
    conf("spark.sql.ansi.enabled", ansi)
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        engine = SparkEngine(spark, store)
        summed = spark.createDataFrame([(1, 7), (1, -7), (2, 3)], "k bigint, _diff bigint")
        assert listed(engine.consolidate(summed)) == [{"k": 2, "_diff": 3}]
        beyond = spark.createDataFrame([(1, 2**62), (1, 2**62)], "k bigint, _diff bigint")
        with pytest.raises(PySparkException, match="more than 64 bits"):
            engine.consolidate(beyond).collect()


def test_an_order_that_is_stored_drops_what_comes_late(spark, tmp_path):
    schema = Schema.create(pa.schema([("k", pa.int32()), ("n", pa.int64())]), ("k",))
    rules = Rules(("n",))
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        plain: Engine[Rows] = ReferenceEngine()
        fast: Engine[DataFrame] = SparkEngine(spark, store)
        plain.create("t", schema)
        fast.create("t", schema)
        for at, (key, order) in enumerate([(1, 5), (1, 4), (1, 6), (2, 1)]):
            rows = [{"k": key, "n": order, "_order0": order, "_time": at}]
            given_frame = spark.createDataFrame(
                [(key, order, order, at)], "k int, n long, _order0 long, _time long"
            )
            told = plain.upsert("t", rows, at + 1, rules)
            assert fast.upsert("t", given_frame, at + 1, rules) == told
        assert told.late == 0
        assert counted(listed(fast.read("t", 3))) == counted([{"k": 1, "n": 6}, {"k": 2, "n": 1}])
