"""A collection as an Iceberg table: one snapshot a transaction, read back by other engines."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import count
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table

from strandline.connectors.iceberg_sink import IcebergSink, Place, open_sink
from strandline.connectors.sink import NOTHING_YET, Delivered, Progress, SinkPorts
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError, UsageError
from strandline.testing.conformance_sink import (
    COLUMNS,
    WHAT,
    SinkStand,
    changes,
    check_sink,
    founded,
    opened,
)

NAME = "shop.large"
KEY = pa.string()
NEWER = replace(WHAT, address=replace(WHAT.address, lineage="newer"))
PORTS = SinkPorts(str, lambda: "0" * 32)


def told(root: Path) -> dict[str, str]:
    root.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}"}


@cache
def catalog_of(root: Path) -> Catalog:
    """Whoever else reads the table; what it is told is always the newest."""
    return load_catalog("strandline", **told(root))


def table_of(root: Path) -> Table:
    return catalog_of(root).load_table(NAME)


def stand(root: Path) -> SinkStand:
    def new(what: Delivered, step: Callable[[str], None]) -> IcebergSink:
        return IcebergSink(Place(NAME, told(root)), what, str, step)

    def state(what: Delivered) -> tuple[Progress | None, pa.Table]:
        table = table_of(root)
        mark = table.properties.get(f"strandline.progress.{what.address.digest}")
        progress = None if mark is None else msgspec.json.decode(mark, type=Progress)
        return progress, table.scan().to_arrow().cast(COLUMNS)

    return SinkStand(new, state=state)


def test_it_keeps_the_contract(tmp_path: Path) -> None:
    folders = (tmp_path / str(n) for n in count())
    check_sink(lambda: stand(next(folders)))


def test_each_transaction_is_one_snapshot_that_says_which(tmp_path: Path) -> None:
    founded(stand(tmp_path), 0, 1, 4)
    table = table_of(tmp_path)
    summaries = [each.summary for each in table.snapshots()]
    assert [each["strandline.t"] for each in summaries if each] == ["0", "1", "4"]
    assert {each["strandline.lineage"] for each in summaries if each} == {WHAT.address.lineage}
    at_one = table.scan(snapshot_id=table.snapshots()[1].snapshot_id).to_arrow()
    assert sorted(at_one["id"].to_pylist()) == [1, 10, 11], "as of a snapshot, as it was then"


READER = Path(__file__).resolve().parents[2] / ".reader"
READING = """
import sys
import duckdb
from duckdb_extensions import import_extension

connection = duckdb.connect(config={"extension_directory": sys.argv[1]})
for each in ("avro", "iceberg"):
    import_extension(each, con=connection)
    connection.sql(f"LOAD {each}")
