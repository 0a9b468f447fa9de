"""A reload: one transaction, only the difference, all or nothing, the same when replayed."""

from __future__ import annotations

import json

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline
from strandline.errors import JournalError, NotFoundError, SchemaError, UsageError
from strandline.journal import record as r
from strandline.journal.standing import advance_all
from strandline.pipeline import reload as module
from strandline.pipeline.planner import Planner
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, seq BIGINT, PRIMARY KEY (id))
  USING http OPTIONS (sequenceBy 'seq');
CREATE TABLE lines (note STRING, amount BIGINT) USING http;
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS SELECT SUM(amount) AS amount FROM lines;
"""
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=1)


@pytest.fixture
def shop():
    with strandline.open("memory://") as store:
        yield store.pipeline("shop", TEXT, settings=SETTINGS, engine=arrow_engine)


def orders(*keys, amount=20, seq=5):
    return [{"id": key, "amount": amount, "seq": seq} for key in keys]


def held(shop, name="orders"):
    table = shop.collection(name).snapshot(as_of=shop.committed.last()).to_arrow()
    return sorted(table.to_pylist(), key=str)


def changes(shop, name, time):
    """What a collection's reader sees at a time."""
    with shop.collection(name).subscribe(time - 1, until=time + 1) as seen:
        tables = [each.rows for each in seen if isinstance(each, strandline.Updates)]
    rows = [row for table in tables for row in table.to_pylist() if row["_time"] == time]
    return sorted((row["id"], row["amount"], row["_diff"]) for row in rows)


def test_readers_and_views_see_only_what_differs(shop):
    shop.reload("orders", orders(1, 2, 3))
    time = shop.reload("orders", [*orders(1, 2), *orders(4, amount=30)])
    assert changes(shop, "orders", time) == [(3, 20, -1), (4, 30, 1)]
    assert changes(shop, "large", time) == [(3, 20, -1), (4, 30, 1)]
    assert held(shop) == [*orders(1, 2), *orders(4, amount=30)]
    (last,) = shop.history(1)
    assert last.changes.get("orders") == 0
    same = shop.reload("orders", [*orders(4, amount=30), *orders(2, 1)])
    assert shop.history(1)[0].changes == {}
    assert [each.t for each in shop.replay(0, same + 1)] == list(range(same + 1))


def test_rows_are_taken_as_they_are_and_older_events_still_lose(shop):
    shop.reload("orders", orders(1, 2, seq=9))
    shop.reload("orders", orders(1, seq=3))
    with shop.transaction() as work:
        # Older than what the reload removed; newer than what it brought.
        work.insert("orders", [*orders(2, seq=8), *orders(1, amount=99, seq=4)])
    assert held(shop) == orders(1, amount=99, seq=4)
    with shop.transaction() as work:
        work.insert("orders", orders(2, seq=9))
    assert len(held(shop)) == 2
    list(shop.replay())


def test_a_table_without_a_key_has_rows_as_often_as_they_come(shop):
    rows = pd.DataFrame({"note": ["a", "a", "b"], "amount": [1, 1, 2]})
    shop.reload("lines", rows)
    shop.reload("lines", pa.table({"note": ["a", "c"], "amount": [1, 5]}))
    assert [row["note"] for row in held(shop, "lines")] == ["a", "c"]
    assert held(shop, "totals") == [{"amount": 6}]
    shop.reload("lines", [])
    assert held(shop, "lines") == []
    list(shop.replay())


def test_errors_of_a_table_go_with_what_it_held(shop):
    shop.start()
    shop.push("orders", [b"no json", b'{"id": 1, "seq": 1}'])
    shop.stop()
    assert len(held(shop, "orders_errors")) == 1
    shop.reload("orders", orders(7))
    assert held(shop, "orders_errors") == []
    list(shop.replay())


