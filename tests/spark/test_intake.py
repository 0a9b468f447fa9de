"""One order: what came, its digest, and what is wrong with it."""

from __future__ import annotations

import json
from hashlib import blake2b

import pytest
from msgspec.structs import replace
from tests.spark.transactions import raw
from tests.spark.workbench import SCHEMA, bench

from strandline.errors import CorruptionError
from strandline.journal.record import StagedRef
from strandline.model.digest import Digest
from strandline.pipeline.meaning import ERROR_SCHEMA, input_digest, packed_rows
from strandline.spark import slices
from strandline.spark.intake import Order, Piece, Taking

GOOD = [(b"1", b'{"k": 1, "v": "a"}'), (b"2", None)]
BAD = [(b"3", b"{")]


def taken(messages, most=10**6, **changed):
    made = bench()
    payload = packed_rows(raw(messages))
    made.blob.put("staged", payload)
    ref = StagedRef("staged", blake2b(payload, digest_size=16).digest(), 0, len(payload))
    columns = SCHEMA.arrow().serialize().to_pybytes()
    pieces = (Piece(staged=ref),)
    order = Order(3, "shop", 5, pieces, columns, ("k",), {"envelope": "upsert"}, b"", b"")
    order = replace(order, **changed)
    return Taking(order, made, bench(made.blob, ERROR_SCHEMA), str).take(most)


def test_good_rows_come_back_with_the_digest_of_all():
    took = taken(GOOD + BAD)
    rows = slices.from_stream(took.rows.rows, "rows").to_pylist()
    assert [(row["k"], row["v"], row["_delete"]) for row in rows] == [
        (1, "a", False),
        (2, None, True),
    ]
    assert took.bad is not None
    assert (took.intake, took.bad[:3], took.errors.rows) == (3, (1, "0", 2), b"")
    assert Digest.unpack(took.digest) == input_digest(raw(GOOD + BAD))


def test_ids_are_taken_where_they_are_asked_for_and_rows_where_they_are():
    took = taken(GOOD + BAD, takes_ids=True, takes_rows=False)
    ids = slices.from_stream(took.errors.rows, "ids").to_pylist()
    assert [(row["id"], row["_delete"]) for row in ids] == [
        (b"1", True),
        (b"2", True),
        (b"3", False),
    ]
    assert took.rows.rows == b""


def test_many_rows_are_put_by_place_and_appended_ones_as_parts():
    assert taken(GOOD, most=0).rows.staged
    many = [(None, json.dumps({"k": key, "v": "a"}).encode()) for key in range(3)]
    took = taken(many, most=0, key=(), options={"envelope": "append"})
    assert sum(part.rows for part in took.rows.parts) == 3


def test_a_staged_object_that_was_changed_is_refused():
    ref = StagedRef("staged", b"0" * 16, 0, 3)
    with pytest.raises(CorruptionError, match="damaged"):
        taken(GOOD, pieces=(Piece(staged=ref),))