print(connection.sql(f"SELECT * FROM iceberg_scan('{sys.argv[2]}') ORDER BY id").fetchall())
"""


@pytest.mark.process
@pytest.mark.skipif(
    not READER.exists() and os.environ.get("CI") != "true",
    reason="no DuckDB with a reader of Iceberg in .reader (make test installs it)",
)
def test_duckdbs_own_reader_reads_it(tmp_path: Path) -> None:
    """In a process of its own: it is another DuckDB than the one that is installed."""
    founded(stand(tmp_path), 0, 1)
    where = table_of(tmp_path).metadata_location.removeprefix("file://")
    said = subprocess.run(
        [sys.executable, "-c", READING, str(tmp_path / "extensions"), where],
        env={**os.environ, "PYTHONPATH": str(READER)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert ast.literal_eval(said.stdout) == [(1, "since 1"), (10, "row 0"), (11, None)]


def test_progress_outlives_snapshots_that_others_expire(tmp_path: Path) -> None:
    founded(stand(tmp_path), 0, 1, 2)
    table = table_of(tmp_path)
    old = [each.snapshot_id for each in table.snapshots()][:-1]
    with table.maintenance.expire_snapshots() as change:
        change.by_ids(old)
    assert opened(stand(tmp_path))[1] == Progress(2, 1)


def test_rows_that_occur_twice_go_one_by_one(tmp_path: Path) -> None:
    what = replace(WHAT, columns=pa.schema([("n", pa.int16()), ("x", pa.float64())]))

    def batch(*rows: tuple[int | None, float | None, int]) -> list[pa.RecordBatch]:
        schema = what.columns.append(pa.field("_diff", pa.int64(), nullable=False))
        named = [dict(zip(schema.names, row, strict=True)) for row in rows]
        return [pa.RecordBatch.from_pylist(named, schema)]

    sink, _ = opened(stand(tmp_path), what)
    sink.found(Progress(-1, 1))
    nan = float("nan")
    sink.deliver(0, 1, batch((1, nan, 3), (None, 2.0, 2), (7, -0.0, 1)))
    sink.deliver(1, 1, batch((1, nan, -2), (None, 2.0, -1), (7, 0.0, -1)))
    rows = table_of(tmp_path).scan().to_arrow().to_pydict()
    assert sorted(map(str, zip(rows["n"], rows["x"], strict=True))) == ["(1, nan)", "(None, 2.0)"]


def test_who_finds_rows_gone_stops_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    sink = founded(stand(tmp_path), 0)
    table_of(tmp_path).delete("id == 1")
    before = table_of(tmp_path).metadata_location
    with pytest.raises(SinkStoppedError, match="1 rows that go are not in the table"):
        sink.deliver(1, 1, changes(1, 0))
    assert table_of(tmp_path).metadata_location == before


def test_who_races_with_somebody_else_does_not_lay_itself_over_them(tmp_path: Path) -> None:
    def meddle(step: str) -> None:
        if step == "commit":
            table_of(tmp_path).append(pa.table({"id": [99], "name": ["theirs"]}))

    founded(stand(tmp_path), 0).close()
    sink, _ = opened(stand(tmp_path), step=meddle)
    with pytest.raises(SinkFencedError, match="has changed since transaction 1 was begun"):
        sink.deliver(1, 1, changes(1, 0))
    assert opened(stand(tmp_path))[1] == Progress(0, 1)


def _files(root: Path) -> list[str]:
    """What a table is made of, but for its metadata: each change of it has a file of those."""
    found = (each for each in root.rglob("*") if each.suffix in {".parquet", ".avro"})
    return sorted(each.name for each in found)


def test_a_commit_that_is_refused_for_itself_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was not answered sends it again, and is told of a conflict with the first."""
    sink = founded(stand(tmp_path), 0)

    def twice(self: SqlCatalog, *words: object) -> CommitTableResponse:
        commit(self, *words)
        return commit(self, *words)

    commit = SqlCatalog.commit_table
    monkeypatch.setattr(SqlCatalog, "commit_table", twice)
    sink.deliver(1, 1, changes(1, 0))
    monkeypatch.undo()
    assert sorted(table_of(tmp_path).scan().to_arrow()["id"].to_pylist()) == [1, 10, 11]
    founded(stand(tmp_path), 2)
    assert opened(stand(tmp_path))[1] == Progress(2, 1)


def test_what_did_not_count_is_deleted_if_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = founded(stand(tmp_path), 0)
    before = _files(tmp_path)

    def refused(*_: object) -> None:
        raise CommitFailedException("somebody else")

    monkeypatch.setattr(SqlCatalog, "commit_table", refused)
    with pytest.raises(SinkFencedError, match="has changed since transaction 1"):
        sink.deliver(1, 1, changes(1, 0))
    assert _files(tmp_path) == before


