"""Explicit transactions from a terminal."""

from __future__ import annotations

import json
import re

from strandline.assembly import open_store
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine


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


def test_a_large_file_may_be_sent_again_under_its_number(run_shop, monkeypatch):
    """The first try ends in the middle: what it brought counts once, and the rest follows."""
    monkeypatch.setattr("strandline.cli.inserting._CHUNK_ROWS", 2)
    handle = run_shop.ask("transaction", "begin", run_shop.lake).out.strip()
    rows = run_shop.folder / "rows.json"
    lines = [json.dumps({"id": i, "note": "x"}) for i in range(5)]
    send = ("transaction", "insert", run_shop.lake, handle, "notes", str(rows), "--json")
    rows.write_text("\n".join([*lines[:2], "no row"]))
    assert run_shop.ask(*send, "--chunk", "7").code == 2
    rows.write_text("\n".join(lines))
    for _ in range(2):
        told = run_shop.ask(*send, "--chunk", "7").json()
        assert told == {"transaction": handle, "rows": 5, "chunks": [7, 8, 9]}
    assert run_shop.ask(*send).json()["chunks"] == [10, 11, 12]
    opened = run_shop.ask("status", run_shop.lake, "--json").json()["pipelines"][0]["transactions"]
    assert [(each["chunks"], each["rows"]) for each in opened] == [(6, 10)]
    rows.write_text("\n".join(reversed(lines)))
    other = run_shop.ask(*send, "--chunk", "7")
    assert other.code == 2
    assert "another chunk 7" in other.err


def test_an_aborted_one_leaves_nothing(run_shop):
    handle = run_shop.ask("transaction", "begin", run_shop.lake, "--json").json()["transaction"]
    for _ in range(2):
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


FILES = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING files OPTIONS (path '{path}', format 'json');
"""


def _sealed_and_lost(shop):
    """A transaction is sealed over two files, and one of them is removed."""
    folder = shop.folder / "in"
    folder.mkdir()
    for number, name in enumerate("ab"):
        (folder / f"{name}.json").write_text(json.dumps({"id": number, "amount": 1}) + "\n")
    text = FILES.format(path=folder)
    (shop.folder / "shop.sql").write_text(text)
    with open_store(shop.lake) as store:
        settings = PipelineSettings(delay_ms=0)
        pipeline = store.pipeline("shop", text, engine=arrow_engine, settings=settings)
        pipeline.step()
        while pipeline.status().sealed is None:
            pipeline.step()
    (folder / "a.json").unlink()


def test_a_sealed_file_that_is_gone_is_amended_by_the_command_that_the_error_names(shop):
    _sealed_and_lost(shop)
    failed = shop.run("--until-idle")
    assert failed.code != 0
    said = " ".join(failed.err.split())
    (command,) = re.findall(r"strandline (transaction amend STORE 0 orders --empty)", said)
    words = command.replace("STORE", shop.lake).split()
    missing = shop.ask(*words)
    assert missing.code == 2, "a reason is needed"
    told = shop.ask(*words, "--reason", "somebody tidied up", "--json").json()
    assert told == {
        "pipeline": "shop",
        "time": 0,
        "endpoint": "orders",
        "take": None,
        "rows": None,
    }
    assert shop.run("--until-idle").code == 0
    assert shop.ask("query", shop.lake, "SELECT id FROM orders", "--json").json()["matching"] == 0
    (done,) = shop.ask("history", shop.lake, "shop", "--json").json()["transactions"]
    assert done["amended"] == {"orders": "somebody tidied up"}
    assert "somebody tidied up" in " ".join(shop.ask("history", shop.lake, "shop").out.split())
    late = shop.ask(*words, "--reason", "again")
    assert late.code == 2
    assert "is committed" in late.err


def test_an_amendment_takes_rows_or_ranges_and_says_what_it_did_not_understand(shop):
    _sealed_and_lost(shop)
    verb = ("transaction", "amend", shop.lake, "0", "orders", "--reason", "gone")
    for wrong in ((), ("--empty", "--rows", shop.file), ("--take", "a:1"), ("--take", "a:1:x")):
        refused = shop.ask(*verb, *wrong)
        assert refused.code == 2, wrong
    assert "not within what was sealed" in shop.ask(*verb, "--take", "a.json@0:0:9").err
    rows = shop.folder / "rows.json"
    rows.write_text('{"id": 7, "amount": 3}\n{"id": 8, "amount": 4}\n')
    assert shop.ask(*verb, "--rows", str(rows), "--json").json()["rows"] == 2
    assert shop.run("--until-idle").code == 0
    assert shop.ask("query", shop.lake, "SELECT id FROM orders", "--json").json()["rows"] == [
        [7],
        [8],
    ]
