"""S32 and S33 for pipelines: what upserts mean, however they are spread over transactions.

A row of S33 is one transaction. A value that can't be decoded is a row of `<table>_errors`, and a
table's key is in the message's key, so that a deletion has one.
"""

from __future__ import annotations

import itertools
import json

import pytest
from tests.pipeline.shop import run

from strandline.handles.store import Store
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import rigged
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.views.parse import parse

UPSERT = "CREATE TABLE t (k BIGINT, v BIGINT, PRIMARY KEY (k)) USING generator;"
DEBEZIUM = """CREATE TABLE t (k BIGINT, v BIGINT, lsn BIGINT, PRIMARY KEY (k)) USING generator
  OPTIONS (envelope 'debezium', sequenceBy 'lsn');"""
BAD = b"no json"
Message = tuple[bytes | None, bytes | None]


class Stream:
    """A table of a pipeline in memory, fed by a topic; replicas of it come and go."""

    def __init__(self, store: Store, text: str, rows_max: int = 1_000) -> None:
        self.store, self.text, self.rows_max = store, text, rows_max
        self.topic = ScriptedTopic(["0", "1"])
        self.upto = 0

    def send(self, *messages: Message, partition: str = "0") -> None:
        for key, value in messages:
            self.topic.send(partition, key, value)

    def run(self) -> None:
        """A new replica takes all that there is, and goes."""
        rig = rigged(
            self.store,
            "shop",
            parse(self.text),
            self.text,
            sources={"t": ScriptedSource(self.topic)},
            computer=ArrowComputer(self.store, fetch=self.topic.fetch),
            settings=PipelineSettings(rows_max=self.rows_max, delay_ms=0, poll_ms=1),
        )
        replica = Replica(rig)
        run(replica)
        self.upto = replica.standing.next_t
        replica.close()

    def rows(self, name: str, t: int) -> list[dict[str, object]]:
        shard = next(each for each in self.store.shards() if each.split(".")[1] == name)
        with self.store.shard(shard).snapshot(as_of=t) as snapshot:
            return snapshot.to_arrow().to_pylist()

    def content(self, t: int | None = None) -> dict[object, object]:
        found = self.rows("t", self.upto - 1 if t is None else t)
        assert len({row["k"] for row in found}) == len(found), "a key is there twice"
        return {row["k"]: row["v"] for row in found}

    def errors(self, t: int) -> int:
        return len(self.rows("t_errors", t))


def change(key: int, lsn: int, value: int | None) -> Message:
    """What Debezium says of a row that came or went."""
    row = {"k": key, "v": value, "lsn": lsn}
    before, after = (row, None) if value is None else (None, row)
    said = {"op": "d" if value is None else "u", "before": before, "after": after}
    said["source"] = {"lsn": lsn}
    return json.dumps({"k": key}).encode(), json.dumps(said).encode()


@pytest.mark.parametrize("rows_max", [1, 2, 3])
@pytest.mark.parametrize(("last", "content"), [(2, {1: 2}), (None, {})])
def test_s32_of_two_changes_of_a_key_the_later_one_counts_however_they_come(
    rows_max: int, last: int | None, content: dict[int, int]
) -> None:
    changes = [change(1, 10, 1), change(1, 12, last), change(2, 11, 7)]
    for order, cut in itertools.product(itertools.permutations(changes), range(4)):
        with new_store(Lab()) as store:
            stream = Stream(store, DEBEZIUM, rows_max)
            stream.send(*order[:cut])
            stream.send(*order[cut:], partition="1")
            stream.run()
            assert stream.content() == {**content, 2: 7}, (order, cut)


def put(key: int | None, value: int | bytes | None) -> Message:
    said = json.dumps({"k": key, "v": value}).encode() if isinstance(value, int) else value
    return None if key is None else str(key).encode(), said


SEMANTICS = {
    "a deletion of a key that is not there says nothing": (
        [[put(1, None)]],
        [{}],
        [0],
    ),
    "a key can be deleted and come again": (
        [[put(1, 5)], [put(1, None)], [put(1, 6)]],
        [{1: 5}, {}, {1: 6}],
        [0, 0, 0],
    ),
    "the same value again changes nothing": (
        [[put(1, 5)], [put(1, 5)]],
        [{1: 5}, {1: 5}],
        [0, 0],
    ),
    "several of a key in one transaction: the last offset counts": (
        [[put(1, 5), put(2, 1), put(1, None), put(1, 7), put(2, None)]],
        [{1: 7}],
        [0],
    ),
    "a null key is an error row for good": (
        [[put(None, b'{"k": null, "v": 1}')], [put(1, 5)]],
        [{}, {1: 5}],
        [1, 1],
    ),
    "a value that can't be decoded is an error row until the next good one": (
        [[put(1, 5)], [put(1, BAD)], [put(1, 6)]],
        [{1: 5}, {1: 5}, {1: 6}],
        [0, 1, 0],
    ),
    "a deletion heals too": (
        [[put(1, BAD)], [put(1, None)]],
        [{}, {}],
        [1, 0],
    ),
    "of one transaction the last decides whether there is an error": (
        [[put(1, BAD), put(1, 5), put(2, 5), put(2, BAD)]],
        [{1: 5, 2: 5}],
        [1],
    ),
}


@pytest.mark.parametrize("name", SEMANTICS)
def test_s33_upserts_mean(lab: Lab, name: str) -> None:
    steps, contents, errors = SEMANTICS[name]
    with new_store(lab) as store:
        stream = Stream(store, UPSERT)
        for number, messages in enumerate(steps):
            # Each step is for another replica, which knows only what the store does.
            stream.send(*messages)
            stream.run()
            assert stream.upto == number + 1
        for t, (content, wrong) in enumerate(zip(contents, errors, strict=True)):
            assert stream.content(t) == content, f"at {t}"
            assert stream.errors(t) == wrong, f"errors at {t}"


def test_s33_an_identical_value_is_no_update(lab: Lab) -> None:
    with new_store(lab) as store:
        stream = Stream(store, UPSERT)
        for messages in ([put(1, 5)], [put(1, 5)], [put(2, None)]):
            stream.send(*messages)
            stream.run()
        (shard,) = [each for each in store.shards() if each.split(".")[1] == "t"]
        assert sum(batch.rows for batch in store.shard(shard).state().batches) == 1


def test_s33_an_update_after_a_restart_retracts_what_came_in_several_transactions(
    lab: Lab,
) -> None:
    with new_store(lab) as store:
        stream = Stream(store, UPSERT)
        for key in range(3):
            stream.send(put(key, 1))
            stream.run()
        stream.send(put(0, 2), put(2, None))
        stream.run()
        assert stream.content() == {0: 2, 1: 1}
