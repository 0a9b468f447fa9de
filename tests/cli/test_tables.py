"""Each verb's answer for people says what its document says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, Group

from strandline.cli import tables
from strandline.cli.facts import Sight, history, shard_document, shard_facts
from strandline.cli.holding import holds_document
from strandline.shard import command as c
from strandline.shard.pulse import Pulse, Status
from strandline.testing import toy

EVIL = "\x1b]0;owned\x07[red]"


def printed(*renderables, width=120):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(Group(*renderables))
    return out.getvalue()


@pytest.fixture
def state():
    state = toy.step(toy.created(), toy.toy_append([(1, 0, 1)], lower=0, upper=1, token="a"))
    return toy.step(state, toy.toy_append([(1, 1, -1)], lower=1, upper=2, token="b", key="p"))


def sight(state):
    return Sight(state, state.upper, 4_000, 1_000)


def test_shards_have_one_line_each_and_a_timeline_only_if_one_has():
    plain = shard_facts(sight(toy.created()))
    out = printed(tables.shards_table([plain]))
    assert "timeline" not in out
    assert out.splitlines()[1].split()[:3] == ["toy", "0", "0"]
    out = printed(
        tables.shards_table([{**plain, "timeline": "main", "closed": True, "upper": None}])
    )
    assert "closed" in out
    assert "main" in out


def test_a_table_of_shards_fits_into_eighty_columns():
    facts = shard_facts(sight(toy.created()))
    wide = {**facts, "name": "a.rather.long-name", "rows": 12_345_678, "updates": 23_456_789}
    out = printed(tables.shards_table([{**wide, "bytes": 10**9, "lag_seconds": 3.0}]), width=80)
    assert "…" not in out
    assert "23,456,789" in out


def test_a_shard_shows_columns_and_layout(state):
    out = printed(*tables.shard_tables(shard_document(sight(state))))
    for words in ("0 live, from 2 updates in 2 batches", "int64", "key", "keeps 7d", "1 writer"):
        assert words in out
    assert "level" in out
    assert "in metadata" in out


def test_a_shard_without_anything_is_shown_too():
    out = printed(
        *tables.shard_tables(shard_document(Sight(toy.created(), toy.created().upper, 0, None)))
    )
    assert "nothing settled yet" in out
    assert "level" not in out


def test_history_shortens_digests_unless_asked(state):
    entries = list(history(sight(state)))
    digest = str(toy.digest_of([(1, 1, -1)])).partition(":")[2]
    assert digest in printed(tables.history_table(entries, digests=True))
    short = printed(tables.history_table(entries, digests=False))
    assert digest not in short
    assert digest[:12] in short


@pytest.mark.parametrize(
    ("more", "since", "said"),
    [(0, 0, []), (7, 0, ["7 more"]), (7, 3, ["7 more", "times before 3 have been merged"])],
)
def test_history_says_what_it_does_not_show(more, since, said):
    out = printed(*tables.history_note({"more": more, "since": since}))
    assert all(words in out for words in said)
    assert bool(out.strip()) == bool(said)


def test_rows_are_shown_harmlessly_and_cut_unless_raw():
    rows = {"as_of": 3, "matching": 9, "columns": [EVIL, "n"], "rows": [[EVIL * 9, 1], [None, 22]]}
    out = printed(tables.rows_table(rows, raw=False, cell_limit=20))
    assert "\x1b" not in out
    assert "\\x1b]0;owned\\x07[red]" in out
    assert "…" in out
    assert "2 of 9 rows as of 3" in out
    raw = printed(tables.rows_table(rows, raw=True, cell_limit=20), width=500)
    assert "\x1b]0;owned" in raw


def test_holds_name_the_process_and_what_bounds_since(state):
    held = toy.step(state, c.RegisterReader(toy.R1, "0.0", 0, EVIL))
    held = toy.step(held, c.Hold("books", 1, 4, EVIL))
    pulse = Pulse(0, 0, Status.LIVE, 8, 60_000, "host-a 4711")
    document = holds_document(sight(held), {"0.0": pulse}, 4)
    out = printed(*tables.holds_tables([document], raw=False))
    assert "reader r11111111 holds history from 0 on" in out
    assert "host-a 4711, 2.0 min" in out
    assert "e4" in out
    assert "\x1b" not in out
    gone = holds_document(sight(held), {"0.0": None}, 4)
    assert "gone, to be dropped" in printed(*tables.holds_tables([gone], raw=False))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("reader", "reader r1 holds history from 3 on"),
        ("hold", "hold r1 keeps history from 3 on"),
        ("retention", "retention keeps history from 3 on"),
        ("newest", "nothing holds history back"),
    ],
)
def test_what_bounds_since_is_a_sentence(kind, said):
    bound = {"kind": kind, "name": "r1", "time": 3}
    assert tables.bound_sentence({"bounded_by": bound}) == said


def test_an_empty_store_says_so():
    assert "no shards yet" in printed(*tables.holds_tables([], raw=False))
