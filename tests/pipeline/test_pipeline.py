"""A pipeline as its users hold it: run, fed, asked and looked at, by one process or several."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import strandline
from strandline.errors import (
    BoundsError,
    ConflictError,
    HandleClosedError,
    NotFoundError,
    ProgramError,
    SchemaError,
    StalledError,
    UsageError,
    ViewFailedError,
)
from strandline.handles.store import Store
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.states import State
from strandline.testing.engines import arrow_engine
from strandline.views.parse import parse

SETTINGS = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=5)
TEXT = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '20', deletes '0.1', rows '40', rowsPerSecond '0');
CREATE TABLE notes (id BIGINT, note STRING, PRIMARY KEY (id)) USING http;
CREATE MATERIALIZED VIEW large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders;
CREATE MATERIALIZED VIEW shares AS SELECT id, 100 / amount AS share FROM orders;
CREATE MATERIALIZED VIEW halves AS SELECT id, share AS half FROM shares;
"""


@pytest.fixture
def store() -> Iterator[Store]:
    with strandline.open("memory://") as opened:
        yield opened


def shop(store: Store, text: str | None = TEXT, **options: object) -> Pipeline:
    return store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine, **options)


def rows(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=str)


def test_it_runs_until_idle_and_answers_at_one_time(store: Store) -> None:
    with shop(store) as pipeline:
        status = pipeline.run(until_idle=True)
        assert (status.state, status.transactions) == (State.STOPPED, 4)
        now = pipeline.query("SELECT COUNT(*) AS n, SUM(amount) AS amount FROM orders").to_pylist()
        then = pipeline.query("SELECT orders AS n, amount FROM totals").to_pylist()
        assert now == then
        early = pipeline.query("SELECT COUNT(*) AS n FROM orders", as_of=0).to_pylist()
        assert 0 < early[0]["n"] <= 10
        assert rows(pipeline.table("ORDERS").snapshot().to_arrow())
        assert rows(pipeline.view("large").snapshot(as_of=2).to_arrow())


def test_the_program_on_record_is_used_where_none_is_given(store: Store) -> None:
    with shop(store) as first:
        first.run(until_idle=True)
    with store.pipeline("shop", engine=arrow_engine) as again:
        assert again.program.hash == parse(TEXT).hash
        assert again.query("SELECT COUNT(*) AS n FROM orders").num_rows == 1


def test_a_forked_child_is_refused_by_name_and_ends_nothing_of_its_parent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop(store) as pipeline:
        pipeline.run(until_idle=True)
        pipeline.start()
        work = pipeline.transaction()
        work.insert("notes", [{"id": 1, "note": "a"}])
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: 0)
            for call in (
                pipeline.run,
                pipeline.step,
                pipeline.stop,
                pipeline.pause,
                pipeline.wait,
                pipeline.checkpoint,
                pipeline.status,
                pipeline.history,
                pipeline.transaction,
                work.commit,
                lambda: pipeline.query("SELECT COUNT(*) AS n FROM orders"),
                lambda: pipeline.table("orders"),
            ):
                with pytest.raises(HandleClosedError, match="open the store again"):
                    call()
            with pytest.raises(KeyError), work:
                raise KeyError
            pipeline.close()
        pipeline.stop()
        assert work.commit() == 4


def test_the_same_program_as_objects_is_the_same_pipeline(store: Store) -> None:
    with shop(store) as first:
        first.run(transactions=1)
    with shop(store, None, program=parse(TEXT)) as second:
        second.run(until_idle=True)
        assert len(second.history()) == 4
    with pytest.raises(UsageError, match="give sql or program"):
        store.pipeline("shop", TEXT, program=parse(TEXT))


def test_a_program_is_built_of_objects_and_means_what_its_text_means(store: Store) -> None:
    orders = strandline.Table(
        "orders",
        pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.int64())]),
        "generator",
        key=("id",),
        options={"seed": "7", "keys": "20", "rows": "40", "rowsPerSecond": "0"},
    )
    large = strandline.ViewQuery("large", "SELECT id, amount FROM orders WHERE amount > 10")
    total = strandline.ViewQuery("n", "SELECT COUNT(*) AS n FROM orders", refresh_full=True)
    program = strandline.Program.of([orders], [large, total])
    with store.pipeline("built", program=program, settings=SETTINGS, engine=arrow_engine) as built:
        built.run(until_idle=True)
        held = built.query("SELECT COUNT(*) AS n FROM orders").to_pylist()
        assert built.query("SELECT n FROM n").to_pylist() == held != [{"n": 0}]
        assert built.view("large").snapshot().to_arrow().num_rows > 0
    with store.pipeline("built", engine=arrow_engine) as again:
        assert again.program.hash == program.hash, "its text is on record, and means the same"
        assert "CREATE MATERIALIZED VIEW n REFRESH FULL" in again.text
    with pytest.raises(strandline.ProgramError, match="nowhere"):
        strandline.Program.of(
            [orders], [], [strandline.Sink("out", "nowhere", "files", {"path": "/out"})]
        )


