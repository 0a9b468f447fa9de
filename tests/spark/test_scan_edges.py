"""Native scans where Spark's settings, paths, names and types could change what is read."""

from __future__ import annotations

import decimal
from collections import Counter
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructField, StructType

import strandline
from strandline.errors import UsageError

KEYED = pa.schema([("k", pa.int64()), ("v", pa.string())])
FAILED = (PySparkException, Py4JJavaError)


def counted(table: pa.Table) -> Counter[str]:
    return Counter(str(row) for row in table.to_pylist())


def same(frame, shard, as_of=None) -> None:
    expected = (
        shard.snapshot(as_of).to_arrow() if as_of is not None else shard.snapshot().to_arrow()
    )
    found = frame.toArrow()
    assert found.column_names == expected.column_names
    fitted = [found.column(n).cast(expected.schema.field(n).type) for n in expected.column_names]
    assert counted(pa.Table.from_arrays(fitted, expected.column_names)) == counted(expected)


def big(shard, rows: int, make) -> None:
    with shard.writer() as writer:
        writer.append(pa.Table.from_pylist([make(n) for n in range(rows)], schema=shard.schema))


@pytest.fixture
def large(tmp_path):
    """A table of one part, and where that lies."""
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        shard = store.shard("t", KEYED, key=("k",))
        big(shard, 20_000, lambda n: {"k": n, "v": f"row {n}"})
        (part,) = (tmp_path / "lake").rglob("*.parquet")
        yield store.table("t"), part


@pytest.fixture
def lenient(spark):
    """A session that leaves out what it can't read."""
    names = ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"]
    before = {name: spark.conf.get(name) for name in names}
    for name in names:
        spark.conf.set(name, "true")
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_part_is_never_left_out_silently(lenient, large, harm):
    table, part = large
    frame = table.df(lenient)
    content = part.read_bytes()
    part.unlink()
    if harm == "damaged":
        part.write_bytes(content[:4] + bytes(len(content) - 4))
    with pytest.raises(FAILED):
        frame.toArrow()


