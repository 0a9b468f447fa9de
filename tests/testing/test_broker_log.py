"""What a broker does with requests, one sentence at a time."""

from __future__ import annotations

import pytest

from strandline.testing.broker_log import Answer, BrokerLog, Sent, murmur2

PLACES = [("out", 0), ("out", 1), ("progress", 0)]


def sent(*words: str) -> list[Sent]:
    return [(word[:1].encode(), word.encode(), ()) for word in words]


class Client:
    """A producer that numbers its requests by itself."""

    def __init__(self, log: BrokerLog, name: str = "a") -> None:
        self.log, self.name = log, name
        self.now_ms = 0.0
        while (found := log.init(name, self.now_ms))[0] is Answer.BUSY:
            log.mark()
        self.who = found[1:]
        self.numbers = dict.fromkeys(PLACES, 0)

    def send(self, place: tuple[str, int], *words: str, number: int | None = None) -> Answer:
        if number is None:
            number = self.numbers[place]
            self.numbers[place] += 1
        return self.log.produce(self.name, self.who, place, (number, sent(*words)), self.now_ms)

    def end(self, *, commit: bool) -> Answer:
        return self.log.end(self.name, self.who, commit=commit, now_ms=self.now_ms)


@pytest.fixture
def log() -> BrokerLog:
    made = BrokerLog(timeout_ms=100, expiry_ms=1_000)
    made.grow("out", 2)
    made.grow("progress", 1)
    return made


def read(log: BrokerLog, place: tuple[str, int] = ("out", 0)) -> list[str]:
    topic, number = place
    return [(each.value or b"").decode() for each in log.topics[topic][number].committed()]


def test_a_transaction_counts_when_its_marker_is_there_and_the_marker_takes_an_offset(
    log: BrokerLog,
) -> None:
    client = Client(log)
    assert client.send(("out", 0), "a1", "b1") is Answer.DONE
    partition = log.topics["out"][0]
    assert (partition.stable, partition.end, read(log)) == (0, 2, [])
    assert client.end(commit=True) is Answer.DONE
    assert (partition.stable, read(log)) == (0, [])
    assert log.mark()
    assert (partition.stable, partition.end, read(log)) == (3, 3, ["a1", "b1"])
    assert not log.mark()


def test_an_open_transaction_holds_back_what_others_committed_after_its_first_record(
    log: BrokerLog,
) -> None:
    slow, quick = Client(log, "slow"), Client(log, "quick")
    quick.send(("out", 0), "before")
    quick.end(commit=True)
    log.mark()
    slow.send(("out", 0), "open")
    quick.send(("out", 0), "after")
    quick.end(commit=True)
    log.mark()
    assert read(log) == ["before"]
    slow.end(commit=False)
    log.mark()
    assert read(log) == ["before", "after"]


def test_markers_come_one_by_one_and_the_verdict_is_one(log: BrokerLog) -> None:
    client = Client(log)
    for place in PLACES:
        client.send(place, "x")
    client.end(commit=True)
    for marks in range(4):
        assert sum(len(read(log, place)) for place in PLACES) == marks
        assert client.end(commit=True) is Answer.DONE
        assert client.end(commit=False) is Answer.INVALID
        assert log.mark() is (marks < 3)


def test_who_begins_while_the_last_is_being_ended_waits(log: BrokerLog) -> None:
    client = Client(log)
    client.send(("out", 0), "x")
    client.end(commit=True)
    assert client.send(("out", 0), "y", number=1) is Answer.BUSY
    assert log.init("a", 0)[0] is Answer.BUSY
    log.mark()
    assert client.send(("out", 0), "y", number=1) is Answer.DONE


def test_init_aborts_what_is_open_and_fences_who_opened_it(log: BrokerLog) -> None:
    zombie = Client(log)
    zombie.send(("out", 0), "half")
    client = Client(log)
    assert zombie.end(commit=True) is Answer.FENCED
    assert zombie.send(("out", 0), "more") is Answer.FENCED
    client.send(("out", 0), "whole")
    client.end(commit=True)
    log.mark()
    assert read(log) == ["whole"]