def test_what_may_count_is_never_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is away before it can tell, or another one has published the same."""
    lost = founded(stand(tmp_path), 0)

    def away(*_: object) -> None:
        raise OSError("no route")

    def refused(*_: object) -> None:
        monkeypatch.setattr(SqlCatalog, "load_table", away)
        raise CommitFailedException("somebody else")

    before = _files(tmp_path)
    monkeypatch.setattr(SqlCatalog, "commit_table", refused)
    with pytest.raises(SinkError, match="no route"):
        lost.deliver(1, 1, changes(1, 0))
    monkeypatch.undo()
    assert set(before) < set(_files(tmp_path))

    def meddle(step: str) -> None:
        if step == "commit":
            founded(stand(tmp_path), 1)
            known.extend(_files(tmp_path))

    known: list[str] = []
    late, _ = opened(stand(tmp_path), step=meddle)
    with pytest.raises(SinkFencedError):
        late.deliver(1, 1, changes(1, 0))
    assert known
    assert set(known) <= set(_files(tmp_path))
    assert opened(stand(tmp_path))[1] == Progress(1, 1)


@pytest.mark.parametrize(("said", "told_as"), [({}, 0), ({"glue.max-retries": "3"}, 3)])
def test_glues_client_tries_nothing_again_unless_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str], told_as: int
) -> None:
    seen: list[object] = []

    def load(name: str, **words: object) -> Catalog:
        seen.append(words["glue.max-retries"])
        return load_catalog(name, **{k: v for k, v in words.items() if k != "glue.max-retries"})

    monkeypatch.setattr("pyiceberg.catalog.load_catalog", load)
    IcebergSink(Place(NAME, {**told(tmp_path), **said}), WHAT, str).prepare()
    assert seen == [told_as]


def test_a_first_mark_that_comes_late_takes_nothing_back(tmp_path: Path) -> None:
    """It was begun before another publisher had left its own, and delivered."""

    def meddle(step: str) -> None:
        if step == "found":
            founded(stand(tmp_path), 0)

    sink, progress = opened(stand(tmp_path), step=meddle)
    assert progress is None
    with pytest.raises(SinkFencedError, match="has changed: another was faster"):
        sink.found(Progress(NOTHING_YET, 1))
    assert opened(stand(tmp_path))[1] == Progress(0, 1)


@pytest.mark.parametrize(
    ("what", "at", "message"),
    [(WHAT, NOTHING_YET, "holds rows of this lineage"), (NEWER, 0, "are of another lineage")],
)
def test_a_first_mark_that_the_rows_belie_is_refused(
    tmp_path: Path, what: Delivered, at: int, message: str
) -> None:
    founded(stand(tmp_path), 0)
    with table_of(tmp_path).transaction() as change:
        change.remove_properties(f"strandline.progress.{WHAT.address.digest}")
    before = table_of(tmp_path).metadata_location
    sink, progress = opened(stand(tmp_path), what)
    assert progress is None
    with pytest.raises(SinkStoppedError, match=message):
        sink.found(Progress(at, 1))
    assert table_of(tmp_path).metadata_location == before


def test_progress_that_was_lost_is_left_again_where_the_rows_are(tmp_path: Path) -> None:
    founded(stand(tmp_path), 0)
    with table_of(tmp_path).transaction() as change:
        change.remove_properties(f"strandline.progress.{WHAT.address.digest}")
    sink, _ = opened(stand(tmp_path))
    sink.found(Progress(0, 1))
    founded(stand(tmp_path), 1)
    assert sorted(table_of(tmp_path).scan().to_arrow()["id"].to_pylist()) == [1, 10, 11]


def test_progress_that_the_rows_belie_stops_a_delivery(tmp_path: Path) -> None:
    founded(stand(tmp_path), 0)
    with table_of(tmp_path).transaction() as change:
        name = f"strandline.progress.{WHAT.address.digest}"
        change.set_properties({name: '{"t":-1,"epoch":1}'})
    sink, progress = opened(stand(tmp_path))
    assert progress == Progress(NOTHING_YET, 1)
    with pytest.raises(SinkStoppedError, match="holds rows of this lineage"):
        sink.deliver(0, 1, changes(0))


def test_a_library_that_was_told_to_try_again_is_told_not_to(tmp_path: Path) -> None:
    founded(stand(tmp_path), 0)
    with table_of(tmp_path).transaction() as change:
        change.set_properties({"commit.retry.num-retries": "4"})
    founded(stand(tmp_path), 1)
    assert table_of(tmp_path).metadata.properties["commit.retry.num-retries"] == "0"


def test_a_table_of_others_is_refused_by_name(tmp_path: Path) -> None:
    founded(stand(tmp_path), 0)
    other = replace(WHAT, address=replace(WHAT.address, sink="other"))
    with pytest.raises(SinkStoppedError, match=r"published to by 'shop/out'.*of its own"):
        opened(stand(tmp_path), other)
    catalog = load_catalog("strandline", **told(tmp_path / "b"))
    catalog.create_namespace("shop")
    catalog.create_table(NAME, COLUMNS)
    with pytest.raises(SinkStoppedError, match="was not made by a sink"):
        opened(stand(tmp_path / "b"))


def test_rows_of_an_older_lineage_are_not_read_back_as_none(tmp_path: Path) -> None:
    founded(stand(tmp_path), 0)
    newer = replace(WHAT, address=replace(WHAT.address, lineage="two"))
    sink = founded(stand(tmp_path), what=newer)
    with pytest.raises(SinkStoppedError, match="has the rows of another lineage"):
        sink.read_back()
    sink.deliver(0, 1, [])
    found = sink.read_back()
    assert found is not None
    assert (found.at, sum(each.num_rows for each in found.rows)) == (Progress(0, 1), 0)
    assert table_of(tmp_path).scan().to_arrow().num_rows == 0


def test_columns_are_added_and_one_of_another_type_is_refused(tmp_path: Path) -> None:
    founded(stand(tmp_path), 0)
    wider = Delivered(
        replace(WHAT.address, lineage="two"), COLUMNS.append(pa.field("x", pa.date32()))
    )
    opened(stand(tmp_path), wider)
    assert table_of(tmp_path).schema().as_arrow().names == ["id", "name", "x"]
    wrong = replace(WHAT, columns=pa.schema([("id", pa.string()), ("name", pa.string())]))
    with pytest.raises(SinkStoppedError, match=r"column 'id' of shop\.large is int64, and string"):
        opened(stand(tmp_path), wrong)


INNER = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(KEY, pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.string()))]))),
        pa.map_(KEY, pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]))),
        pa.map_(KEY, pa.list_(pa.struct([("a", pa.int64()), ("c", pa.list_(pa.string()))]))),
        pa.map_(KEY, pa.list_(pa.struct([("a", pa.int64())]))),
        pa.map_(KEY, INNER),
        pa.map_(pa.int64(), pa.list_(INNER)),
        pa.list_(INNER),
        pa.string(),
    ],
    ids=str,
)
def test_a_nested_column_of_another_type_is_refused_by_name_before_anything_is_written(
    tmp_path: Path, kind: pa.DataType
) -> None:
    columns = pa.schema([("n", pa.map_(KEY, pa.list_(INNER)))])
    founded(stand(tmp_path), what=replace(WHAT, columns=columns))
    before = table_of(tmp_path).metadata_location
    wrong = replace(NEWER, columns=pa.schema([("n", kind)]))
    with pytest.raises(
        SinkStoppedError, match=r"column 'n' of shop\.large is .*, and .* published"
    ):
        opened(stand(tmp_path), wrong)
    assert table_of(tmp_path).metadata_location == before


def test_a_nested_column_that_is_only_laid_out_otherwise_is_taken(tmp_path: Path) -> None:
    columns = pa.schema([("n", pa.list_(INNER)), ("m", pa.map_(KEY, INNER))])
    founded(stand(tmp_path), what=replace(WHAT, columns=columns))
    inner = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.field("each", pa.large_string())))])
    other = pa.schema([("n", pa.list_(inner)), ("m", pa.map_(KEY, inner))])
    assert opened(stand(tmp_path), replace(WHAT, columns=other))[1] == Progress(NOTHING_YET, 1)


def test_every_type_that_can_be_held_comes_back(tmp_path: Path) -> None:
    kinds: dict[pa.DataType, object] = {
        pa.int8(): -7, pa.uint32(): 2**32 - 1, pa.uint64(): 2**64 - 1, pa.float32(): 0.5,
        pa.bool_(): True, pa.decimal128(12, 2): Decimal("1.25"), pa.binary(): b"\x00\xff",
        pa.list_(pa.int16()): [1, None], pa.struct([("a", pa.string())]): {"a": "x"},
        pa.map_(pa.string(), pa.int64()): [("k", 1)],
    }  # fmt: skip
    columns = pa.schema([(f"c{n}", kind) for n, kind in enumerate(kinds)])
    what = replace(WHAT, columns=columns)
    row = {f"c{n}": value for n, value in enumerate(kinds.values())}
    schema = columns.append(pa.field("_diff", pa.int64(), nullable=False))
    sink, _ = opened(stand(tmp_path), what)
    sink.found(Progress(-1, 1))
    sink.deliver(0, 1, [pa.RecordBatch.from_pylist([{**row, "_diff": 1}], schema)])
    found = sink.read_back()
    assert found is not None
    assert pa.Table.from_batches(found.rows, schema).to_pylist() == [{**row, "_diff": 1}]
    sink.deliver(1, 1, [pa.RecordBatch.from_pylist([{**row, "_diff": -1}], schema)])
    assert table_of(tmp_path).scan().to_arrow().num_rows == 0


def test_a_catalog_that_is_away_stops_nothing(tmp_path: Path) -> None:
    sink = founded(stand(tmp_path), 0)
    (tmp_path / "catalog.db").rename(tmp_path / "away.db")
    with pytest.raises(SinkError) as caught:
        sink.deliver(1, 1, changes(1, 0))
    assert not isinstance(caught.value, SinkStoppedError)


def test_what_can_not_be_held_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    what = replace(WHAT, columns=pa.schema([("d", pa.duration("us"))]))
    with pytest.raises(SinkStoppedError, match="duration"):
        opened(stand(tmp_path), what)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.list_(pa.timestamp("ns")), pa.time64("ns")]
)
def test_nanoseconds_that_are_no_whole_microseconds_stop_the_sink(
    tmp_path: Path, kind: pa.DataType
) -> None:
    """The next try would end as this one did."""
    what = replace(WHAT, columns=pa.schema([("at", kind)]))
    schema = what.columns.append(pa.field("_diff", pa.int64(), nullable=False))

    def batch(nanoseconds: int) -> list[pa.RecordBatch]:
        whole = pa.array([nanoseconds]).cast(kind.value_type if pa.types.is_list(kind) else kind)
        column = pa.array([whole.tolist()], kind) if pa.types.is_list(kind) else whole
        return [pa.RecordBatch.from_arrays([column, pa.array([1])], schema=schema)]

    sink = founded(stand(tmp_path), what=what)
    sink.deliver(0, 1, batch(7_000))
    before = _files(tmp_path)
    with pytest.raises(SinkStoppedError, match="column 'at' has a value that the table can't hold"):
        sink.deliver(1, 1, batch(7_001))
    assert _files(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "large"}, "write 'namespace.name'"),
        ({"table": "a..b"}, "write 'namespace.name'"),
        ({"table": "a.b", "nonsense": "1"}, "no option 'nonsense'"),
    ],
)
def test_options_that_say_nothing_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_sink(options, WHAT, PORTS)


def test_s90_a_secret_is_in_no_error(tmp_path: Path) -> None:
    options = {"table": NAME, "catalog.type": "sql", "catalog.uri": "env:URI"}
    ports = SinkPorts(
        lambda value: "sqlite:////no/such/TIDE.db" if value == "env:URI" else value, str
    )
    sink = open_sink(options, WHAT, ports)
    with pytest.raises(SinkError) as caught:
        sink.prepare()
    assert "TIDE" not in str(caught.value)
    assert caught.value.__cause__ is None
