"""Verbs, options, exit codes and errors: what every verb has in common."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.cli.main import app

VERBS = [
    *("shards", "show", "tail", "history", "holds"),
    *("retain", "compact", "fsck", "doctor"),
    "pack",
    *("run", "status", "top", "query", "subscribe"),
    *("replay", "verify-sink", "reload", "promote", "checkpoint", "pause", "resume", "stop"),
    "serve",
]


def test_every_verb_is_there_with_help_and_json(ask):
    names = [command.callback.__name__ for command in app.registered_commands]
    assert [name.replace("_", "-") for name in names] == VERBS
    overview = ask("--help")
    assert overview.code == 0
    for verb in VERBS:
        assert verb in overview.out
        said = ask(verb, "--help")
        assert said.code == 0
        assert "--json" in said.out


def test_the_version_is_that_of_the_package(ask):
    said = ask("--version")
    assert said.code == 0
    assert said.out.startswith("strandline ")
    assert said.out.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["shw"], ["'shw'", "next: strandline --help"]),
        (["show"], ["STORE", "next: strandline show --help"]),
        (["show", "{lake}"], ["SHARD", "next: strandline show --help"]),
        (["shards", "{lake}", "--jsn"], ["--jsn", "next: strandline shards --help"]),
        (["show", "{lake}", "orders", "--rows", "x"], ["--rows", "valid integer"]),
        (["history", "{lake}", "orders", "--limit", "0"], ["--limit"]),
        (["compact", "{lake}"], ["name one shard, or give --all"]),
        (["compact", "{lake}", "orders", "--all"], ["name one shard, or give --all"]),
        (
            ["show", "{lake}", "nope"],
            ["shard nope does not exist", "next: strandline shards {lake}"],
        ),
        (
            ["tail", "{lake}", "nope"],
            ["shard nope does not exist", "next: strandline shards {lake}"],
        ),
        (["retain", "{lake}", "orders", "soon"], ["retention 'soon' is not understood"]),
        (["show", "{lake}", "../../etc/passwd"], ["'../../etc/passwd' is refused"]),
        (["show", "{lake}", "x'; drop table versions--"], ["is refused"]),
        (["show", "{lake}", "\x1b[31m"], [r"\x1b[31m", "is refused"]),
        (["show", "{lake}", "orders", "--as-of", "soon"], ["--as-of 'soon'"]),
        (
            ["show", "{lake}", "orders", "--as-of", "99"],
            ["is not settled past 99", "newest time is 2"],
        ),
        (["show", "{lake}", "empty", "--rows", "1"], ["nothing to show yet"]),
        (["show", "{lake}", "orders", "--columns", "zz"], ["'zz'"]),
        (["show", "{lake}", "orders", "--filter", "zz = 1"], ["unknown column 'zz'"]),
        (["shards", "memory://"], ["give the folder of a store"]),
        (["shards", "s3://bucket:secret@x/y"], ["'s3' is not supported"]),
    ],
)
def test_a_command_that_has_to_be_rewritten_ends_with_code_two_and_one_line(
    ask, filled, arguments, words
):
    said = ask(*(each.replace("{lake}", filled) for each in arguments))
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert said.err.strip().isprintable()
    for each in words:
        assert each.replace("{lake}", filled) in said.err


def test_a_password_in_a_url_is_not_repeated(ask):
    assert "secret" not in ask("shards", "s3://bucket:secret@x/y").err


@pytest.mark.parametrize("verb", ["shards", "holds", "fsck"])
def test_no_verb_creates_a_store(ask, tmp_path, verb):
    said = ask(verb, str(tmp_path / "lake"))
    assert said.code == 2
    assert "there is no Strandline store" in said.err
    assert "strandline.open()" in said.err
    assert list(tmp_path.iterdir()) == []


def test_damage_ends_with_code_one_and_the_next_command(ask, lake):
    connection = sqlite3.connect(Path(lake) / "consensus.db")
    connection.execute("update versions set data = x'00' where key = 'shard/orders'")
    connection.commit()
    connection.close()
    said = ask("history", lake, "orders")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: ")
    assert "orders" in said.err
    assert said.err.endswith(f"; next: strandline fsck {lake}\n")
    assert said.err.count("\n") == 1


def test_a_bug_is_one_line_too_and_debug_shows_where(ask, filled, monkeypatch):
    from strandline.cli import looking

    def broken(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(looking, "sight_of", broken)
    said = ask("shards", filled)
    assert said.code == 1
    assert said.err.count("\n") == 1
    assert "ZeroDivisionError" in said.err
    assert "Traceback" in ask("--debug", "shards", filled).err


def test_an_interrupted_verb_ends_with_code_130(ask, filled, monkeypatch):
    from strandline.cli import looking

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(looking, "sight_of", interrupted)
    said = ask("shards", filled)
    assert (said.code, said.out) == (130, "")


@pytest.mark.process
def test_help_loads_nothing_heavy():
    heavy = "{'pyarrow', 'polars', 'numpy', 'pandas', 'sqlite3', 'strandline.assembly'}"
    program = (
        "import sys; from strandline.cli.main import main; "
        f"code = main(['--help']); sys.exit(code or bool({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_a_reader_that_has_seen_enough_is_no_error(filled):
    command = f"{sys.executable} -m strandline.cli.main show {filled} orders --rows 4000"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | head -1"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["id", "name", "amount"]


def test_the_answer_in_json_is_one_document(ask, filled):
    said = ask("shards", filled, "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["store"] == filled