def test_another_program_is_refused_until_it_is_promoted(store: Store) -> None:
    other = TEXT.replace("amount * 2", "amount * 3")
    with shop(store) as first:
        first.run(until_idle=True)
        with shop(store, other) as second:
            with pytest.raises(UsageError, match="promote this one"):
                second.run(until_idle=True)
            assert second.promote() == 2
            second.run(until_idle=True)
        with pytest.raises(strandline.FencedError):
            first.run(until_idle=True)


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("SELECT * FROM nope", ProgramError, "no table or view"),
        ("DROP TABLE orders", ProgramError, "DROP|SELECT"),
        ("SELECT reflect('java.lang.System', 'exit') FROM orders", ProgramError, "reflect"),
        ("SELECT * FROM orders_tombs", ProgramError, "no table or view"),
    ],
)
def test_queries_pass_the_allow_list_first(
    store: Store, sql: str, error: type[Exception], words: str
) -> None:
    with shop(store) as pipeline:
        pipeline.run(transactions=1)
        with pytest.raises(error, match=words):
            pipeline.query(sql)


def test_a_query_is_of_a_committed_time(store: Store) -> None:
    with shop(store) as pipeline:
        with pytest.raises(NotFoundError, match="not run yet"):
            pipeline.query("SELECT * FROM orders")
        pipeline.run(transactions=2)
        last = pipeline.history()[0]
        with pytest.raises(BoundsError, match="as of 99"):
            pipeline.query("SELECT * FROM orders", as_of=99)
        with pytest.raises(BoundsError, match="nothing by then"):
            pipeline.query("SELECT * FROM orders", as_of=datetime(1999, 1, 1, tzinfo=UTC))
        instant = datetime.fromtimestamp(last.instant_ms / 1000 + 1, UTC)
        by_instant = pipeline.query("SELECT * FROM orders", as_of=instant)
        assert rows(by_instant) == rows(pipeline.query("SELECT * FROM orders", as_of=last.t))


def test_a_view_that_raised_fails_with_the_reason_and_heals(store: Store) -> None:
    with shop(store) as pipeline:
        pipeline.run(until_idle=True)
        pipeline.query("SELECT * FROM shares")
        with pipeline.transaction() as bad:
            bad.insert("orders", [{"id": 900, "customer": 1, "amount": 0}])
        for view in ("shares", "halves"):
            with pytest.raises(ViewFailedError, match=r"shares has no answer .* id = 900"):
                pipeline.query(f"SELECT * FROM {view}")
        assert pipeline.query("SELECT * FROM shares", as_of=bad.time - 1).num_rows
        assert pipeline.query("SELECT * FROM shares_errors").num_rows == 1
        assert pipeline.query("SELECT * FROM totals").num_rows == 1
        with pipeline.transaction() as good:
            good.insert("orders", [{"id": 900, "_delete": True}])
        pipeline.query("SELECT * FROM shares")


def test_a_transaction_counts_in_all_tables_at_one_time(store: Store) -> None:
    with shop(store) as pipeline:
        pipeline.run(until_idle=True)
        with pipeline.transaction() as transaction:
            transaction.insert("orders", pa.table({"id": [901, 902], "amount": [1, 2]}))
            transaction.insert("notes", [{"id": 1, "note": "first"}])
            transaction.insert("orders", [{"id": 902, "amount": 3}])
            assert transaction.time is None
        t = transaction.time
        assert t == 4
        mine = "SELECT id, amount FROM orders WHERE id > 900"
        assert rows(pipeline.query(mine)) == [{"id": 901, "amount": 1}, {"id": 902, "amount": 3}]
        assert rows(pipeline.query("SELECT note FROM notes")) == [{"note": "first"}]
        assert pipeline.query("SELECT * FROM notes", as_of=t - 1).num_rows == 0
        assert pipeline.history()[0].handle == transaction.id


