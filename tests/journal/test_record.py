"""Records say what they are, in words and by number."""

from __future__ import annotations

import pytest

from strandline.journal import record as r

REF = r.StagedRef("journal/shop/x", b"d" * 16, 3, 90)
EXAMPLES = {
    "BEGIN of 31 in e3": r.Begin(31, 3, "p1", 5, {"python": "3.11"}, None),
    "INPUT of 31 from orders.kafka": r.Input(31, "orders.kafka", "orders", {"0": (6, 6)}, (), {}),
    "SEAL of 31": r.Seal(31),
    "AMEND of 31 from orders.kafka": r.Amend(31, "orders.kafka", None, (REF,), "gone"),
    "EVOLVE of 31 from orders": r.Evolve(31, "orders", {"note": "STRING"}),
    "ANSWER of 31 in e3": r.Answer(31, 3, {"orders.kafka": b"i"}, {"orders": b"d"}, {}),
    "COMMIT of 31 in e3": r.Commit(31, 3, 7, {"orders.kafka": b"i"}, {"orders": b"d"}),
    "CHECKPOINT at 31": r.Checkpoint(31, 3, "p1", "c1", {"a": 32}, b"s", REF, ("h1",)),
    "CHECKPOINT at the start": r.Checkpoint(None, 3, "p1", "c1", {}, b"", REF, ()),
    "ENDPOINT orders.kafka paused": r.Endpoint("orders.kafka", "paused"),
    "PROGRAM p1": r.Program("p1", "CREATE …", None),
    "BIND orders": r.Bind("orders", "shop.orders", "table"),
    "PROMOTE e3": r.Promote(3, "p1", {}),
    "ABORT h1": r.Abort("h1", "idle for an hour"),
    "RETAIN 100": r.Retain(100),
    "RETAIN all": r.Retain(None),
}


@pytest.mark.parametrize(("text", "record"), EXAMPLES.items())
def test_a_record_is_described_by_its_kind_and_what_it_is_about(text, record):
    assert r.describe(record) == text
    assert text.startswith(r.kind_of(record))


def test_every_kind_of_record_has_an_example_here():
    assert {type(record) for record in EXAMPLES.values()} == set(r.RECORDS)
    assert {r.kind_of(each) for each in r.RECORDS} == set(r.KINDS)


def test_numbers_and_epochs_are_written_one_way():
    assert (r.lsn_text(31), r.epoch_text(3)) == ("#31", "e3")


def test_an_abort_has_no_time():
    assert r.Abort("h1", "by its user").t is None


@pytest.mark.parametrize(
    ("record", "keys"),
    [
        (r.Input(0, "e", "t", None, (r.StagedRef("a", b"", 0, 0), r.StagedRef("b", b"", 0, 0)), {}),
         ["a", "b"]),
        (r.Amend(0, "e", None, (r.StagedRef("c", b"", 0, 0),), ""), ["c"]),
        (r.Program("p", None, r.StagedRef("d", b"", 0, 0)), ["d"]),
        (r.Program("p", "x", None), []),
        (r.Checkpoint(1, 1, "p", "c", {}, b"", r.StagedRef("e", b"", 0, 0), ()), ["e"]),
        (r.Seal(0), []),
    ],
)  # fmt: skip
def test_what_a_record_refers_to(record, keys):
    assert [ref.key for ref in r.refs_of(record)] == keys
