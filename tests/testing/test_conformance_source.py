"""The suite for sources must fail for sources that break the contract."""

from dataclasses import replace

import pytest

from strandline.connectors.position import Range
from strandline.connectors.source import Limits, Split
from strandline.errors import SourceGoneError
from strandline.testing.conformance_source import Stand, check_source
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic


class IgnoresLimits(ScriptedSource):
    def plan(self, start, limits):
        return super().plan(start, Limits())


class RemembersItsOffers(ScriptedSource):
    offered = 0

    def plan(self, start, limits):
        found = super().plan(start, limits)
        if found is not None:
            self.offered += 1
        return found if self.offered % 3 else None


class ClosedRanges(ScriptedSource):
    def splits(self, taken):
        wider = super().splits(taken)
        return [Split(s.connector, s.options, s.partition, s.start, s.stop + 1) for s in wider]


class LeavesGaps(ScriptedSource):
    def splits(self, taken):
        return super().splits(taken)[:1]


class PlansNothingAsSomething(ScriptedSource):
    def plan(self, start, limits):
        return super().plan(start, limits) or Range({"0": (start.get("0", 0), start.get("0", 0))})


class StartsAgain(ScriptedSource):
    def plan(self, start, limits):
        return super().plan({}, limits) if start and sum(start.values()) > 3 else None


class SkipsOne(ScriptedSource):
    def plan(self, start, limits):
        found = super().plan(start, limits)
        if found is None or not start:
            return found
        return Range({p: (first + 1, stop + 1) for p, (first, stop) in found.parts.items()})


class NeverGone(ScriptedSource):
    def check(self, taken):
        pass


class ForgetsAtAcknowledging(ScriptedSource):
    def acknowledge(self, upto):
        for partition, offset in upto.items():
            self.topic.expire(partition, offset + 1)


class NotReplayable(ScriptedSource):
    def __init__(self, topic):
        super().__init__(topic, replayable=False)


def stand(kind):
    topic = ScriptedTopic(("0", "1"))

    def grow():
        for partition in ("0", "1"):
            for _ in range(2):
                topic.send(partition, b"k", b"value %d" % topic.ends[partition])

    def forget(taken):
        topic.expire("0", taken.parts["0"][0] + 1)

    return Stand(lambda: kind(topic), topic.fetch, grow, forget)


@pytest.mark.parametrize(
    "wrong",
    [
        IgnoresLimits, RemembersItsOffers, ClosedRanges, LeavesGaps, PlansNothingAsSomething,
        StartsAgain, SkipsOne, NeverGone, ForgetsAtAcknowledging, NotReplayable,
    ],
)  # fmt: skip
def test_a_wrong_source_is_caught(wrong):
    with pytest.raises((AssertionError, SourceGoneError)) as caught:
        check_source(lambda: stand(wrong))
    assert str(caught.value)


def test_rows_that_change_are_caught():
    def made():
        right = stand(ScriptedSource)
        reads = iter(range(10_000))

        def fetch(split):
            for batch in right.fetch(split):
                yield batch.slice(0, batch.num_rows - (next(reads) == 1))

        return replace(right, fetch=fetch)

    with pytest.raises(AssertionError, match="rows"):
        check_source(made)


def test_a_right_source_passes():
    check_source(lambda: stand(ScriptedSource))
