"""Following a shard, to its end and until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pyarrow as pa
import pytest

from strandline.assembly import open_store
from strandline.cli import tail as tail_module
from strandline.cli.output import Output
from strandline.cli.tail import Following, follow


def events(said):
    assert (said.code, said.err) == (0, "")
    return [json.loads(line) for line in said.out.splitlines()]


def test_a_closed_shard_is_followed_to_its_end(ask, filled):
    found = events(ask("tail", filled, "done", "--json"))
    updates = [each for each in found if each["kind"] == "update"]
    assert [each["row"]["name"] for each in updates] == ["last"]
    assert found[-1] == {"kind": "progress", "frontier": None, "end": True}


def test_until_ends_it(ask, filled):
    found = events(ask("tail", filled, "orders", "--from", "0", "--until", "3", "--json"))
    updates = [each for each in found if each["kind"] == "update"]
    assert len(updates) == 4_903
    assert sum(each["diff"] for each in updates) == 4_903
    times = [each["time"] for each in updates]
    assert set(times) == {0, 1, 2}


def test_without_a_snapshot_only_what_comes_after_is_shown(ask, filled):
    arguments = ["tail", filled, "orders", "--from", "1", "--until", "3", "--no-snapshot"]
    said = ask(*arguments)
    assert said.code == 0
    lines = said.out.splitlines()
    assert [line.split()[:3] for line in lines if "+1" in line] == [["2", "+1", "id=3"]]
    assert lines[-1].split() == ["{}", "the", "end"]


def test_every_frontier_comes_after_all_that_it_settles(ask, filled):
    settled = -1
    for each in events(ask("tail", filled, "orders", "--from", "0", "--until", "3", "--json")):
        if each["kind"] == "progress" and each["frontier"] is not None:
            settled = each["frontier"]
        elif each["kind"] == "update":
            assert each["time"] >= settled


def test_filters_and_columns_apply(ask, filled):
    arguments = ["--from", "0", "--until", "3", "--filter", "id = 2", "--columns", "id", "--json"]
    found = events(ask("tail", filled, "orders", *arguments))
    assert [each["row"] for each in found if each["kind"] == "update"] == [{"id": 2}]


def test_it_starts_at_an_instant(ask, filled):
    with open_store(filled, upkeep=False) as store:
        first = store.shard("orders").state().moments[-1]
    from strandline.cli.facts import instant

    arguments = ["--from", instant(first.instant_ms), "--until", "3", "--no-snapshot", "--json"]
    found = events(ask("tail", filled, "orders", *arguments))
    assert [each for each in found if each["kind"] == "update"] == []


def test_a_merged_time_is_refused_with_the_next_command(ask, lake):
    with open_store(lake, upkeep=False) as store:
        shard = store.shard("orders")
        shard.release_hold("books", epoch=2)
        shard.retain("1 versions")
        shard.compact(full=True)
    said = ask("tail", lake, "orders", "--from", "0", "--until", "3")
    assert said.code == 2
    assert f"next: strandline history {lake} orders" in said.err


def test_x21_updates_are_shown_harmlessly(ask, filled):
    arguments = ["tail", filled, "orders", "--from", "0", "--until", "1"]
    assert "\x1b" not in ask(*arguments).out
    assert "\x1b" in ask(*arguments, "--raw").out


def test_an_interrupt_ends_it_cleanly_and_gives_the_lease_back(lake, monkeypatch):
    def interrupted(events, _):
        next(iter(events))
        signal.raise_signal(signal.SIGINT)
        assert len(list(events)) < 100, "it goes on"

    monkeypatch.setattr(tail_module, "_print", interrupted)
    follow(lake, "orders", Following(), Output(as_json=True))
    with open_store(lake, upkeep=False) as store:
        assert store.shard("orders").state().readers == {}


@pytest.mark.process
def test_ctrl_c_ends_a_process_that_waits_for_more(lake):
    command = [sys.executable, "-m", "strandline.cli.main", "tail", lake, "orders", "--json"]
    with subprocess.Popen(
        [*command, "--from", "1", "--no-snapshot"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as follower:
        first = json.loads(follower.stdout.readline())
        with open_store(lake, upkeep=False) as store, store.shard("orders").writer() as writer:
            row = {"id": [9], "name": ["new"], "amount": [1.0]}
            writer.append(pa.table(row, schema=store.shard("orders").schema))
        seen = [first]
        while not any(each.get("row", {}).get("name") == "new" for each in seen):
            seen.append(json.loads(follower.stdout.readline()))
        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 0
        assert follower.stderr.read() == b""
    with open_store(lake, upkeep=False) as store:
        assert store.shard("orders").state().readers == {}
