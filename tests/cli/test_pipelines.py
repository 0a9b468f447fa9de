"""The verbs that look at pipelines: status, top, history, query, subscribe."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.store.writer import somebody_writes, until_stopped

import strandline
from strandline.assembly import open_store
from strandline.pipeline.presence import Presence
from strandline.pipeline.said import SILENT_MS, Said
from strandline.pipeline.states import State
from strandline.store.locate import CONSENSUS_FILE
from strandline.testing.damage import damage_journal
from strandline.testing.engines import arrow_engine


def test_status_tells_everything_about_one_pipeline(run_shop):
    told = run_shop.ask("status", run_shop.lake, "--json").json()["pipelines"][0]
    assert (told["pipeline"], told["state"], told["committed"]) == ("shop", "stopped", 4)
    assert (told["checkpoint"], told["verifiable_from"], told["sealed"]) == (3, 0, None)
    assert {each["source"]: each["behind"] for each in told["sources"]} == {
        "notes": None,
        "orders": 0,
    }
    shown = run_shop.ask("status", run_shop.lake, "shop").out
    for words in ("state", "stopped", "up to 3", "at 3", "from 0", "orders", "r1"):
        assert words in shown


def test_status_and_history_tell_of_sinks(shop):
    shop.publish()
    shop.run("--until-idle")
    told = shop.ask("status", shop.lake, "--json").json()["pipelines"][0]
    (sink,) = told["sinks"]
    assert (sink["sink"], sink["source"], sink["connector"]) == ("out", "large", "files")
    assert (sink["state"], sink["delivered"], sink["reached"]) == ("ended", 3, 3)
    assert (sink["behind"], sink["lag_seconds"], told["cause"]) == (0, 0.0, None)
    assert "out (files, of large)" in shop.ask("status", shop.lake).out
    assert "out ended" in shop.ask("top", shop.lake, "--count", "1").out
    past = shop.ask("history", shop.lake, "shop", "--json").json()
    assert [each["sinks"] for each in past["transactions"]] == [{"out": "delivered"}] * 4
    (sink,) = past["sinks"]
    assert (sink["delivered"], sink["lag_seconds"], sink["retries"]) == (3, 0.0, 0)
    assert sink["cause"] is None
    shown = shop.ask("history", shop.lake, "shop").out
    assert "out delivered" in shown
    assert "out (files, of large)" in shown


def test_a_sink_that_has_stopped_is_trouble(shop):
    shop.publish()
    shop.target.write_text("this is no folder")
    shop.run("--until-idle")
    said = shop.ask("status", shop.lake, "--json")
    told = said.json()["pipelines"][0]
    assert (said.code, told["state"], told["sinks"][0]["state"]) == (1, "stopped", "stopped")
    assert told["cause"].startswith("sink out has stopped: ")
    shown = shop.ask("status", shop.lake)
    assert shown.code == 1
    assert "sink out has stopped: " in shown.out
    past = shop.ask("history", shop.lake, "shop", "--json").json()["transactions"]
    assert [each["sinks"] for each in past] == [{"out": "pending"}] * 4


def test_status_lists_several_pipelines_in_a_line_each(run_shop):
    run_shop.run("--until-idle", "--name", "other")
    shown = run_shop.ask("status", run_shop.lake).out.splitlines()
    assert [line.split()[0] for line in shown] == ["pipeline", "other", "shop"]
    assert run_shop.ask("status", run_shop.lake, "other").code == 0
    missing = run_shop.ask("query", run_shop.lake, "SELECT * FROM orders")
    assert missing.code == 2
    assert "name one of other, shop" in missing.err


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux lists locks")
def test_status_names_a_stopped_process_that_lets_nobody_write(run_shop):
    with open_store(run_shop.lake, upkeep=False) as store:
        at_ms = store.env.consensus.now_ms() - SILENT_MS - 1
        said = Said("token", "host", 7, False, at_ms, at_ms, state=State.RUNNING)
        Presence(store.env, "shop").claim("r1", said)
    path = Path(run_shop.lake, CONSENSUS_FILE)
    with somebody_writes(path) as child:
        os.kill(child.pid, signal.SIGSTOP)
        until_stopped(path)
        told = run_shop.ask("status", run_shop.lake, "--json").json()["pipelines"][0]
    assert told["state"] == "silent"
    assert f"kill -CONT {child.pid}" in told["cause"]
    told = run_shop.ask("status", run_shop.lake, "--json").json()["pipelines"][0]
    assert "kill" not in told["cause"]


def test_what_is_not_there_is_named(shop, lake, ask):
    assert ask("status", lake).code == 0
    said = shop.ask("status", lake, "nope")
    assert said.code == 2
    assert f"there is no pipeline nope in store {lake}" in said.err
    assert f"next: strandline status {lake}" in said.err
    none = shop.ask("query", lake, "SELECT 1")
    assert "has no pipeline: strandline run makes one" in none.err


def test_top_shows_the_same_again_and_again(run_shop):
    said = run_shop.ask("top", run_shop.lake, "--count", "3", "--every", "100", "--json")
    assert said.code == 0
    assert [each["kind"] for each in said.events()] == ["status"] * 3
    assert "stopped" in run_shop.ask("top", run_shop.lake, "--count", "1").out


def test_history_is_told_also_when_a_source_is_gone(shop):
    program = "CREATE TABLE u (id BIGINT) USING strandline OPTIONS (shard 'up')"
    with strandline.open(shop.lake) as store:
        store.shard("up", pa.schema([("id", pa.int64())]))
        with store.pipeline("fed", program, engine=arrow_engine) as fed:
            fed.transaction().commit()
        store.drop("up")
    told = shop.ask("history", shop.lake, "fed", "--json")
    assert (told.code, len(told.json()["transactions"])) == (0, 1)


def test_history_of_a_pipeline_is_its_transactions(run_shop):
    told = run_shop.ask("history", run_shop.lake, "shop", "--limit", "2", "--json").json()
    assert [each["time"] for each in told["transactions"]] == [3, 2]
    assert all(each["rows"] == 10 for each in told["transactions"])
    shown = run_shop.ask("history", run_shop.lake, "shop").out
    assert "rows in" in shown
    assert "orders +" in shown
    assert "4 transactions" in shown
    shard = run_shop.ask("history", run_shop.lake, "shop.orders", "--json").json()
    assert shard["shard"] == "shop.orders"


def test_a_query_is_answered_at_the_last_committed_time_or_an_earlier_one(run_shop):
    now = run_shop.ask("query", run_shop.lake, "SELECT COUNT(*) AS n FROM orders", "--json").json()
    assert now["as_of"] == 3
    assert now["columns"] == ["n"]
    then = run_shop.ask(
        "query", run_shop.lake, "SELECT COUNT(*) AS n FROM orders", "--as-of", "0", "--json"
    ).json()
    assert 0 < then["rows"][0][0] <= now["rows"][0][0]
    assert (
        "1 of 1 row as of 3"
        in run_shop.ask("query", run_shop.lake, "SELECT COUNT(*) AS n FROM orders").out
    )


@pytest.mark.parametrize("sql", ["DROP TABLE orders", "SELECT java_method('a', 'b') FROM orders"])
def test_a_query_that_is_refused_is_a_command_to_rewrite(run_shop, sql):
    said = run_shop.ask("query", run_shop.lake, sql)
    assert said.code == 2
    assert said.err.startswith("error: ")


def test_subscribe_follows_a_view_by_its_name(run_shop):
    said = run_shop.ask(
        "subscribe", run_shop.lake, "large", "--from", "0", "--until", "4", "--json"
    )
    assert said.code == 0, said.err
    kinds = {json.loads(line)["kind"] for line in said.out.splitlines()}
    assert kinds == {"update", "progress"}
    assert run_shop.ask("subscribe", run_shop.lake, "nope", "--until", "4").code == 2


def test_s84_a_damaged_journal_is_one_pipelines_trouble_and_the_others_are_told(run_shop):
    run_shop.run("--until-idle", "--name", "other")
    with open_store(run_shop.lake, upkeep=False) as store:
        damage_journal(store.env, "other")
    said = run_shop.ask("status", run_shop.lake, "--json")
    broken, whole = said.json()["pipelines"]
    assert said.code == 1
    assert (broken["pipeline"], broken["state"], broken["readable"]) == ("other", "failed", False)
    assert "pipeline other" in broken["cause"]
    assert set(broken) == set(whole)
    assert (whole["pipeline"], whole["state"], whole["committed"]) == ("shop", "stopped", 4)
    shown = run_shop.ask("status", run_shop.lake)
    assert [line.split()[:2] for line in shown.out.splitlines()[1:3]] == [
        ["other", "failed"],
        ["shop", "stopped"],
    ]
    assert "shop" in run_shop.ask("top", run_shop.lake, "--count", "1").out
    alone = run_shop.ask("status", run_shop.lake, "other")
    assert (alone.code, "failed: it can't be read" in alone.out) == (1, True)
    assert run_shop.ask("status", run_shop.lake, "shop").code == 0