def test_a_flipped_bit_in_a_page_is_found(spark, large):
    table, part = large
    content = part.read_bytes()
    right = pq.read_table(part)
    for at in range(200, len(content) // 2, 101):
        part.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        if reads_as_something_else(part, right):
            break
    else:
        pytest.fail("no bit makes a difference")
    with pytest.raises(FAILED):
        table.df(spark).toArrow()


def reads_as_something_else(part, right: pa.Table) -> bool:
    try:
        return not pq.read_table(part, page_checksum_verification=False).equals(right)
    except (pa.ArrowException, OSError):
        return False


@pytest.mark.parametrize("name", ["a b%20#c", "k=1", "ü,x:y&+", "_hidden", ".dot", "back`tick'\""])
def test_folders_with_odd_names_are_scanned(spark, tmp_path, name):
    with strandline.open(str(tmp_path / name), upkeep=False) as store:
        shard = store.shard("t", KEYED, key=("k",))
        big(shard, 3000, lambda n: {"k": n, "v": f"row {n}"})
        frame = store.table("t").df(spark)
        assert frame.columns == ["k", "v"]
        same(frame, shard)


def test_odd_column_names_are_scanned_and_corrected(spark, tmp_path):
    names = ["a.b", "c`d", "e f,;(){}=", "Ünï", "_Place", "_c"]
    with strandline.open(str(tmp_path / "l"), upkeep=False) as store:
        columns = pa.schema([(n, pa.int64()) for n in names])
        shard = store.shard("t", columns, key=("a.b", "c`d", "Ünï"))
        big(shard, 3000, lambda n: dict.fromkeys(names, n))
        table = store.table("t")
        same(table.df(spark), shard)
        came = spark.createDataFrame([(1, 1, 5, 1, 5, 5)], spark_ddl(names))
        table.upsert(came)
        same(table.df(spark), shard)
        assert table.lookup_arrow(came).num_rows == 1


def spark_ddl(names):
    return StructType([StructField(n, LongType()) for n in names])


def test_widened_and_added_columns_are_scanned(spark, tmp_path):
    d = decimal.Decimal
    first = pa.schema(
        [
            ("k", pa.int32()),
            ("a", pa.int8()),
            ("b", pa.int16()),
            ("f", pa.float32()),
            ("d", pa.decimal128(5, 2)),
            ("e", pa.decimal128(12, 2)),
            ("s", pa.string()),
            ("y", pa.binary()),
        ]
    )
    later = pa.schema(
        [
            ("k", pa.int64()),
            ("a", pa.int32()),
            ("b", pa.int64()),
            ("f", pa.float64()),
            ("d", pa.decimal128(15, 2)),
            ("e", pa.decimal128(30, 2)),
            ("s", pa.large_string()),
            ("y", pa.large_binary()),
            ("new", pa.timestamp("us", "Europe/Paris")),
        ]
    )
    with strandline.open(str(tmp_path / "l"), upkeep=False) as store:
        shard = store.shard("t", first, key=("k",))
        big(
            shard,
            3000,
            lambda n: {
                "k": n,
                "a": n % 100,
                "b": n,
                "f": n / 3,
                "d": d(n) / 100,
                "e": d(n) / 100,
                "s": f"s{n}",
                "y": b"y%d" % n,
            },
        )
        shard.evolve(later)
        table = store.table("t")
        same(table.df(spark), shard)
        big(
            shard,
            3000,
            lambda n: {
                "k": n + 2**40,
                "a": n,
                "b": n * 2**33,
                "f": n / 3,
                "d": d(n * 1000000) / 100,
                "e": d(n * 10**20) / 100,
                "s": f"s{n}",
                "y": b"y%d" % n,
                "new": datetime(1850, 1, 1, tzinfo=UTC),
            },
        )
        same(table.df(spark), shard)
        one = table.df(spark).where("k = 5 or k = 1099511627781").drop("new")
        changed = one.selectExpr(
            "k", "cast(a + 1 as int) a", "b", "f", "d", "e", "s", "y", "timestamp'2020-07-01' new"
        )
        table.upsert(changed)
        same(table.df(spark), shard)
        same(table.df(spark, as_of=0), shard, 0)
        same(table.df(spark, as_of=1), shard, 1)


def test_times_and_dates_are_the_same_in_every_way_of_reading(spark, tmp_path):
    columns = pa.schema(
        [
            ("k", pa.date32()),
            ("z", pa.timestamp("us", "Europe/Paris")),
            ("n", pa.timestamp("us")),
            ("d", pa.decimal128(38, 5)),
        ]
    )
    zone = spark.conf.get("spark.sql.session.timeZone")
    mode = "spark.sql.parquet.datetimeRebaseModeInRead"
    rebase = spark.conf.get(mode)
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        spark.conf.set(mode, "LEGACY")
        with strandline.open(str(tmp_path / "l"), upkeep=False) as store:
            shard = store.shard("t", columns, key=("k",))
            big(
                shard,
                3000,
                lambda n: {
                    "k": date.fromordinal(400000 + n * 100),
                    "z": datetime(1000 + n % 900, 7, 1, 3, tzinfo=UTC),
                    "n": datetime(1200 + n % 800, 3, 8, 2, 30),  # noqa: DTZ001 - local on purpose
                    "d": decimal.Decimal(n),
                },
            )
            table = store.table("t")
            same(table.df(spark), shard)
            few = (
                table.df(spark)
                .where("d < 3")
                .selectExpr("k", "z + interval 1 hour z", "n + interval 1 hour n", "d")
            )
            table.upsert(few)
            same(table.df(spark), shard)
            got = table.lookup_arrow(few)
            assert got.num_rows == few.count()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set(mode, rebase)


def test_conditions_on_doubles_skip_no_rows(spark, tmp_path):
    columns = pa.schema(
        [("k", pa.int64()), ("x", pa.float64()), ("s", pa.struct([("x", pa.float64())]))]
    )
    with strandline.open(str(tmp_path / "l"), upkeep=False) as store:
        shard = store.shard("t", columns, key=("k",))
        for at, odd in enumerate([float("nan"), -0.0, None]):
            few = [odd, -1.0]
            big(
                shard,
                2000,
                lambda n, at=at, few=few: {
                    "k": n + 2000 * at,
                    "x": few[n % 2],
                    "s": {"x": few[n % 2]},
                },
            )
        frame = store.table("t").df(spark)
        assert frame.inputFiles()
        expected = spark.createDataFrame(shard.snapshot().to_arrow())
        conditions = ("> 5", "= double('NaN')", ">= 0", "= 0", "< 0", "is null")
        asked = [f"{column} {each}" for column in ("x", "s.x") for each in conditions]
        counts = [f"count_if({each}) c{at}" for at, each in enumerate(asked)]
        (wanted,) = expected.selectExpr(*counts).collect()
        found = [frame.where(each).count() for each in asked]
        assert dict(zip(asked, found, strict=True)) == dict(zip(asked, wanted, strict=True))


def test_no_job_runs_for_a_table_of_many_parts_before_it_is_used(spark, tmp_path):
    with strandline.open(str(tmp_path / "l"), upkeep=False) as store:
        shard = store.shard("t", KEYED, key=("k",))
        table = store.table("t")
        for n in range(2):
            table.append(
                spark.range(n * 60000, (n + 1) * 60000, 1, 25).selectExpr(
                    "id k", "repeat(cast(id as string), 9) v"
                )
            )
        tracker = spark.sparkContext.statusTracker()
        spark.sparkContext.setJobGroup("planning", "planning")
        try:
            frame = table.df(spark)
            jobs = tracker.getJobIdsForGroup("planning")
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        assert sum(batch.part_count for batch in shard.state().batches) > 32
        spark.sparkContext.setJobGroup("using", "using")
        try:
            assert frame.count() == 120000
            assert tracker.getJobIdsForGroup("using")
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        assert not jobs


KEYS = {
    "y": (pa.binary(), lambda n: b"\x00\xff" + n.to_bytes(4, "big")),
    "s": (pa.string(), lambda n: f"{'Aa'[n % 2]} {n} "),
    "d": (pa.decimal128(20, 3), lambda n: decimal.Decimal(-n) / 1000),
    "t": (pa.timestamp("us", "Europe/Paris"), lambda n: datetime(1800, 1, 1, 0, 0, n % 60, n, UTC)),
    "n": (pa.uint64(), lambda n: 2**64 - 1 - n),
    "b": (pa.bool_(), lambda n: n % 2 == 0),
}


@pytest.mark.parametrize("names", [("y", "d"), ("s", "b"), ("t",), ("n",)], ids=str)
def test_touched_keys_of_every_type_are_corrected(spark, tmp_path, names):
    with strandline.open(str(tmp_path / "l"), upkeep=False) as store:
        columns = pa.schema([*((name, KEYS[name][0]) for name in names), ("v", pa.float64())])
        shard = store.shard("t", columns, key=names)
        big(shard, 3000, lambda n: {**{k: KEYS[k][1](n) for k in names}, "v": -0.0})
        table = store.table("t")
        few = table.df(spark).orderBy(names[0]).limit(7)
        table.upsert(few.selectExpr(*names, "double('NaN') v"))
        table.upsert(few.limit(3), deleteWhen="true")
        assert shard.snapshot().count() == 2997
        same(table.df(spark), shard)
        same(table.df(spark, as_of=1), shard, 1)
        assert table.lookup_arrow(few).num_rows == 4


def test_a_key_with_two_rows_is_read_but_not_upserted(spark, tmp_path):
    with strandline.open(str(tmp_path / "l"), upkeep=False) as store:
        shard = store.shard("t", KEYED, key=("k",))
        table = store.table("t")
        rows = spark.createDataFrame([(1, "a"), (2, "b")], "k long, v string")
        table.append(rows)
        table.append(rows.where("k = 1"))
        same(table.df(spark), shard)
        assert table.lookup_arrow(rows).num_rows == 3
        with pytest.raises(UsageError, match="more than one row of key 'k' = 1"):
            table.upsert(rows)
        with pytest.raises(UsageError, match="more than one row of key 'k' = 1"):
            table.upsert(rows, deleteWhen="true")
        keyless = store.table("u", KEYED)
        keyless.append(rows)
        with pytest.raises(UsageError, match="no key"):
            keyless.lookup(rows.select("k"))
