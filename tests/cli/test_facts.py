"""What `--json` says is what the state says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from strandline.cli.escape import plain
from strandline.cli.facts import (
    Sight,
    check_settled,
    history,
    instant,
    lag_seconds,
    layout,
    live_rows,
    retention_text,
    settled_moments,
    shard_document,
    shard_facts,
)
from strandline.errors import UsageError
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.retention import parse_retention
from strandline.shard.state import Retention
from strandline.shard.txn import Txn
from strandline.testing import toy

FIRST = [(1, 0, 1), (2, 0, 1)]
SECOND = [(1, 1, -1), (3, 1, 1), (4, 1, 1)]


def sight(state, upper=None, *, now_ms=4_000, settled_ms=1_000):
    return Sight(state, state.upper if upper is None else upper, now_ms, settled_ms)


@pytest.fixture
def state():
    """Three rows live: two inserted inline, then one of them retracted and two added as a part."""
    state = toy.step(toy.created(), toy.toy_append(FIRST, lower=0, upper=1, token="a"))
    return toy.step(state, toy.toy_append(SECOND, lower=1, upper=2, token="b", key="p"))


def test_rows_are_what_all_diffs_add_up_to_and_updates_are_what_is_stored(state):
    facts = shard_facts(sight(state))
    assert (facts["rows"], facts["updates"], facts["parts"]) == (3, 5, 1)
    assert facts["bytes"] == 100 + state.inline_bytes()
    assert (facts["since"], facts["upper"], facts["closed"]) == (0, 2, False)
    assert (facts["readers"], facts["writers"], facts["holds"]) == (0, 1, 0)


def test_what_a_timeline_has_not_committed_does_not_count(state):
    seen = sight(state, Frontier(1))
    assert live_rows(seen) == 2
    assert [moment.time for moment in settled_moments(seen)] == [0]
    assert [entry["time"] for entry in history(seen)] == [0]


@pytest.mark.parametrize(
    ("upper", "now_ms", "settled_ms", "lag"),
    [
        (Frontier(2), 4_000, 1_000, 3.0),
        (Frontier(2), 500, 1_000, 0.0),
        (Frontier(0), 4_000, None, None),
        (Frontier.closed(), 4_000, 1_000, None),
    ],
)
def test_lag_is_seconds_since_the_newest_settled_time(state, upper, now_ms, settled_ms, lag):
    assert lag_seconds(sight(state, upper, now_ms=now_ms, settled_ms=settled_ms)) == lag


def test_history_runs_backwards_and_counts_rows_down(state):
    entries = list(history(sight(state)))
    assert [(e["time"], e["updates"], e["net"], e["rows"]) for e in entries] == [
        (1, 3, 1, 3),
        (0, 2, 2, 2),
    ]
    assert entries[0]["digest"] == str(toy.digest_of(SECOND))
    assert entries[0]["instant"] == "1970-01-01T00:00:01.000Z"


def test_a_time_whose_batch_was_merged_no_longer_knows_its_updates(state):
    merged = msgspec.structs.replace(state.batches[1], lower=0)
    entries = list(history(sight(replace(state, batches=(merged,)))))
    assert [e["updates"] for e in entries] == [None, None]


def test_moments_that_lie_in_objects_are_older_than_those_listed(state):
    first, second = state.moments
    entries = list(history(sight(replace(state, moments=(second,))), older=(first,)))
    assert [e["time"] for e in entries] == [1, 0]


def test_the_layout_counts_parts_by_level_with_those_that_chunks_list(state):
    listed = msgspec.structs.replace(toy.toy_part("q", FIRST), level=62, base=True)
    assert layout(state, [listed]) == [
        {"level": 0, "kind": "changes", "parts": 1, "updates": 3, "bytes": 100},
        {"level": 62, "kind": "base", "parts": 1, "updates": 2, "bytes": 100},
    ]


def test_a_shard_is_shown_with_its_field_ids_and_key(state):
    document = shard_document(sight(state))
    assert document["columns"] == [{"id": 1, "name": "row", "type": "int64", "nullable": True}]
    assert (document["key"], document["retention"]) == (["row"], "7d")
    assert document["inline"] == {"batches": 1, "updates": 2, "bytes": state.inline_bytes()}
    json.dumps(plain(document), allow_nan=False)


def test_the_field_names_of_documents_are_a_promise(state):
    names = (
        "name rows updates parts bytes since upper closed lag_seconds readers writers holds "
        "timeline"
    )
    assert " ".join(shard_facts(sight(state))) == names
    extra = (
        "id version created settled epoch retention key schema_version columns layout batches "
        "inline manifest garbage applications"
    )
    assert " ".join(shard_document(sight(state))) == f"{names} {extra}"


def test_an_empty_shard_has_a_document_too():
    document = shard_document(sight(toy.created(), settled_ms=None))
    assert (document["rows"], document["lag_seconds"], document["settled"]) == (0, None, None)


def test_a_closed_shard_has_no_upper(state):
    closed = toy.step(state, toy.toy_append(lower=2, upper=None, token="c"))
    facts = shard_facts(sight(closed))
    assert (facts["upper"], facts["closed"], facts["lag_seconds"]) == (None, True, None)


@pytest.mark.parametrize("text", ["1h", "90m", "7d", "250ms", "10 versions", "1h or 10 versions"])
def test_a_retention_rule_reads_as_it_is_written(text):
    assert retention_text(parse_retention(text)) == text


def test_keeping_everything_is_forever():
    assert retention_text(Retention(None, None)) == "forever"


def test_a_time_that_is_not_settled_is_refused_with_the_newest_one(state):
    check_settled(sight(state), 1)
    check_settled(sight(state), None)
    check_settled(sight(state), datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(UsageError, match="its newest time is 1"):
        check_settled(sight(state), 2)
    with pytest.raises(UsageError, match="nothing to show yet"):
        check_settled(sight(toy.created()), None)


def test_garbage_is_counted_with_the_version_that_made_it(state):
    part = toy.toy_part("q", SECOND)
    swap = c.Replace(toy.W1, remove_parts=frozenset({"p"}), parts=(part,), garbage=("p",))
    document = shard_document(sight(toy.step(state, swap)))
    assert document["garbage"] == {"objects": 1, "oldest_version": state.seqno.number + 1}


def test_applications_are_shown_with_their_newest_batch(state):
    batch = toy.toy_append([(5, 2, 1)], lower=2, upper=3, token="batch")
    after = toy.step(state, replace(batch, txn=Txn("query", 7)))
    assert shard_document(sight(after))["applications"] == [
        {"name": "query", "batch": 7, "appended": instant(after.instant_ms)}
    ]
    assert shard_document(sight(state))["applications"] == []
