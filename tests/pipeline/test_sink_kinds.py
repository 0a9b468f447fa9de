"""CREATE SINK from end to end: what is in the target is what the view holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import strandline
from strandline.errors import UsageError
from strandline.handles.store import Store
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.publish import SinkState
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

SETTINGS = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=5)
TEXT = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '20', deletes '0.1', rows '40', rowsPerSecond '0');
CREATE MATERIALIZED VIEW large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10;
"""


@pytest.fixture
def store() -> Iterator[Store]:
    with strandline.open("memory://") as opened:
        yield opened


def shop(store: Store, sink: str) -> Pipeline:
    return store.pipeline("shop", TEXT + sink, settings=SETTINGS, engine=arrow_engine)


def counted(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(rows[name].to_pylist() for name in ("id", "twice")), strict=True))


def catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}


def iceberg(folder: Path, more: str = "") -> str:
    options = ", ".join(f"catalog.{name} '{value}'" for name, value in catalog(folder).items())
    return f"CREATE SINK out FROM large USING iceberg OPTIONS (table 's.large', {options}{more});"


def test_an_iceberg_table_is_the_view_at_every_transaction(store: Store, tmp_path: Path) -> None:
    with shop(store, iceberg(tmp_path)) as pipeline:
        pipeline.run(until_idle=True)
        table = load_catalog("strandline", **catalog(tmp_path)).load_table("s.large")
        view = pipeline.view("large")
        assert len(table.snapshots()) > 1
        for each in table.snapshots():
            assert each.summary is not None
            with view.snapshot(int(each.summary["strandline.t"])) as snapshot:
                held = table.scan(snapshot_id=each.snapshot_id).to_arrow()
                assert counted(held) == counted(snapshot.to_arrow())


def test_an_interval_makes_fewer_snapshots(store: Store, tmp_path: Path) -> None:
    with shop(store, iceberg(tmp_path, ", interval '1s'")) as pipeline:
        pipeline.run(until_idle=True)
        table = load_catalog("strandline", **catalog(tmp_path)).load_table("s.large")
        with pipeline.view("large").snapshot() as snapshot:
            assert counted(table.scan().to_arrow()) == counted(snapshot.to_arrow())
        assert len(table.snapshots()) <= 3


CALLBACK = "CREATE SINK out FROM large USING callback OPTIONS (delivery 'at-least-once');"


def test_a_function_gets_every_transaction_and_after_trouble_the_same_again(store: Store) -> None:
    total: Counter[tuple[object, ...]] = Counter()
    times: list[int] = []

    def take(changes: pa.Table, t: int) -> None:
        times.append(t)
        if len(times) == 2:
            raise OSError("no room")
        for row in changes.to_pylist():
            total[row["id"], row["twice"]] += row["_diff"]

    with shop(store, CALLBACK) as pipeline:
        pipeline.foreach_transaction("out", take)
        pipeline.run(until_idle=True)
        with pipeline.view("large").snapshot() as snapshot:
            assert +total == counted(snapshot.to_arrow())
    assert times[1] == times[2], "what raised comes again"
    assert times == sorted(times)


def test_a_process_that_gives_no_function_leaves_the_sink_to_others(store: Store) -> None:
    with shop(store, CALLBACK) as pipeline:
        pipeline.start()
        env = store.env
        for _ in range(1_000):
            here = pipeline.here
            if here is not None and here.sinks and here.sinks[0].cause:
                break
            env.tasks.sleep(10)
        assert here is not None
        assert here.sinks[0].state is SinkState.WAITING
        assert "foreach_transaction('out', function)" in here.sinks[0].cause
        pipeline.stop_here()
        pipeline.wait()


def test_less_than_exactly_once_has_to_be_said(store: Store) -> None:
    text = CALLBACK.replace("at-least-once", "exactly-once")
    with shop(store, text) as pipeline, pytest.raises(UsageError, match="say that this will do"):
        pipeline.run(until_idle=True)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("iceberg OPTIONS (table 's.t', interval 'soon')", "write '30s' or '5m'"),
        ("files OPTIONS (path '/tmp/x', interval '5s')", "have no option interval"),
        ("files OPTIONS (path '/tmp/x', delivery 'maybe')", "exactly-once or at-least"),
    ],
)
def test_options_of_every_sink_are_checked(store: Store, option: str, message: str) -> None:
    text = f"CREATE SINK out FROM large USING {option};"
    with shop(store, text) as pipeline, pytest.raises(UsageError, match=message):
        pipeline.run(until_idle=True)
