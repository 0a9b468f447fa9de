"""`onError 'fail'`: a value that can't be decoded stops the pipeline before it is committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline
from strandline.errors import SchemaError, UndecodableError
from strandline.handles.store import Store
from strandline.pipeline.meaning import Undecoded
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.states import State
from strandline.testing.engines import arrow_engine

SETTINGS = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=5)
GOOD, BAD = '{"id": 1, "amount": 5}', '{"id": 2, "amount": "much"}'


@pytest.fixture
def store() -> Iterator[Store]:
    with strandline.open("memory://", upkeep=False) as opened:
        yield opened


def shop(store: Store, folder: Path, on_error: str) -> Pipeline:
    text = f"""
    CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id))
      USING files OPTIONS (path '{folder}', format 'json', onError '{on_error}');
    CREATE TABLE notes (id BIGINT, PRIMARY KEY (id)) USING http OPTIONS (onError '{on_error}');
    """
    return store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)


def test_it_stops_with_all_of_it_sealed_and_nothing_committed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(GOOD + "\n")
    (tmp_path / "2.json").write_text(f"{GOOD}\n{BAD}\nno json\n")
    with shop(store, tmp_path, "fail") as pipeline:
        with pytest.raises(UndecodableError, match="table orders says onError 'fail' and 2 of its"):
            pipeline.run(until_idle=True)
        status = pipeline.status()
        assert (status.state, status.committed.time, status.sealed) == (State.FAILED, 0, 0)
        assert "2.json" in status.cause
        assert "$.amount" in status.cause
        # Nothing was landed either, and another replica stops at the same place.
        assert pipeline.table("orders").state().batches == ()
    with shop(store, tmp_path, "fail") as again, pytest.raises(UndecodableError):
        again.run(until_idle=True)


def test_the_same_input_goes_on_once_errors_are_collected(store: Store, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(f"{GOOD}\n{BAD}\n")
    with shop(store, tmp_path, "fail") as pipeline, pytest.raises(UndecodableError):
        pipeline.run(until_idle=True)
    with shop(store, tmp_path, "collect") as milder:
        milder.promote()
        milder.run(until_idle=True)
        assert milder.table("orders").snapshot().to_arrow().to_pylist() == [{"id": 1, "amount": 5}]
        (error,) = milder.collection("orders_errors").snapshot().to_arrow().to_pylist()
        assert error["value"] == BAD.encode()
        assert [each.t for each in milder.replay()] == [0]
    # What is committed is committed: a stricter program computes it again like any other.
    with shop(store, tmp_path, "fail") as stricter:
        stricter.promote()
        assert [each.noted for each in stricter.replay()] == [()]
        (tmp_path / "2.json").write_text(GOOD + "\n")
        assert stricter.run(until_idle=True).state is State.STOPPED
        (tmp_path / "3.json").write_text(BAD + "\n")
        with pytest.raises(UndecodableError, match="transaction 2 is not committed"):
            stricter.run(until_idle=True)


def test_the_transaction_can_be_amended_instead(store: Store, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(f"{GOOD}\n{BAD}\n")
    with shop(store, tmp_path, "fail") as pipeline:
        with pytest.raises(UndecodableError):
            pipeline.run(until_idle=True)
        pipeline.amend(0, "orders", reason="row 2 was mended", rows=[{"id": 2, "amount": 7}])
        assert pipeline.run(until_idle=True).state is State.STOPPED
        assert pipeline.table("orders").snapshot().to_arrow().to_pylist() == [
            {"id": 2, "amount": 7}
        ]


def test_what_is_pushed_is_refused_before_it_is_taken(store: Store, tmp_path: Path) -> None:
    with shop(store, tmp_path, "fail") as pipeline:
        pipeline.start()
        try:
            with pytest.raises(SchemaError, match="row 2 for notes"):
                pipeline.push("notes", [b'{"id": 1}', b'{"id": "x"}'])
            assert pipeline.push("notes", [b'{"id": 3}']).rows == 1
        finally:
            pipeline.stop()
        assert pipeline.table("notes").snapshot().to_arrow().to_pylist() == [{"id": 3}]


def test_which_value_is_named_does_not_depend_on_who_found_it() -> None:
    late, early = Undecoded(2, "a", 7, "late"), Undecoded(1, "a", 3, "early")
    whole = Undecoded(3, "a", 3, "early")
    assert late.with_others(early) == early.with_others(late) == whole
    assert whole.with_others(None) == whole


def test_what_does_not_fit_a_column_that_came_by_itself_stops_nothing(
    store: Store, tmp_path: Path
) -> None:
    text = f"""
    CREATE TABLE orders (id BIGINT, PRIMARY KEY (id))
      USING files OPTIONS (path '{tmp_path}', format 'json', onError 'fail', newColumns 'add');
    """
    (tmp_path / "1.json").write_text('{"id": 1, "x": 5}\n{"id": 2, "x": "abc"}\n')
    with store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine) as pipeline:
        assert pipeline.run(until_idle=True).state is State.STOPPED
        assert pipeline.table("orders").snapshot().to_arrow().to_pylist() == [{"id": 1, "x": 5}]
        (error,) = pipeline.collection("orders_errors").snapshot().to_arrow().to_pylist()
        assert "$.x" in error["reason"]
        (tmp_path / "2.json").write_text('{"id": 3, "x": "abc"}\n{"id": "no", "x": 5}\n')
        with pytest.raises(UndecodableError, match=r"1 of its values can't be decoded.*\$\.id"):
            pipeline.run(until_idle=True)


def test_a_push_is_refused_by_the_columns_that_the_table_has_by_now(store: Store) -> None:
    text = """
    CREATE TABLE notes (id BIGINT, PRIMARY KEY (id))
      USING http OPTIONS (onError 'fail', newColumns 'add');
    """
    with store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine) as pipeline:
        pipeline.start()
        try:
            pipeline.push("notes", [b'{"id": 1, "x": 5}'])
            with pipeline.transaction() as work:
                work.insert("notes", [{"id": 9}])
            with pytest.raises(SchemaError, match="row 1 for notes"):
                pipeline.push("notes", [b'{"id": 2, "x": "abc"}'])
        finally:
            pipeline.stop()


def test_values_that_do_not_fit_what_is_declared_are_named_first() -> None:
    mild, strict = Undecoded(2, "a", 3, "x", strict=False), Undecoded(1, "a", 7, "id")
    assert mild.with_others(strict) == strict.with_others(mild) == strict