def test_files_of_any_format_and_folders_of_them(shop, tmp_path):
    rows = orders(1, 2)
    (tmp_path / "a.csv").write_text("id,amount,seq\n1,20,5\n2,20,5\n")
    (tmp_path / "a.json").write_text("\n".join(json.dumps(row) for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    folder = tmp_path / "folder"
    folder.mkdir()
    for key in (1, 2):
        (folder / f"{key}.txt").write_text(f"{key};20;5\n")
    several = {
        "path": str(folder), "format": "csv", "csv.delimiter": ";", "csv.columns": "id,amount,seq"
    }  # fmt: skip
    told = []
    for source in (tmp_path / "a.csv", tmp_path / "a.json", str(tmp_path / "a.parquet"), several):
        shop.reload("orders", [])
        shop.reload("orders", source, told=lambda *said: told.append(said[0]))
        assert held(shop) == rows
    assert told == [2, 2, 2, 1, 2]


def test_one_bad_row_refuses_the_whole_and_leaves_nothing_behind(shop, tmp_path, monkeypatch):
    monkeypatch.setattr("strandline.pipeline.bringing.CHUNK_BYTES", 1_000)
    shop.reload("orders", orders(1))
    before = {entry.key for entry in shop.store.env.blob.list("journal/")}
    bad = tmp_path / "bad.json"
    rows = [json.dumps(row) for row in orders(*range(20_000))]
    bad.write_text("\n".join([*rows, "no json"]))
    for source, reason in (
        (bad, "is no row"),
        ([{"id": 1, "nothing": 2}], "has no column"),
        ([{"id": 1, "_delete": True}], "deletes"),
        ([{"amount": 1}], "its key"),
    ):
        with pytest.raises(SchemaError, match=reason):
            shop.reload("orders", source)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there are no rows"):
        shop.reload("orders", tmp_path / "empty")
    with pytest.raises(NotFoundError):
        shop.reload("nowhere", [])
    assert held(shop) == orders(1)
    assert {entry.key for entry in shop.store.env.blob.list("journal/")} == before


def test_whoever_dies_a_table_is_as_it_was_or_replaced():
    def opened(store):
        return store.pipeline("shop", TEXT, settings=SETTINGS, engine=arrow_engine)

    with strandline.open("memory://") as store:
        opened(store).reload("orders", orders(1))
        # It dies before its commit is asked for: any other goes on without it.
        dead = opened(store).transaction()
        dead.replace("orders", orders(2))
        other = opened(store)
        with other.transaction() as work:
            work.insert("orders", orders(3))
        assert held(other) == orders(1, 3)
        # It dies once that is asked for: whoever runs next carries it out.
        dead._freeze(commit=True)
        other.run(until_idle=True)
        assert held(other) == orders(2)


def test_one_transaction_replaces_a_table_and_fills_another(shop):
    shop.reload("orders", orders(1, 2))
    with shop.transaction() as work:
        assert work.replace("orders", orders(3)) == 1
        work.insert("lines", [{"note": "a", "amount": 1}])
        with pytest.raises(UsageError, match="use two"):
            work.insert("orders", orders(4))
        assert held(shop) == orders(1, 2)
    assert held(shop) == orders(3)
    aborted = shop.transaction()
    aborted.replace("orders", [])
    aborted.abort()
    shop.run(until_idle=True)
    assert held(shop) == orders(3)


def test_a_frame_of_spark_needs_spark(shop):
    class Frame:
        columns = ("id", "amount")

        def mapInArrow(self): ...  # noqa: N802 - Spark's name

    with pytest.raises(UsageError, match="engine is another one"):
        shop.reload("orders", Frame())
    Frame.columns = ("nothing",)
    with pytest.raises(SchemaError, match="no column"):
        shop.reload("orders", Frame())


def test_large_files_are_for_the_engines_tasks_if_it_has_some(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HERE_MAX", 0)
    (tmp_path / "a.csv").write_text("id,amount,seq\n1,20,5\n")
    shop.reload("orders", tmp_path / "a.csv")
    assert held(shop) == orders(1)


def test_the_journal_refuses_a_replaced_table_with_another_input(shop):
    shop.reload("orders", orders(1))
    standing = shop._journal.refresh()
    t = standing.next_t
    now_ms, versions = standing.instant_ms, standing.versions
    begin = r.Begin(t, standing.epoch, standing.program, now_ms, versions, None)
    ref = r.StagedRef("journal/shop/x", b"x" * 16, 1, 1)
    whole = r.Input(t, "transaction.orders", "orders", None, (ref,), {}, replace=True)
    other = r.Input(t, "orders", "orders", {"staged": (9, 10)}, (), {})
    for inputs, reason in (
        ([whole, other], "has another input"),
        ([other, whole], "has another input"),
        ([r.Input(t, "orders", "orders", {"staged": (9, 10)}, (), {}, replace=True)], "not staged"),
        ([r.Input(t, "transaction.orders", "orders", None, (), {}, replace=True)], "not staged"),
    ):
        with pytest.raises(JournalError, match=reason):
            advance_all(standing, [begin, *inputs])


def test_a_reload_that_is_amended_away_empties_nothing(shop):
    shop.reload("orders", orders(1))
    planner = Planner(shop._ready())
    ref = r.StagedRef("journal/shop/x", b"x" * 16, 1, 1)
    sealed = r.Input(1, "transaction.orders", "orders", None, (ref,), {}, replace=True)
    assert planner.intake(sealed).replace
    assert not planner.intake(msgspec.structs.replace(sealed, staged=())).replace
