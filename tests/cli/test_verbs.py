"""The verbs of pipelines are there, with help and with --json."""

from __future__ import annotations

import pytest

from strandline.cli.verbs import transactions


@pytest.mark.parametrize("verb", ["begin", "insert", "commit", "abort"])
def test_explicit_transactions_have_their_verbs(ask, verb):
    assert verb in [each.callback.__name__ for each in transactions.registered_commands]
    said = ask("transaction", verb, "--help")
    assert said.code == 0
    assert "--json" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "FILE.sql"),
        (["run", "nowhere.sql"], "does not exist"),
        (["run", "{file}", "--transactions", "0"], "--transactions"),
        (["top", "{lake}", "--every", "1"], "--every"),
        (["query", "{lake}"], "SQL"),
        (["transaction", "insert", "{lake}"], "ID"),
    ],
)
def test_a_command_to_rewrite_says_what_is_missing(shop, arguments, words):
    said = shop.ask(*(each.format(file=shop.file, lake=shop.lake) for each in arguments))
    assert said.code == 2
    assert words in said.err
