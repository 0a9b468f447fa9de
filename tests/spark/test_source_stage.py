"""What tasks of a write stage, and what they tell."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import strandline
from strandline.errors import SchemaError
from strandline.model.digest import Digest
from strandline.model.schema import Schema
from strandline.spark.instruction import decode_answer, encode_ground, make_ground
from strandline.spark.source_delete import DeleteWhen
from strandline.spark.source_options import Place, Write
from strandline.spark.source_stage import Digested, Task, digest_of, staged, upsert_rows
from strandline.spark.source_store import Term

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
SCHEMA = Schema.create(COLUMNS, ("k",))
TERM = Term("w" + "1" * 32, "0.0", 1)


@pytest.fixture
def task(tmp_path):
    strandline.open(str(tmp_path / "lake"), upkeep=False).close()

    def made(**options):
        shard_id = "s" + "2" * 32
        limits = (32_768, 1_000_000, 10**8)
        ground = make_ground(SCHEMA, shard=("t", shard_id), writer=TERM.writer, limits=limits)
        write = Write(Place(str(tmp_path / "lake"), "t"), **options)
        return Task(write, encode_ground(ground, ""), TERM)

    return made


def batch(**columns):
    return pa.record_batch(columns)


def test_few_rows_travel_in_the_message_and_many_are_put(task, monkeypatch):
    rows = [batch(v=["a", "b"], k=[1, 2])]
    few = task().stage(iter(rows))
    answer = decode_answer(few.answer, "s" + "2" * 32)
    assert answer.rows
    assert not answer.parts
    monkeypatch.setattr("strandline.spark.source_stage.RETURNED_BYTES", 0)
    (part,) = decode_answer(task().stage(iter(rows)).answer, "s" + "2" * 32).parts
    assert part.untimed
    assert part.key.startswith(f"{'s' + '2' * 32}/{TERM.writer}/")
    (rows_by_place,) = decode_answer(
        task(keys=("k",)).stage(iter(rows)).answer, "s" + "2" * 32
    ).staged
    assert rows_by_place.key.startswith(f"{'s' + '2' * 32}/{TERM.writer}/")


def test_the_digest_of_an_upsert_is_of_what_came_in_whatever_the_tasks(task):
    upsert = task(keys=("k",))
    whole = upsert.stage(iter([batch(k=[1, 2, 3], v=["a", "b", "c"])]))
    parts = [
        upsert.stage(iter([batch(k=[3], v=["c"])])),
        upsert.stage(iter([batch(k=[2], v=["b"]), batch(k=[1], v=["a"])])),
    ]
    other = upsert.stage(iter([batch(k=[1, 2, 3], v=["a", "b", "x"])]))
    assert digest_of([whole]) == digest_of(parts) != digest_of([other])
    assert digest_of([]) == Digest.ZERO


@pytest.mark.parametrize("column", ["gone", "n"])
def test_the_digest_of_an_upsert_is_of_deletions_and_of_the_order_too(task, column):
    upsert = task(keys=("k",), sequence_by=("n",), delete_when=DeleteWhen("gone", "D"))
    rows = {"k": [1], "v": ["a"], "gone": ["U"], "n": ["1"]}
    one, other = batch(**rows), batch(**rows | {column: ["D"]})
    assert digest_of([upsert.stage([one])]) != digest_of([upsert.stage([other])])


def test_a_column_of_nulls_that_the_table_got_since_changes_no_digest():
    options = Write(Place("/l", "t"), ("k",), sequence_by=("n",), delete_when=DeleteWhen("op", "D"))
    given = batch(op=["D", "U"], k=[1, 2], n=[5, 6], v=[None, "b"])

    def digest_under(schema, given):
        digested = Digested(schema)
        list(digested.over(upsert_rows([given], options, schema)))
        return digested.total

    wider = SCHEMA.evolve(pa.schema([*COLUMNS, ("x", pa.int32())]))
    nulls = given.append_column("x", pa.nulls(2, pa.int32()))
    assert digest_under(SCHEMA, given) == digest_under(wider, nulls)
    values = given.append_column("x", pa.array([None, 1], pa.int32()))
    assert digest_under(SCHEMA, given) != digest_under(wider, values)


def test_the_digest_of_an_upsert_is_the_same_for_ever():
    """It is on record with each micro-batch: in the first form once, and in the second now."""
    options = Write(Place("/l", "t"), ("k",), sequence_by=("n",), delete_when=DeleteWhen("op", "D"))
    digested = Digested(SCHEMA)
    given = batch(op=["D", "U"], k=[1, 2], n=[5, 6], v=[None, "b"])
    list(digested.over(upsert_rows([given], options, SCHEMA)))
    assert str(digested.former) == "2:bd3f8c0d76a4416a9660b2919da352c2"
    assert str(digested.total) == "2:584aaeea5a82822a77d87721b6ffb107"


def test_rows_of_an_upsert_say_which_is_last_and_which_deletes():
    options = Write(Place("/l", "t"), ("k",), sequence_by=("n",), delete_when=DeleteWhen("op", "D"))
    given = batch(op=["D", "U"], k=[1, 2], n=[5, 6], v=[None, "b"])
    (found,) = upsert_rows([given], options, SCHEMA)
    assert found.to_pylist() == [
        {"k": 1, "v": None, "_delete": True, "_order0": 5},
        {"k": 2, "v": "b", "_delete": False, "_order0": 6},
    ]
    several = Write(Place("/l", "t"), ("k",), sequence_by=("op", "n"))
    (found,) = upsert_rows([given], several, SCHEMA)
    assert found.to_pylist()[0] == {"k": 1, "v": None, "_order0": "D", "_order1": 5}


def test_rows_pass_a_digest_unchanged():
    digested = Digested(SCHEMA)
    given = [batch(k=np.arange(3)), batch(k=np.arange(2))]
    assert list(digested.over(given)) == given
    assert digested.total.count == 5


def test_a_null_in_a_key_stops_the_task_that_has_it(task):
    with pytest.raises(SchemaError):
        task().stage(iter([batch(k=pa.array([None], pa.int64()), v=["a"])]))


def test_messages_of_failed_tasks_are_left_out(task):
    message = task().stage(iter([]))
    assert staged([None, message]) == [message]