def test_pandas_is_taken_too(store: Store) -> None:
    pandas = pytest.importorskip("pandas")
    with shop(store) as pipeline:
        with pipeline.transaction() as transaction:
            transaction.insert("notes", pandas.DataFrame({"id": [1, 2], "note": ["a", None]}))
        assert rows(pipeline.query("SELECT note FROM notes")) == [{"note": "a"}, {"note": None}]


def test_an_error_aborts_and_costs_no_time(store: Store) -> None:
    with shop(store) as pipeline:
        pipeline.run(until_idle=True)
        transaction = pipeline.transaction()
        transaction.insert("notes", [{"id": 1, "note": "never"}])
        with pytest.raises(UsageError, match="no table"), transaction:
            transaction.insert("nope", [{"id": 1}])
        pipeline.run(until_idle=True)
        assert len(pipeline.history()) == 4
        assert pipeline.status().transactions == ()
        with pytest.raises(ConflictError, match="aborted"):
            pipeline.transaction(transaction.id).insert("notes", [{"id": 1}])


def test_a_chunk_that_is_sent_again_counts_once(store: Store) -> None:
    with shop(store) as pipeline:
        transaction = pipeline.transaction()
        for _ in range(2):
            transaction.insert("notes", [{"id": 1, "note": "once"}], chunk=7)
        again = pipeline.transaction(transaction.id)
        assert again.insert("notes", [{"id": 2, "note": "after"}]) == 8
        with pytest.raises(UsageError, match="another chunk 7"):
            again.insert("notes", [{"id": 1, "note": "other"}], chunk=7)
        assert transaction.commit() == again.commit() == transaction.time
        assert pipeline.query("SELECT * FROM notes").num_rows == 2


@pytest.mark.parametrize(
    ("table", "given", "error", "words"),
    [
        ("nope", [{"id": 1}], UsageError, "there are orders, notes"),
        ("notes", [{"id": 1, "colour": "red"}], SchemaError, "no column 'colour'"),
        ("notes", [{"note": "no key"}], SchemaError, "its key"),
        ("notes", [{"id": None, "note": "no key"}], SchemaError, "its key"),
        ("notes", [{"id": "x"}], SchemaError, "notes"),
        ("notes", "text", UsageError, "give an Arrow table"),
        ("notes", 7, UsageError, "give an Arrow table"),
    ],
)
def test_rows_that_do_not_fit_are_refused_at_once(
    store: Store, table: str, given: object, error: type[Exception], words: str
) -> None:
    with shop(store) as pipeline, pipeline.transaction() as transaction:
        with pytest.raises(error, match=words):
            transaction.insert(table, given)
        transaction.abort()


def test_a_commit_that_nobody_carries_out_says_so_and_stays_asked_for(store: Store) -> None:
    with shop(store) as runs:
        runs.start()
        runs.pause()
        looks = store.pipeline("shop")
        _until(lambda: store.pipelines() == ["shop"])
        transaction = looks.transaction()
        transaction.insert("notes", [{"id": 1, "note": "later"}])
        _until(lambda: _state(looks) == "paused")
        with pytest.raises(StalledError, match="asked for"):
            transaction.commit(timeout_ms=50)
        runs.resume()
        assert transaction.commit() == transaction.time
        runs.stop()


def test_status_says_who_runs_and_how_far_everything_is(store: Store) -> None:
    with shop(store, replica="a") as pipeline:
        with pytest.raises(NotFoundError, match="no pipeline shop"):
            pipeline.status()
        pipeline.run(transactions=2)
        open_one = pipeline.transaction()
        status = pipeline.status()
        assert (status.state, status.epoch, status.committed.time) == ("stopped", 1, 2)
        assert (status.checkpoint, status.verifiable_from, status.sealed) == (1, 0, None)
        assert [(r.name, r.state) for r in status.replicas] == [("a", "stopped")]
        sources = {each.name: each for each in status.endpoints}
        assert sources["orders"].behind == 20
        assert sources["notes"].behind is None
        assert [each.id for each in status.transactions] == [open_one.id]
        assert status.lag_seconds is not None


def test_it_runs_beside_its_caller_and_is_paused_resumed_and_stopped(store: Store) -> None:
    with shop(store) as pipeline:
        pipeline.start()
        with pytest.raises(UsageError, match="runs in this process"):
            pipeline.start()
        with pytest.raises(UsageError, match="steps by itself"):
            pipeline.step()
        _until(lambda: _committed(pipeline) == 4)
        pipeline.pause()
        _until(lambda: _state(pipeline) == "paused")
        pipeline.resume()
        _until(lambda: _state(pipeline) == "running")
        assert pipeline.checkpoint() == 3
        assert pipeline.checkpoint(timeout_ms=10_000) == 3, "where nothing happened, that is it"
        pipeline.stop()
        assert _state(pipeline) == "stopped"


