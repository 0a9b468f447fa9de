"""The scripted source is a source, and does as it is told."""

import pytest

from strandline.connectors.position import Range
from strandline.connectors.source import Limits
from strandline.errors import SourceError, SourceGoneError
from strandline.testing.conformance_source import Stand, check_source, rows_of
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic, failing_nth


def stand(partitions=("0", "1")):
    topic = ScriptedTopic(partitions)

    def grow():
        for partition in partitions:
            topic.send(partition, b"k", b"value %d" % topic.ends[partition])
            topic.send(partition, None, None)

    def forget(taken):
        partition, (start, _) = min(taken.parts.items())
        topic.expire(partition, start + 1)

    return Stand(lambda: ScriptedSource(topic), topic.fetch, grow, forget)


def test_the_scripted_source_is_a_source():
    check_source(stand)


def test_partitions_may_appear_and_records_may_go():
    topic = ScriptedTopic()
    for value in (b"a", b"b", b"c"):
        topic.send("0", None, value)
    source = ScriptedSource(topic)
    assert source.latest() == {"0": 3}
    assert topic.send("new", None, b"d") == 0
    assert source.plan({"0": 3}, Limits()).parts == {"new": (0, 1)}
    topic.compact("0", 1)
    made = Stand(lambda: source, topic.fetch, lambda: None)
    rows = rows_of(made, source, Range({"0": (0, 3)}))
    assert rows["_offset"].to_pylist() == [0, 2]
    topic.expire("0", 2)
    assert source.plan({}, Limits(rows=9)).parts == {"0": (2, 3), "new": (0, 1)}
    with pytest.raises(SourceGoneError, match="begins at 2"):
        source.check(Range({"0": (1, 3)}))
    with pytest.raises(SourceGoneError, match="there is none"):
        source.check(Range({"never": (0, 1)}))


def test_what_was_acknowledged_never_goes_back():
    source = ScriptedSource(ScriptedTopic())
    for upto in ({"0": 3}, {"0": 1}, {}):
        source.acknowledge(upto)
    assert source.acknowledged == {"0": 3}


def test_the_nth_call_fails_once():
    topic = ScriptedTopic()
    topic.send("0", None, b"a")
    source = ScriptedSource(topic, before=failing_nth("plan", 2))
    assert source.plan({}, Limits()) is not None
    with pytest.raises(SourceError, match="call 2 of plan"):
        source.plan({}, Limits())
    assert source.plan({}, Limits()) is not None
