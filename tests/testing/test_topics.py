"""What a topic tells of transactions, and what a reader saw of them."""

from __future__ import annotations

import json

import pytest

from strandline.testing.broker_log import Answer, BrokerLog
from strandline.testing.topics import Arrived, Reader, Topic

SINK = "out"


class Writer:
    """Writes transactions of a sink by hand."""

    def __init__(self, envelope: str = "changes") -> None:
        self.log = BrokerLog()
        self.log.grow(SINK, 2)
        self.log.grow("progress", 1)
        self.topic = Topic(self.log, SINK, "progress", SINK, envelope)
        self.reader = Reader(self.topic)
        _, producer, epoch = self.log.init("a", 0)
        self.who = (producer, epoch)
        self.numbers: dict[tuple[str, int], int] = {}

    def send(self, place: tuple[str, int], key: object, value: object) -> None:
        number = self.numbers.get(place, 0)
        self.numbers[place] = number + 1
        sent = [(_json(key), None if value is None else _json(value), ())]
        assert self.log.produce("a", self.who, place, (number, sent), 0) is Answer.DONE

    def message(self, t: int, number: int, diff: int = 1, partition: int = 0) -> None:
        said = {"row": {"id": number}, "diff": diff, "time": t, "epoch": 1}
        self.send((SINK, partition), None, said)

    def progress(self, t: int, founded: int = -1) -> None:
        mark = {"t": t, "epoch": 1, "founded": founded}
        self.send(("progress", 0), {"sink": SINK}, mark)

    def commit(self) -> None:
        self.log.end("a", self.who, commit=True, now_ms=0)
        while self.log.mark():
            continue


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.fixture
def writer() -> Writer:
    made = Writer()
    made.progress(-1)
    made.commit()
    return made


def test_transactions_are_told_in_order(writer: Writer) -> None:
    for t in (2, 5):
        writer.message(t, 7)
        writer.message(t, 8, -1, partition=1)
        writer.progress(t)
        writer.commit()
        writer.reader.look()
    assert writer.topic.arrived() == [
        Arrived(t, 1, [{"id": 7, "_diff": 1}, {"id": 8, "_diff": -1}]) for t in (2, 5)
    ]
    assert writer.topic.wrong == writer.reader.wrong() == []


def test_messages_without_progress_are_wrong_and_so_is_progress_without_messages(
    writer: Writer,
) -> None:
    writer.message(2, 7)
    writer.commit()
    writer.progress(2)
    writer.commit()
    writer.topic.arrived()
    assert [each.split("counted")[-1] for each in writer.topic.wrong] == [
        " without progress",
        "progress went to 2 without a message",
    ]


def test_two_marks_and_messages_of_another_time_are_wrong(writer: Writer) -> None:
    writer.message(2, 7)
    writer.progress(2)
    writer.progress(3)
    writer.commit()
    writer.topic.arrived()
    assert len(writer.topic.wrong) == 2


def test_what_is_gone_is_judged_as_well(writer: Writer) -> None:
    writer.message(2, 7)
    writer.progress(2)
    writer.commit()
    writer.reader.look()
    writer.log.topics[SINK][0].cut(100)
    assert [each.t for each in writer.topic.arrived()] == [2]
    assert writer.reader.wrong() == []


def test_upserts_are_changes_of_what_a_key_held() -> None:
    writer = Writer("upsert")
    for t, value in enumerate([{"id": 1, "x": 1}, {"id": 1, "x": 2}, None]):
        writer.send((SINK, 0), {"id": 1}, value)
        writer.progress(t)
        writer.commit()
    rows = [each.rows for each in writer.topic.arrived()]
    assert rows == [
        [{"id": 1, "x": 1, "_diff": 1}],
        [{"id": 1, "x": 1, "_diff": -1}, {"id": 1, "x": 2, "_diff": 1}],
        [{"id": 1, "x": 2, "_diff": -1}],
    ]


def test_a_before_that_was_not_there_is_wrong() -> None:
    writer = Writer("debezium")
    for t, before in enumerate([None, {"id": 1, "x": 5}]):
        said = {"before": before, "after": {"id": 1, "x": t}, "source": {"time": t, "epoch": 1}}
        writer.send((SINK, 0), {"id": 1}, said)
        writer.progress(t)
        writer.commit()
    writer.topic.arrived()
    assert len(writer.topic.wrong) == 1
    assert "its key held {'id': 1, 'x': 0}" in writer.topic.wrong[0]


def test_a_reader_that_saw_a_part_or_another_order_says_so(writer: Writer) -> None:
    for number in (7, 8):
        writer.message(2, number)
        writer.progress(2)
        writer.commit()
        writer.reader.look()
    assert writer.reader.wrong() == ["a reader saw 1 of 2 messages of 2 in partition 0"] * 2
    writer.reader.looks.clear()
    writer.reader.seen[0].reverse()
    assert len(writer.reader.wrong()) == 1
