"""What a progress topic tells: how far a lineage came, who was before it, whose keys are left."""

from __future__ import annotations

import msgspec
import pytest

from strandline.connectors.kafka_port import Message
from strandline.connectors.kafka_progress import (
    FORMAT,
    Mark,
    Record,
    last_before,
    left_by,
    newest,
    records_of,
    replaced_by,
    unsettled,
)
from strandline.connectors.sink import NOTHING_YET, Address
from strandline.errors import SinkStoppedError

ADDRESS = Address("l0", "shop", "out", "third")


def mark(t: int = 7, **more) -> Mark:
    told = {"founded": NOTHING_YET, "starts": {"0": 12}, "topic": "out", "envelope": "upsert"}
    return Mark(FORMAT, t, 1, **{**told, **more})


def record(lineage: str, partition: int = 0, **more) -> Record:
    return Record(partition, lineage, mark(**more))


def message(address: object, value: bytes | None) -> Message:
    return Message(0, 0, msgspec.json.encode(address), value)


def test_records_are_those_of_the_sink_whatever_the_lineage() -> None:
    value = msgspec.json.encode(mark())
    found = records_of(
        ADDRESS,
        "progress",
        [
            message(ADDRESS, value),
            message(Address("l0", "shop", "out", "first"), value),
            message(Address("l1", "shop", "out", "first"), value),
            message(Address("l0", "shop", "other", "first"), value),
            message("somebody's", value),
            message(ADDRESS, None),
            Message(0, 0, None, value),
        ],
    )
    assert found == [record("third"), record("first")]


@pytest.mark.parametrize(
    ("value", "reason"), [(b"{", "damaged"), (b'{"format":2}', "damaged"), (None, "newer version")]
)
def test_a_record_that_is_not_understood_stops_the_sink(value: bytes | None, reason: str) -> None:
    given = value or msgspec.json.encode(msgspec.structs.replace(mark(), format=FORMAT + 1))
    with pytest.raises(SinkStoppedError, match=f"topic progress .*{reason}"):
        records_of(ADDRESS, "progress", [message(ADDRESS, given)])


def test_the_highest_record_of_a_lineage_counts() -> None:
    records = [record("a", t=5), record("a", partition=1, t=3), record("b", t=9)]
    assert newest(records, "a") == mark(5)
    assert newest(records, "c") is None


def test_the_lineage_before_is_who_wrote_last() -> None:
    records = [record("first"), record("second"), record("third")]
    assert last_before(records, "third") == ["second"]
    assert last_before([], "third") == []


def test_with_more_partitions_any_of_their_lasts_may_be_it() -> None:
    records = [record("second"), record("first", 1), record("third", 1)]
    assert last_before(records, "third") == ["second", "first"]


def test_what_the_store_knows_and_the_topic_does_not_is_unsettled() -> None:
    records = [record("second"), record("third", t=NOTHING_YET)]
    assert unsettled(records, "third", ["first", "second"], "out") == ("first",)
    assert unsettled(records, "third", ["second"], "out") == ()
    assert unsettled([], "third", ["first", "second"], "out") == ("first", "second")
    assert unsettled([], "third", [], "out") == ()


def test_who_lost_its_beginning_is_unsettled_where_it_left_keys() -> None:
    lost = record("first", founded=4, starts={})
    assert unsettled([lost], "third", ["first"], "out") == ("first",)
    assert unsettled([lost], "first", [], "out") == (), "it goes on with its own keys"
    assert unsettled([lost], "third", ["first"], "elsewhere") == ()
    changes = record("first", founded=4, starts={}, envelope="changes")
    assert unsettled([changes], "third", ["first"], "out") == ()
    assert left_by([lost], "third", "out") == []


def test_what_was_settled_is_not_asked_again_in_that_topic() -> None:
    records = [record("first", founded=4, starts={}), record("second", settled=("zeroth", "first"))]
    older = ["zeroth", "first", "second"]
    assert unsettled(records, "third", older, "out") == ()
    there = [record("second", topic="elsewhere", settled=("zeroth",))]
    assert unsettled(there, "third", ["zeroth", "second"], "out") == ("zeroth",)


def test_those_before_left_keys_since_they_began() -> None:
    records = [
        record("first", starts={"0": 3}),
        record("second", topic="elsewhere"),
        record("first", envelope="changes"),
        record("third", starts={"0": 1}),
    ]
    assert left_by(records, "third", "out") == [{"0": 3}]


def test_whose_keys_another_lineage_has_replaced() -> None:
    """It deletes them with its first delivery, and not before."""
    mine, theirs = record("first", t=5), record("second", t=6)
    records = [mine, theirs]
    assert replaced_by(records, "first", mine.mark) == "second"
    assert replaced_by(records, "second", theirs.mark) == ""
    assert replaced_by([theirs, mine], "first", mine.mark) == "", "it came before"
    assert replaced_by([mine, theirs, mine], "first", mine.mark) == "", "it went on since"
    assert replaced_by([mine], "first", mine.mark) == ""
    assert replaced_by([theirs], "first", mine.mark) == "", "nobody knows its place"
    assert replaced_by([mine, record("first", t=4)], "first", mine.mark) == ""


@pytest.mark.parametrize(
    "other",
    [
        record("second", t=NOTHING_YET),
        record("second", partition=1),
        record("second", topic="elsewhere"),
        record("second", envelope="changes"),
    ],
)
def test_who_leaves_the_keys_where_they_are(other: Record) -> None:
    """Nothing was delivered yet, or elsewhere, or without keys; or nobody knows whether later."""
    mine = record("first", t=5)
    assert replaced_by([mine, other], "first", mine.mark) == ""


def test_what_has_no_keys_is_not_replaced() -> None:
    mine = record("first", t=5, envelope="changes")
    assert replaced_by([mine, record("second", t=6)], "first", mine.mark) == ""
