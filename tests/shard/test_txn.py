"""Which batches of applications count, and which are known already."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from strandline.errors import InvariantError, NameRefusedError, UsageError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.shard import command as c
from strandline.shard.codec import decode_manifest, encode_manifest
from strandline.shard.decide import decide
from strandline.shard.state import Retention
from strandline.shard.txn import APPS_MAX, Mark, Txn, check_marks, valid_app, valid_txn
from strandline.testing import toy

APP = "query 1"
TOKENS = itertools.count()
OTHER = toy.digest_of([(7, 0, 1)])


def _append(lower, txn, row=1, **facts):
    made = toy.toy_append([(row, lower, 1)], lower=lower, upper=lower + 1, token=f"t{next(TOKENS)}")
    return replace(made, txn=txn, **facts)


@pytest.fixture
def state():
    """The batches 3 and 5 of an application have counted, at 0 and 1."""
    state = toy.step(toy.created(writers=(toy.W1, toy.W2)), _append(0, Txn(APP, 3)))
    return toy.step(state, _append(1, Txn(APP, 5), row=2))


AGAIN = [
    pytest.param(_append(2, Txn(APP, 6)), c.Changed, id="a newer batch"),
    pytest.param(_append(2, Txn(APP, 9)), c.Changed, id="numbers may be left out"),
    pytest.param(_append(2, Txn("query 2", 5), row=2), c.Changed, id="of another application"),
    pytest.param(_append(1, Txn(APP, 6)), c.UpperMismatch, id="a newer batch, not at the upper"),
    pytest.param(_append(2, Txn(APP, 5), row=2), c.Repeated, id="the newest"),
    pytest.param(_append(1, Txn(APP, 5), row=2), c.Repeated, id="at a time that is settled"),
    pytest.param(_append(2, Txn(APP, 5), row=2, writer=toy.W2), c.Repeated, id="another writer"),
    pytest.param(_append(2, Txn(APP, 5), row=8), c.Diverged, id="the newest, with other rows"),
    pytest.param(_append(2, Txn(APP, 5, OTHER), row=2), c.Diverged, id="another digest is given"),
    pytest.param(_append(2, Txn(APP, 4), row=8), c.Repeated, id="an older one is not compared"),
    pytest.param(_append(2, Txn(APP, 3), row=8), c.Repeated, id="older, and it counted"),
    pytest.param(_append(2, Txn(APP, 5), row=2, epoch=-1), c.Repeated, id="by an older owner"),
    pytest.param(
        _append(2, Txn(APP, 5), row=2, writer="w" + "f" * 32), c.Lost, id="by a lost writer"
    ),
]


@pytest.mark.parametrize(("command", "outcome"), AGAIN)
def test_a_batch_counts_once(state, command, outcome):
    found = decide(state, command)
    assert type(found) is outcome
    toy.apply(state, found)


def test_a_repetition_tells_the_newest_batch_and_a_divergence_both_digests(state):
    assert decide(state, _append(2, Txn(APP, 3))) == c.Repeated(APP, 3, 5)
    reason = decide(state, _append(2, Txn(APP, 5), row=8)).reason
    for word in (APP, "batch 5", str(toy.digest_of([(2, 1, 1)])), str(toy.digest_of([(8, 2, 1)]))):
        assert word in reason


def test_rows_are_compared_as_a_multiset_whatever_their_times(state):
    both = toy.toy_append([(1, 2, 1), (2, 3, 1)], lower=2, upper=4, token="x")
    after = toy.step(state, replace(both, txn=Txn(APP, 6)))
    turned = toy.toy_append([(2, 4, 1), (1, 4, 1)], lower=4, upper=5, token="y")
    assert isinstance(decide(after, replace(turned, txn=Txn(APP, 6))), c.Repeated)
    twice = toy.toy_append([(1, 4, 2), (2, 4, 1)], lower=4, upper=5, token="z")
    assert isinstance(decide(after, replace(twice, txn=Txn(APP, 6))), c.Diverged)


def test_the_given_digest_is_compared_and_not_the_rows(state):
    """What an upsert appends follows from what was there; its input does not."""
    after = toy.step(state, _append(2, Txn("upsert", 0, OTHER)))
    nothing = toy.toy_append(lower=3, upper=4, token="again")
    again = replace(nothing, txn=Txn("upsert", 0, OTHER))
    assert decide(after, again) == c.Repeated("upsert", 0, 0)


def test_an_empty_batch_counts_once_too(state):
    empty = toy.toy_append(lower=2, upper=3, token="empty")
    after = toy.step(state, replace(empty, txn=Txn(APP, 6)))
    again = replace(toy.toy_append(lower=3, upper=4, token="again"), txn=Txn(APP, 6))
    assert decide(after, again) == c.Repeated(APP, 6, 6)
    assert isinstance(decide(after, replace(_append(3, Txn(APP, 6)))), c.Diverged)


def test_a_closed_shard_still_knows_its_batches(state):
    closed = toy.step(state, toy.toy_append(lower=2, upper=None, token="close"))
    assert isinstance(decide(closed, _append(2, Txn(APP, 5), row=2)), c.Repeated)
    assert decide(closed, _append(2, Txn(APP, 6))) == c.UpperMismatch(Frontier.closed())


def test_batches_survive_expiry_merging_and_manifests(state):
    after = toy.step(state, c.Expire(frozenset({"0.0"})))
    after = toy.step(after, c.RegisterWriter(toy.W1, "1.0"))
    after = toy.step(toy.step(after, c.Retain(Retention(None, 1))), c.AdvanceSince(10**9))
    loaded = decode_manifest(toy.NAME, after.seqno, encode_manifest(after), "key")
    assert isinstance(decide(loaded, _append(2, Txn(APP, 5), row=2)), c.Repeated)
    assert isinstance(decide(loaded, _append(2, Txn(APP, 5), row=3)), c.Diverged)


def test_nothing_that_may_be_withdrawn_is_remembered(state):
    line = toy.step(state, c.Attach("line", Frontier(2), 1))
    through = _append(2, Txn(APP, 6), timeline="line", epoch=1)
    assert "timeline" in decide(line, through).reason
    assert isinstance(decide(line, _append(2, Txn(APP, 5), row=2)), c.Repeated)


def test_an_application_is_forgotten_by_name_and_only_as_it_was_seen(state):
    mark = state.txns[APP]
    assert decide(state, c.ForgetTxn("nobody", 0)) == c.Unchanged()
    moved = toy.step(state, _append(2, Txn(APP, 6)))
    assert decide(moved, c.ForgetTxn(APP, mark.seqno)) == c.Stale()
    gone = toy.step(state, c.ForgetTxn(APP, mark.seqno))
    assert decide(gone, c.ForgetTxn(APP, mark.seqno)) == c.Unchanged(), "of unknown fate, again"
    assert isinstance(decide(gone, _append(2, Txn(APP, 5), row=2)), c.Changed)


def test_a_dropped_shard_takes_its_applications_along(state):
    dropped = toy.step(state, c.Drop())
    assert dropped.txns == {}
    reborn = toy.step(dropped, c.Create(toy.NAME, "s" + "9" * 32, toy.SCHEMA, 5))
    assert reborn.txns == {}


def test_r25_there_are_so_many_applications_and_none_is_evicted(state):
    many = {f"app {n}": Mark(0, OTHER.pack(), 0) for n in range(APPS_MAX)}
    full = replace(state, txns=many)
    refused = decide(full, _append(2, Txn("one more", 0)))
    assert "forget_txn" in refused.reason
    toy.step(full, _append(2, Txn("app 7", 1)))
    room = toy.step(full, c.ForgetTxn("app 7", 0))
    toy.step(room, _append(2, Txn("one more", 0)))


A, B = Mark(1, OTHER.pack(), 4), Mark(2, OTHER.pack(), 7)
BROKEN = [
    pytest.param({"a": A}, {"a": Mark(0, OTHER.pack(), 7)}, False, "R24", id="moved back"),
    pytest.param(
        {"a": A}, {"a": Mark(1, Digest.ZERO.pack(), 7)}, False, "R24", id="another digest"
    ),
    pytest.param({"a": A}, {"a": Mark(2, OTHER.pack(), 6)}, True, "R24", id="of another version"),
    pytest.param({"a": A}, {"b": B}, True, "R25", id="an append that evicts"),
    pytest.param({"a": A, "b": A}, {}, False, "R25", id="two at once"),
]


@pytest.mark.parametrize(("before", "after", "appended", "broken"), BROKEN)
def test_r24_and_r25_are_proven_of_every_version(before, after, appended, broken):
    with pytest.raises(InvariantError, match=broken):
        check_marks(before, after, SeqNo(7), appended=appended)


def test_what_may_happen_to_batches_is_not_objected_to():
    check_marks({"a": A}, {"a": B}, SeqNo(7), appended=True)
    check_marks({"a": A}, {"a": A, "b": B}, SeqNo(7), appended=True)
    check_marks({"a": A}, {}, SeqNo(7), appended=False)


@pytest.mark.parametrize("app", ["q", "query 1", "0b6e-4f", "~", "a" * 128])
def test_names_of_applications(app):
    assert valid_app(app) == app


@pytest.mark.parametrize(
    "app", ["", " q", "q ", "a" * 129, "q\n", "a\x1b[31m", "große", "é", None, 7, b"q"]
)
def test_names_that_are_refused(app):
    with pytest.raises(NameRefusedError, match="application name"):
        valid_app(app)


def test_a_transaction_is_an_application_and_a_number():
    assert valid_txn(("q", 0)) == Txn("q", 0)
    assert valid_txn(Txn("q", 2**63 - 1, OTHER)).digest == OTHER
    for wrong in (("q", -1), ("q", True), ("q", 2**63), ("q", "1"), ("q",), "q1", ("q", 1, 2)):
        with pytest.raises(UsageError):
            valid_txn(wrong)
