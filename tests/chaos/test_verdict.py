"""Plants each kind of violation in an honest story, and sees it found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.chaos.content import Digest, Span
from tests.chaos.truth import Settled
from tests.chaos.verdict import account, judge

Story = dict[str, list[list]]
SPANS = [Span(100, 3), Span(200, 2), Span(300, 40), Span(400, 1)]
"""What was appended at the times 0 to 3; at time 3 the rows of time 1 are retracted."""


def settled() -> Settled:
    truth = Settled()
    for time, span in enumerate(SPANS):
        _add(truth, time, span, 1)
    _add(truth, 3, SPANS[1], -1)
    truth.advance(len(SPANS))
    return truth


def _add(truth: Settled, time: int, span: Span, diff: int) -> None:
    ids = span.ids()
    truth.add(ids, np.full(len(ids), time), np.full(len(ids), diff))


def honest() -> Story:
    """Two writers, of whom one never heard of its second append; a reader; a subscriber."""
    before = settled().as_of(2)
    return {
        "one": [
            ["intent", 1, "race", 0, 100, 3, 0, 0, 10],
            ["ack", 1, 0, 20],
            ["intent", 2, "race", 2, 300, 40, 0, 0, 50],
        ],
        "two": [
            ["intent", 1, "race", 0, 900, 9, 0, 0, 11],
            ["mismatch", 1, 1, 25],
            ["intent", 2, "race", 1, 200, 2, 0, 0, 30],
            ["ack", 2, 1, 40],
            ["intent", 3, "race", 3, 400, 1, 200, 2, 70],
            ["ack", 3, 3, 80],
            ["intent", 4, "race", 4, 950, 9, 0, 0, 90],
            ["refused", 4, 95],
        ],
        "reader": [
            ["seen", "race", 0, 3, 12, 60, 65],
            ["read", "race", 2, before.count, before.total],
            ["seen", "race", 1, 4, 14, 100, 110],
            ["since", "race", 0],
        ],
        "subscriber": [
            ["subscribed", "race", 1, True],
            ["rows", [100, 101, 102], [1, 1, 1], [1, 1, 1]],
            ["rows", [200, 201], [1, 1], [1, 1]],
            ["progress", 2],
            ["rows", SPANS[2].ids().tolist(), [2] * 40, [1] * 40],
            ["progress", 3],
            ["rows", [400, 200, 201], [3, 3, 3], [1, -1, -1]],
            ["progress", 4],
        ],
        "listener": [
            ["subscribed", "race", 2, False],
            ["rows", [400, 200, 201], [3, 3, 3], [1, -1, -1]],
            ["progress", 4],
        ],
    }


def verdict(story: Story, truth: Settled | None = None) -> list[str]:
    return judge(account(story.items()), {"race": truth or settled()})


def test_an_honest_story_is_believed() -> None:
    assert verdict(honest()) == []


def _lost_ack(story: Story, truth: Settled) -> None:
    story["one"] += [["intent", 9, "race", 2, 970, 4, 0, 0, 60], ["ack", 9, 2, 65]]


def _never_meant(story: Story, truth: Settled) -> None:
    _add(truth, 4, Span(990, 5), 1)
    truth.advance(5)


def _twice(story: Story, truth: Settled) -> None:
    _add(truth, 4, SPANS[2], 1)
    truth.advance(5)


def _refused_but_there(story: Story, truth: Settled) -> None:
    _add(truth, 4, Span(950, 9), 1)
    truth.advance(5)


def _other_time(story: Story, truth: Settled) -> None:
    story["one"][1] = ["ack", 1, 5, 20]


def _both_told(story: Story, truth: Settled) -> None:
    story["two"][0] = ["intent", 1, "race", 0, 100, 3, 0, 0, 11]
    story["two"][1] = ["ack", 1, 0, 25]


def _real_time(story: Story, truth: Settled) -> None:
    story["two"][3] = ["ack", 2, 1, 9]
    story["two"][2][-1] = 8


def _other_answer(story: Story, truth: Settled) -> None:
    story["reader"][1] = ["read", "race", 2, 45, 7]


def _upper_back(story: Story, truth: Settled) -> None:
    story["reader"][2] = ["seen", "race", 1, 2, 14, 100, 110]


def _row_missing(story: Story, truth: Settled) -> None:
    story["listener"][1] = ["rows", [400, 200], [3, 3], [1, -1]]


def _row_twice(story: Story, truth: Settled) -> None:
    story["subscriber"].insert(2, story["subscriber"][2])


def _row_late(story: Story, truth: Settled) -> None:
    lines = story["subscriber"]
    lines[4], lines[5] = lines[5], lines[4]


def _frontier_back(story: Story, truth: Settled) -> None:
    story["subscriber"].append(["progress", 3])


def _missing_object(story: Story, truth: Settled) -> None:
    story["reader"].append(["error", "CorruptionError", "part is missing", "…"])


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_lost_ack, "the append of one at 2 is gone"),
        (_never_meant, "nobody wrote the 5 updates that are settled at 4"),
        (_twice, "is at 2 and again at 4"),
        (_refused_but_there, "was told ['REFUSED'] about is settled at 4"),
        (_other_time, "one wrote at 5, and it is at 0"),
        (_both_told, "were all told that they wrote 0"),
        (_real_time, "after two had been told about a later time"),
        (_other_answer, "race as of 2 was"),
        (_upper_back, "upper of race was 3"),
        (_row_missing, "the rows at 3 are not what is settled"),
        (_row_twice, "the snapshot is"),
        (_row_late, "the rows at 2 are not what is settled"),
        (_frontier_back, "the frontier moved back from 4 to 3"),
        (_missing_object, "reader: CorruptionError: part is missing"),
    ],
)
def test_a_planted_violation_is_found(plant: Callable[[Story, Settled], None], words: str) -> None:
    story, truth = honest(), settled()
    plant(story, truth)
    assert any(words in what for what in verdict(story, truth)), verdict(story, truth)


def test_what_is_later_than_the_witness_is_left_to_the_next_judgement() -> None:
    story = honest()
    story["one"] += [["intent", 9, "race", 4, 970, 4, 0, 0, 120], ["ack", 9, 4, 130]]
    story["reader"].append(["read", "race", 4, 1, 1])
    story["two"] += [["intent", 9, "race", 4, 980, 4, 0, 0, 120], ["mismatch", 9, 8, 130]]
    story["two"] += [["intent", 10, "race", 8, 985, 4, 0, 0, 140], ["ack", 10, 8, 150]]
    story["listener"].append(["progress", 5])
    assert verdict(story) == []


def test_a_digest_tells_rows_apart_and_adds_up() -> None:
    one, two = Span(1, 2).digest(), Span(3, 2).digest()
    assert one != two
    assert one + two == Span(1, 4).digest()
    assert one + two - two == one
    assert one - one == Digest()