def test_init_waits_for_what_was_decided_and_does_not_undo_it(log: BrokerLog) -> None:
    first = Client(log)
    first.send(("out", 0), "decided")
    first.end(commit=True)
    Client(log)
    assert read(log) == ["decided"]


def test_a_request_that_comes_twice_counts_once_and_one_out_of_order_never(log: BrokerLog) -> None:
    client = Client(log)
    assert client.send(("out", 0), "x", number=0) is Answer.DONE
    assert client.send(("out", 0), "x", number=0) is Answer.DONE
    assert client.send(("out", 0), "z", number=2) is Answer.INVALID
    client.end(commit=True)
    log.mark()
    assert read(log) == ["x"]


def test_s80_a_late_end_counts_for_whatever_its_producer_has_open_unless_the_epoch_is_new(
    log: BrokerLog,
) -> None:
    careless = Client(log)
    careless.send(("out", 0), "first")
    careless.end(commit=False)
    log.mark()
    careless.send(("out", 0), "half of the second")
    assert careless.end(commit=True) is Answer.DONE
    log.mark()
    assert read(log) == ["half of the second"]
    careful = Client(log)
    careful.send(("out", 0), "half of the third")
    assert careless.end(commit=True) is Answer.FENCED


def test_what_is_open_for_too_long_is_aborted_and_its_producer_fenced(log: BrokerLog) -> None:
    client = Client(log)
    client.send(("out", 0), "slow")
    log.expire(100)
    assert client.send(("out", 0), "er") is Answer.DONE
    log.expire(101)
    assert client.end(commit=True) is Answer.FENCED
    log.mark()
    assert (read(log), log.topics["out"][0].stable) == ([], 3)


def test_an_id_that_nobody_uses_is_forgotten_and_its_last_producer_stays_out(
    log: BrokerLog,
) -> None:
    zombie = Client(log)
    log.expire(1_000)
    assert "a" in log.owners
    log.expire(1_001)
    assert "a" not in log.owners
    assert zombie.send(("out", 0), "x", number=0) is Answer.FENCED
    client = Client(log)
    assert client.who[0] != zombie.who[0]
    assert zombie.end(commit=True) is Answer.FENCED


def test_retention_and_compaction_leave_gaps_and_no_offset_comes_again(log: BrokerLog) -> None:
    client = Client(log)
    for words in (("a1", "b1"), ("a2",)):
        client.send(("out", 0), *words)
        client.end(commit=True)
        log.mark()
    client.send(("out", 0), "gone")
    client.end(commit=False)
    log.mark()
    client.send(("out", 0), "a3")
    partition = log.topics["out"][0]
    partition.compact()
    assert [each.offset for each in partition.records()] == [1, 3, 7]
    assert read(log) == ["b1", "a2"]
    partition.cut(3)
    assert (partition.first, partition.end, read(log)) == (3, 8, ["a2"])
    partition.cut(100)
    assert (partition.first, partition.end, read(log)) == (8, 8, [])
    client.end(commit=True)
    log.mark()
    assert partition.end == 9


def test_a_topic_grows_and_one_that_is_gone_is_unknown(log: BrokerLog) -> None:
    client = Client(log)
    client.send(("out", 0), "x")
    log.grow("out", 5)
    log.grow("out", 3)
    assert len(log.topics["out"]) == 5
    del log.topics["out"]
    assert client.send(("out", 0), "y") is Answer.UNKNOWN
    assert client.end(commit=True) is Answer.DONE
    assert log.mark()
    assert not log.mark()


@pytest.mark.parametrize(
    ("key", "known"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_kafkas_own_tests_say(key: bytes, known: int) -> None:
    assert murmur2(key) == known & 0xFFFFFFFF
