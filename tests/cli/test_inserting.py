"""Explicit transactions from a terminal."""

from __future__ import annotations

import json


def test_rows_of_a_transaction_count_when_it_is_committed(run_shop):
    lake = run_shop.lake
    handle = run_shop.ask("transaction", "begin", lake).out.strip()
    rows = run_shop.folder / "rows.json"
    rows.write_text("\n".join(json.dumps({"id": i, "note": "x"}) for i in range(3)))
    for _ in range(2):
        told = run_shop.ask(
            *("transaction", "insert", lake, handle, "notes", str(rows), "--chunk", "0", "--json")
        ).json()
        assert told == {"transaction": handle, "rows": 3, "chunks": [0]}
    notes = ("query", lake, "SELECT id FROM notes", "--json")
    assert run_shop.ask(*notes).json()["matching"] == 0
    opened = run_shop.ask("status", lake, "--json").json()["pipelines"][0]["transactions"]
    assert [(each["transaction"], each["rows"]) for each in opened] == [(handle, 3)]
    told = run_shop.ask("transaction", "commit", lake, handle, "--json").json()
    assert told == {"transaction": handle, "time": 4}
    assert run_shop.ask(*notes).json()["matching"] == 3


def test_an_aborted_one_leaves_nothing(run_shop):
    handle = run_shop.ask("transaction", "begin", run_shop.lake, "--json").json()["transaction"]
    assert run_shop.ask("transaction", "abort", run_shop.lake, handle).code == 0
    late = run_shop.ask("transaction", "commit", run_shop.lake, handle)
    assert late.code == 1
    assert "abort" in late.err


def test_rows_that_do_not_fit_are_refused_by_their_line(run_shop):
    handle = run_shop.ask("transaction", "begin", run_shop.lake).out.strip()
    rows = run_shop.folder / "rows.json"
    rows.write_text('{"id": 1}\n{"id": "x"}\n')
    said = run_shop.ask("transaction", "insert", run_shop.lake, handle, "notes", str(rows))
    assert said.code == 2
    assert "row 2 for notes" in said.err
    assert run_shop.ask("transaction", "insert", run_shop.lake, handle, "nope", str(rows)).code == 2
    gone = run_shop.ask("transaction", "insert", run_shop.lake, handle, "notes", "nowhere.json")
    assert "there is no file nowhere.json" in gone.err
