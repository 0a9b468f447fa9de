"""Each verb's answer for people says what its document says."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, Group

from strandline.cli import tables
from strandline.cli.facts import Sight, history, shard_document, shard_facts
from strandline.cli.holding import holds_document
from strandline.shard import command as c
from strandline.shard.pulse import Pulse, Status
from strandline.shard.txn import Txn
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


def test_shards_have_one_line_each_with_their_timeline_if_they_have_one():
    plain = shard_facts(sight(toy.created()))
    lines = list(tables.shards_table([plain, {**plain, "timeline": "main"}]).lines())
    assert lines[1].split()[:3] == ["toy", "0", "0"]
    assert lines[2].startswith("toy @ main")
    (_, line) = tables.shards_table([{**plain, "closed": True, "upper": None}]).lines()
    assert line.split()[-4:] == ["{}", "closed", "0", "1"]


@pytest.mark.parametrize(
    ("width", "left_out"), [(120, set()), (100, {"updates"}), (80, {"updates", "readers"})]
)
def test_a_narrow_screen_leaves_out_what_can_be_spared_and_cuts_nothing(width, left_out):
    facts = shard_facts(sight(toy.created()))
    wide = {**facts, "name": "a.rather.long-name", "timeline": "main", "rows": 12_345_678}
    wide |= {"updates": 23_456_789, "bytes": 10**9, "lag_seconds": 30.0, "upper": 123_456}
    out = printed(tables.shards_table([wide]), width=width)
    assert "…" not in out
    assert {name for name in ("updates", "readers") if name not in out} == left_out
    for words in ("a.rather.long-name @ main", "12,345,678", "1.0 GB", "{123456}", "30 s"):
        assert words in out


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


def test_a_shard_that_can_not_be_read_says_why_and_what_next():
    assert tables.unreadable_lines([], "./lake") == []
    out = printed(*tables.unreadable_lines([{"name": "a", "reason": EVIL}], "./lake"))
    assert "unreadable  a: \\x1b]0;owned" in out
    assert "next: strandline fsck ./lake" in out


def test_applications_have_a_table_if_there_are_any(state):
    assert "application" not in printed(*tables.shard_tables(shard_document(sight(state))))
    batch = toy.toy_append([(5, 2, 1)], lower=2, upper=3, token="c")
    after = toy.step(state, replace(batch, txn=Txn("query 1", 7)))
    out = printed(*tables.shard_tables(shard_document(sight(after))))
    assert "newest batch" in out
    assert "query 1" in out


def test_a_term_is_shown_with_its_end(state):
    held = toy.step(state, c.RegisterTerm(toy.R1, 1, 4_000, 60_000, "a plan"))
    out = printed(*tables.holds_tables([holds_document(sight(held), {}, 4)], raw=False))
    assert "nobody, until 1970-01-01 00:01:04" in out
    late = Sight(held, held.upper, 64_000, 1_000)
    out = printed(*tables.holds_tables([holds_document(late, {}, 4)], raw=False))
    assert "ended, to be dropped" in out
