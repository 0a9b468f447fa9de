"""A table is replaced from a terminal."""

from __future__ import annotations

import json


def test_a_table_holds_what_a_file_says(run_shop):
    rows = run_shop.folder / "rows.json"
    lines = [json.dumps({"id": key, "amount": 5 * key}) for key in (1, 2, 3, 100)]
    rows.write_text("\n".join(lines))
    reload = ("reload", run_shop.lake, "orders", "FROM", str(rows), "--json")
    told = run_shop.ask(*reload).json()
    assert (told["table"], told["rows"]) == ("orders", 4)
    found = run_shop.ask("query", run_shop.lake, "SELECT id FROM large", "--json").json()
    assert sorted(found["rows"]) == [[3], [100]]
    again = run_shop.ask(*reload).json()
    assert again["time"] == told["time"] + 1
    seen = run_shop.ask("history", run_shop.lake, "shop", "--json").json()["transactions"]
    assert {each["time"]: each["changes"] for each in seen}[again["time"]] == {}
    said = run_shop.ask("reload", run_shop.lake, "orders", "from", str(rows))
    assert "orders holds 4 rows as of" in said.out


def test_a_table_holds_what_a_source_has(run_shop):
    options = ("--option", "rows=30", "--option", "keys=6", "--option", "seed=2", "--json")
    reload = ("reload", run_shop.lake, "orders", "FROM", "generator", *options)
    told = run_shop.ask(*reload).json()
    assert (told["table"], told["rows"]) == ("orders", 30)
    found = run_shop.ask("query", run_shop.lake, "SELECT id FROM orders", "--json").json()
    assert 0 < len(found["rows"]) <= 6
    said = run_shop.ask(*reload[:-1])
    assert "orders is reloaded from 30 rows as of" in said.out


def test_what_can_not_be_meant_is_refused_and_nothing_happens(run_shop):
    rows = run_shop.folder / "rows.csv"
    rows.write_text("id,amount\n1,2\nx,3\n")
    before = run_shop.ask("query", run_shop.lake, "SELECT * FROM orders", "--json").json()
    for arguments, reason in (
        (("orders", "FROM", str(rows)), "is no row"),
        (("orders", "INTO", str(rows)), "FROM PATH"),
        (("orders", "FROM", "nowhere.csv"), "no file or folder"),
        (("orders", "FROM", "http"), "no connector"),
        (("orders", "FROM", "strandline", "--option", "shard"), "NAME=VALUE"),
        (("orders", "FROM", "strandline", "--option", "shard=nowhere"), "nowhere"),
        (("nowhere", "FROM", str(rows)), "no table"),
    ):
        said = run_shop.ask("reload", run_shop.lake, *arguments)
        assert said.code == 2, said
        assert reason in said.err
    after = run_shop.ask("query", run_shop.lake, "SELECT * FROM orders", "--json").json()
    assert after == before
