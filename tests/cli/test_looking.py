"""The verbs that only look, on a real store."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from strandline.assembly import open_store
from strandline.shard import command as c

EVIL = "\x1b]0;owned"


def document(ask, *arguments):
    said = ask(*arguments, "--json")
    assert (said.code, said.err) == (0, "")
    return json.loads(said.out)


def test_shards_lists_them_all(ask, filled):
    found = {each["name"]: each for each in document(ask, "shards", filled)["shards"]}
    assert sorted(found) == ["done", "empty", "orders"]
    assert (found["orders"]["rows"], found["orders"]["upper"]) == (4_903, 3)
    assert found["orders"]["parts"] == 1
    assert found["orders"]["lag_seconds"] >= 0
    assert (found["done"]["closed"], found["done"]["upper"]) == (True, None)
    assert (found["empty"]["rows"], found["empty"]["lag_seconds"]) == (0, None)
    table = ask("shards", filled).out.splitlines()
    assert table[0].split()[0] == "shard"
    assert [line.split()[0] for line in table[1:]] == ["done", "empty", "orders"]


@pytest.mark.parametrize("verb", ["shards", "holds"])
def test_a_damaged_shard_keeps_no_other_from_being_listed(ask, lake, verb):
    connection = sqlite3.connect(Path(lake) / "consensus.db")
    connection.execute("update versions set data = x'00' where key = 'shard/orders'")
    connection.commit()
    connection.close()
    said = ask(verb, lake, "--json")
    assert said.code == 1
    found = json.loads(said.out)
    assert [each.get("name", each.get("shard")) for each in found["shards"]] == ["done", "empty"]
    assert [each["name"] for each in found["unreadable"]] == ["orders"]
    out = ask(verb, lake).out
    assert "unreadable  orders: " in out
    assert f"next: strandline fsck {lake}" in out


def test_an_empty_store_has_no_shards(ask, tmp_path):
    open_store(str(tmp_path / "lake"), upkeep=False).close()
    assert document(ask, "shards", str(tmp_path / "lake"))["shards"] == []
    assert "no shards yet" in ask("shards", str(tmp_path / "lake")).out


def test_show_has_schema_layout_and_retention(ask, filled):
    shard = document(ask, "show", filled, "orders")
    assert [(each["id"], each["name"]) for each in shard["columns"]] == [
        (1, "id"),
        (2, "name"),
        (3, "amount"),
    ]
    assert shard["key"] == ["id"]
    assert shard["layout"][0]["parts"] == 1
    assert shard["inline"]["batches"] == 2
    assert "snapshot" not in shard
    out = ask("show", filled, "orders").out
    assert "4,903 live, from 4,903 updates in 3 batches" in out
    assert "keeps 7d" in out


def test_show_prints_rows_in_the_order_of_the_key(ask, filled):
    shown = document(ask, "show", filled, "orders", "--rows", "3")["snapshot"]
    assert (shown["as_of"], shown["matching"]) == (2, 4_903)
    assert [row[0] for row in shown["rows"]] == [1, 2, 3]
    assert shown["rows"][2] == [3, None, "nan"]


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (["--as-of", "0"], [1, 2]),
        (["--as-of", "0", "--filter", "name is not null", "--filter", "amount > 1"], [1]),
        (["--filter", "id in 1, 3"], [1, 3]),
        (["--filter", "id >= 4999"], [4999]),
        (["--filter", "id > 5000"], []),
    ],
)
def test_show_reads_as_of_a_time_what_a_filter_lets_through(ask, filled, arguments, ids):
    shown = document(ask, "show", filled, "orders", *arguments)["snapshot"]
    assert [row[0] for row in shown["rows"]] == ids


def test_show_reads_as_of_an_instant(ask, filled):
    first = document(ask, "history", filled, "orders")["times"][-1]
    shown = document(ask, "show", filled, "orders", "--as-of", first["instant"])["snapshot"]
    assert shown["as_of"] >= first["time"]
    said = ask("show", filled, "orders", "--as-of", "1999-01-01")
    assert said.code == 2
    assert f"next: strandline history {filled} orders" in said.err


def test_show_takes_columns(ask, filled):
    shown = document(ask, "show", filled, "orders", "--columns", "name,id", "--rows", "1")
    assert shown["snapshot"]["columns"] == ["name", "id"]


def test_x21_a_row_never_reaches_the_terminal_as_a_command(ask, filled):
    for arguments in (
        ["show", filled, "orders", "--rows", "5"],
        ["show", filled, "orders", "--rows", "5", "--json"],
        ["holds", filled],
        ["holds", filled, "--json"],
    ):
        said = ask(*arguments)
        assert "\x1b" not in said.out
        assert "x1b" in said.out or "u001b" in said.out
    assert EVIL in ask("show", filled, "orders", "--rows", "5", "--raw").out


def test_history_is_newest_first_and_says_what_is_left(ask, filled):
    found = document(ask, "history", filled, "orders", "--limit", "2")
    assert [(each["time"], each["net"], each["rows"]) for each in found["times"]] == [
        (2, 1, 4_903),
        (1, 4_900, 4_902),
    ]
    assert found["more"] == 1
    assert "1 more: --limit" in ask("history", filled, "orders", "--limit", "2").out


def test_history_reaches_into_lists_of_times(ask, lake):
    from strandline.shard.moments import encode_moments, moments_key

    with open_store(lake, upkeep=False) as store:
        shard = store.shard("orders")
        with shard.writer() as writer:
            state = shard.state()
            key = moments_key(state.id, writer.id, "0" * 32)
            chunk, encoded = encode_moments(state.moments[:2], shard=state.id, key=key)
            store.env.blob.put(key, encoded)
            shard.machine.demand(c.IndexMoments(writer.id, chunk))
        assert [moment.time for moment in shard.state().moments] == [2]
    times = document(ask, "history", lake, "orders")["times"]
    assert [(each["time"], each["rows"]) for each in times] == [(2, 4_903), (1, 4_902), (0, 2)]


def test_holds_shows_readers_of_other_processes(ask, lake):
    with open_store(lake, upkeep=False) as store:
        shard = store.shard("orders")
        with shard.reader(since=0, purpose="a long report") as reader, shard.writer("loader"):
            found = document(ask, "holds", lake, "orders")["shards"][0]
            assert [(each["id"], each["since"]) for each in found["readers"]] == [(reader.id, 0)]
            assert found["readers"][0]["status"] == "alive"
            assert found["readers"][0]["purpose"] == "a long report"
            assert [each["purpose"] for each in found["writers"]] == ["loader"]
            assert found["critical"][0]["name"] == "books"
            assert found["bounded_by"]["kind"] == "reader"
            assert f"reader {reader.id[:9]} holds history from 0 on" in ask("holds", lake).out
    found = document(ask, "holds", lake, "orders")["shards"][0]
    assert (found["readers"], found["writers"]) == ([], [])


def test_expire_dead_drops_whose_process_is_gone_and_nobody_else(ask, lake):
    store = open_store(lake, upkeep=False)
    shard = store.shard("orders")
    with shard.reader(since=0, purpose="alive"):
        dead = c.RegisterReader("r" + "d" * 32, "999.0", 0, "dead")
        shard.machine.demand(dead)
        readers = document(ask, "holds", lake, "orders")["shards"][0]["readers"]
        assert sorted((each["purpose"], each["status"]) for each in readers) == [
            ("alive", "alive"),
            ("dead", "gone"),
        ]
        readers = document(ask, "holds", lake, "orders", "--expire-dead")["shards"][0]["readers"]
        assert [each["purpose"] for each in readers] == ["alive"]
    store.close()


def test_looking_leaves_the_store_as_it_was(ask, lake):
    def versions():
        with open_store(lake, upkeep=False) as store:
            return [store.machine(name).refresh().seqno for name in store.shards()]

    before = versions()
    for arguments in (["shards"], ["show", "orders"], ["history", "orders"], ["holds"]):
        assert ask(arguments[0], lake, *arguments[1:]).code == 0
    assert versions() == before