def test_replicas_elsewhere_are_asked_through_the_store(store: Store) -> None:
    with shop(store, replica="a") as one, shop(store, replica="b") as two:
        one.start()
        two.start()
        asks = store.pipeline("shop", engine=arrow_engine)
        _until(lambda: _committed(one) == 4)
        asks.pause()
        _until(lambda: _states(asks) == ["paused", "paused"])
        asks.resume()
        _until(lambda: _states(asks) == ["running", "running"])
        assert asks.checkpoint() == 3
        assert asks.checkpoint(timeout_ms=10_000) == 3
        asks.stop("b")
        _until(lambda: _states(asks) == ["running", "stopped"])
        asks.stop()
        _until(lambda: _states(asks) == ["stopped", "stopped"])


def test_a_name_is_given_to_one_replica_at_a_time(store: Store) -> None:
    with shop(store, replica="a") as one, shop(store, replica="a") as two:
        one.start()
        with pytest.raises(ConflictError, match="another name"):
            two.start()
        one.stop()
        two.start()
        two.stop()


def test_a_read_only_replica_verifies_and_writes_nothing(store: Store) -> None:
    with shop(store) as writes, shop(store, read_only=True) as reads:
        writes.step()
        reads.start()
        _until(lambda: [r.state for r in writes.status().replicas] == ["running"])
        writes.run(until_idle=True)
        auditor = reads._life._replicas[-1]
        _until(lambda: auditor.audit.verified == 4)
        entry = writes._journal.refresh().entry
        reads.stop()
        assert writes._journal.refresh().entry == entry
        with pytest.raises(UsageError, match="read-only"):
            reads.promote()


def test_replay_computes_everything_again(store: Store) -> None:
    with shop(store) as pipeline:
        pipeline.run(until_idle=True)
        assert [each.t for each in pipeline.replay()] == [0, 1, 2, 3]
        assert [(each.t, each.rows) for each in pipeline.replay(1, 3)] == [(1, 10), (2, 10)]
        with pytest.raises(BoundsError):
            list(pipeline.replay(0, 99))


def test_history_tells_what_came_in_and_what_changed(store: Store) -> None:
    with shop(store) as pipeline:
        pipeline.run(until_idle=True)
        told = pipeline.history(3)
        assert [each.t for each in told] == [3, 2, 1]
        assert all(each.rows == 10 and each.inputs == {"orders": 10} for each in told)
        net = sum(each.changes.get("orders", 0) for each in pipeline.history())
        assert net == pipeline.query("SELECT id FROM orders").num_rows


def test_subscriptions_follow_a_collection_by_its_name(store: Store) -> None:
    with shop(store) as pipeline:
        pipeline.run(until_idle=True)
        with pipeline.subscribe("large", as_of=0, until=3) as following:
            times = {
                time
                for event in following
                if isinstance(event, strandline.Updates)
                for time in event.rows["_time"].to_pylist()
            }
        assert times <= {0, 1, 2}
        with pytest.raises(NotFoundError, match="has no collection 'nope'"):
            pipeline.subscribe("nope")
        with pytest.raises(NotFoundError, match="has no view 'orders'"):
            pipeline.view("orders")


def test_a_pipeline_that_is_not_there_and_one_that_was_closed_are_named(store: Store) -> None:
    nowhere = store.pipeline("nowhere")
    for call in (nowhere.status, nowhere.history, nowhere.pause, nowhere.transaction):
        with pytest.raises(NotFoundError, match="no pipeline nowhere"):
            call()
    nowhere.close()
    with pytest.raises(HandleClosedError, match="nowhere was closed"):
        nowhere.status()


def _state(pipeline: Pipeline) -> str:
    return pipeline.status().state


def _states(pipeline: Pipeline) -> list[str]:
    return [each.state for each in pipeline.status().replicas]


def _committed(pipeline: Pipeline) -> int:
    return pipeline._journal.refresh().next_t


def _until(holds) -> None:
    """Wait as long as the test's own timeout allows."""
    from strandline.system import SystemTasks

    while not holds():
        SystemTasks().sleep(10)
