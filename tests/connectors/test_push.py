"""Which pushes are new, which are retries; and what is staged of them."""

import pytest

from strandline.connectors.push import Push, PushSource, Verdict, decide, fetch, open_source
from strandline.connectors.source import Limits, Split
from strandline.errors import BoundsError, NameRefusedError, UsageError

ACCEPT, PENDING, DUPLICATE, GAP = (
    Verdict.ACCEPT, Verdict.PENDING, Verdict.DUPLICATE, Verdict.GAP
)  # fmt: skip


def expected(sequence, sealed, accepted):
    """The verdict by its meaning: what has this producer's stream up to now?"""
    if sequence is None:
        return ACCEPT
    if sealed is None and accepted is None:
        return ACCEPT if sequence == 0 else GAP
    if sealed is not None and sequence <= sealed:
        return DUPLICATE
    if accepted is not None and sequence <= accepted:
        return PENDING
    last = max(-1 if sealed is None else sealed, -1 if accepted is None else accepted)
    return ACCEPT if sequence == last + 1 else GAP


@pytest.mark.parametrize("sequence", [None, *range(6)])
@pytest.mark.parametrize("sealed", [None, *range(4)])
@pytest.mark.parametrize("accepted", [None, *range(4)])
def test_every_combination_has_the_verdict_of_the_table(sequence, sealed, accepted):
    assert decide(sequence, sealed, accepted) is expected(sequence, sealed, accepted)


@pytest.mark.parametrize(
    ("sequence", "sealed", "accepted", "verdict"),
    [
        (None, 5, 5, ACCEPT), (0, None, None, ACCEPT), (1, None, None, GAP),
        (5, 5, None, DUPLICATE),
        (0, 5, 7, DUPLICATE), (6, 5, 7, PENDING), (7, 5, 7, PENDING), (8, 5, 7, ACCEPT),
        (9, 5, 7, GAP), (6, 5, None, ACCEPT), (7, 5, None, GAP), (8, 7, 5, ACCEPT),
    ],
)  # fmt: skip
def test_rows_of_the_table(sequence, sealed, accepted, verdict):
    assert decide(sequence, sealed, accepted) is verdict


def push(sequence, *values, producer="p"):
    return Push(tuple(values), producer, sequence)


def test_pushes_are_staged_whole_in_order_and_forgotten_when_sealed():
    source = PushSource()
    for at in range(3):
        assert source.offer(push(at, b"%d" % at, b"x"), {}) is ACCEPT
    assert source.offer(push(1, b"1", b"x"), {}) is PENDING
    staged = source.stage({"staged": 40}, Limits(rows=5), {})
    assert staged.taken.parts == {"staged": (40, 44)}
    assert staged.rows["_value"].to_pylist() == [b"0", b"x", b"1", b"x"]
    assert staged.rows["_offset"].to_pylist() == [40, 41, 42, 43]
    assert (staged.producers, staged.pushes) == ({"p": 1}, 2)
    assert [each.sequence for each in source.sealed(staged)] == [0, 1]
    rest = source.stage({"staged": 44}, Limits(), {"p": 1})
    assert (rest.producers, rest.taken.parts) == ({"p": 2}, {"staged": (44, 46)})
    source.sealed(rest)
    assert source.stage({"staged": 46}, Limits(), {"p": 2}) is None
    assert source.plan({"staged": 46}, Limits()) is None


def test_what_another_replica_sealed_in_the_meantime_is_left_out():
    ours = PushSource()
    ours.offer(push(5, b"a"), {"p": 4})
    ours.offer(push(6, b"b"), {"p": 4})
    staged = ours.stage({}, Limits(), {"p": 5})
    assert staged.rows["_value"].to_pylist() == [b"b"]
    assert len(ours.sealed(staged)) == 2
    assert ours.offer(push(6, b"b"), {"p": 6}) is DUPLICATE


def test_a_loser_stages_the_same_pushes_again_elsewhere():
    source = PushSource()
    source.offer(push(0, b"a"), {})
    assert source.plan({"staged": 3}, Limits()).parts == {"staged": (3, 4)}
    assert source.plan({"staged": 9}, Limits()).parts == {"staged": (9, 10)}


def test_pushes_without_a_producer_are_always_new():
    source = PushSource()
    for _ in range(2):
        assert source.offer(Push((b"x", None), keys=(b"k", b"l")), {}) is ACCEPT
    staged = source.stage({}, Limits(), {})
    assert staged.rows["_key"].to_pylist() == [b"k", b"l", b"k", b"l"]
    assert staged.producers == {}


def test_a_full_buffer_says_so_and_takes_it_later():
    source = PushSource(rows_max=2, bytes_max=100)
    assert source.offer(push(0, b"a", b"b", b"c"), {}) is ACCEPT
    assert source.offer(push(1, b"d"), {}) is Verdict.FULL
    source.sealed(source.stage({}, Limits(), {}))
    assert source.offer(push(1, b"d" * 99), {"p": 0}) is ACCEPT
    assert source.offer(push(2, b"ee"), {"p": 0}) is Verdict.FULL


@pytest.mark.parametrize(
    "wrong",
    [
        {"producer": "p"}, {"sequence": 0}, {"producer": "p", "sequence": -1},
        {"keys": (b"a", b"b")},
    ],
)  # fmt: skip
def test_wrong_pushes_are_refused(wrong):
    with pytest.raises(UsageError):
        Push((b"x",), **wrong)
    with pytest.raises(NameRefusedError):
        Push((b"x",), producer="../x", sequence=0)


def test_pushed_rows_are_read_where_they_are_staged():
    source = open_source({"bufferRows": "5"}, None)
    assert (source.rows_max, source.replayable) == (5, False)
    source.offer(push(0, b"a"), {})
    with pytest.raises(BoundsError, match="stage them"):
        source.splits(source.plan({}, Limits()))
    with pytest.raises(UsageError, match="staged"):
        fetch(Split("push", {}, "staged", 0, 1), str)
