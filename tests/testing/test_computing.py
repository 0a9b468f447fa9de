"""The computer of plain Arrow: errors are data, and views are what their queries say."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import strandline
from strandline.connectors.raw import raw_batch
from strandline.journal.staging import stage
from strandline.pipeline.catalog import collections
from strandline.pipeline.compute import Intake, Work
from strandline.pipeline.meaning import packed_rows
from strandline.testing.computing import ArrowComputer, linear_changes
from strandline.views.parse import parse

TABLE = "CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING generator;"
VIEW = parse(TABLE + "CREATE MATERIALIZED VIEW v AS SELECT id, 10 DIV n AS q FROM t;").views[0]


def _changes(*rows: tuple[int, int, int]) -> dict[str, pa.Table]:
    ids, numbers, diffs = zip(*rows, strict=True)
    return {"t": pa.table({"id": ids, "n": numbers, "_diff": diffs})}


def test_a_row_that_raises_is_an_error_and_the_others_count() -> None:
    good, bad = linear_changes(VIEW, _changes((1, 5, 1), (2, 0, 1)))
    assert good.to_pylist() == [{"id": 1, "q": 2, "_diff": 1}]
    assert [(row["row"], row["_diff"]) for row in bad.to_pylist()] == [("t: id = 2, n = 0", 1)]


def test_an_error_goes_when_its_row_goes() -> None:
    _, came = linear_changes(VIEW, _changes((2, 0, 1)))
    _, gone = linear_changes(VIEW, _changes((2, 0, -1), (2, 5, 1)))
    assert came.drop_columns(["_diff"]) == gone.drop_columns(["_diff"])
    assert gone["_diff"].to_pylist() == [-1]


class Customers:
    """One table that is fed by Debezium, moved on one transaction after the other."""

    def __init__(self, store, options=""):
        text = (
            "CREATE TABLE c (id BIGINT, name STRING, note STRING, lsn BIGINT, PRIMARY KEY (id)) "
            f"USING generator OPTIONS (envelope 'debezium'{options});"
        )
        self.store, self.time, self.offset = store, 0, 0
        self.program, self.computer = parse(text), ArrowComputer(store)
        self.shards = {}
        for each in collections("shop", self.program, {}):
            store.shard(each.shard, each.columns, each.key)
            self.shards[each.name] = each.shard

    def run(self, *messages, wrapped=False):
        """Messages are (partition, key, value); partitions may be left out."""
        refs = []
        for message in messages:
            partition, key, value = message if len(message) == 3 else ("0", *message)
            if wrapped and value is not None:
                value = {"schema": {"type": "struct"}, "payload": value}
            encoded = None if value is None else json.dumps(value).encode()
            keys = [None if key is None else json.dumps({"id": key}).encode()]
            batch = raw_batch([encoded], partition, [self.offset], keys=keys)
            refs.append(stage(self.store.env, "shop", packed_rows(pa.Table.from_batches([batch]))))
            self.offset += 1
        intake = Intake("c", "c", staged=tuple(refs))
        work = Work("shop", self.time, 0, self.program, (intake,), self.shards)
        found = self.computer.compute(work)
        for name, shard in self.shards.items():
            with self.store.shard(shard).writer() as writer:
                if name in found.deltas:
                    bounds = {"lower": self.time, "upper": self.time + 1}
                    writer.compare_and_append(found.deltas[name].updates, **bounds)
                else:
                    writer.advance(self.time + 1)
        self.time += 1

    def rows(self, name="c"):
        with self.store.shard(self.shards[name]).snapshot(as_of=self.time - 1) as snapshot:
            return sorted(snapshot.to_arrow().to_pylist(), key=str)

    def names(self):
        return {row["id"]: (row["name"], row["note"]) for row in self.rows()}


@pytest.fixture
def store():
    with strandline.open("memory://", upkeep=False) as made:
        yield made


def after(op, key, name="a", note="n", lsn=None):
    row = {"id": key, "name": name, "note": note}
    return key, {"op": op, "before": None, "after": row, "source": {"lsn": lsn}, "ts_ms": 1}


def gone(key, lsn=None):
    return key, {"op": "d", "before": {"id": key}, "after": None, "source": {"lsn": lsn}}


def truncated(lsn=None):
    return None, {"op": "t", "before": None, "after": None, "source": {"lsn": lsn}}


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "with its schema"])
@pytest.mark.parametrize("options", ["", ", sequenceBy 'lsn'"], ids=["source order", "sequence"])
def test_debezium_as_it_is_found(store, options, wrapped):
    shop = Customers(store, options)
    shop.run(after("r", 1, lsn=1), after("r", 2, lsn=1), after("c", 3, lsn=2), wrapped=wrapped)
    kept = after("u", 1, "b", "__debezium_unavailable_value", lsn=3)
    # A tombstone for Kafka's compaction follows each deletion.
    shop.run(kept, gone(2, lsn=4), (2, None), (None, {"op": "m"}), wrapped=wrapped)
    assert shop.names() == {1: ("b", "n"), 3: ("a", "n")}
    shop.run(after("c", 4, lsn=5), truncated(6), after("c", 3, "c", lsn=7), wrapped=wrapped)
    assert shop.names() == {3: ("c", "n")}
    # Nothing is left to keep it from.
    late = after("u", 1, "d", "__debezium_unavailable_value", lsn=8)
    shop.run(late, (7, {"op": "c", "after": {"id": "x"}}), wrapped=wrapped)
    assert shop.names() == {1: ("d", None), 3: ("c", "n")}
    assert len(shop.rows("c_errors")) == 1
    shop.run(truncated(9), wrapped=wrapped)
    assert shop.rows() == shop.rows("c_errors") == []


def test_without_a_sequence_partitions_are_in_the_order_of_their_names(store):
    shop = Customers(store)
    shop.run(("0", *after("c", 1)), ("2", *after("c", 2)))
    # Of its own transaction, what is in earlier partitions comes before it, later ones after it.
    shop.run(
        ("2", *after("c", 3)), ("1", *after("c", 4)), ("1", *truncated()), ("0", *after("c", 5)),
        ("1", *after("c", 6)),
    )  # fmt: skip
    assert list(shop.names()) == [3, 6]


def test_with_a_sequence_partitions_and_transactions_do_not_matter(store):
    shop = Customers(store, ", sequenceBy 'lsn'")
    shop.run(("0", *after("c", 1, lsn=1)), ("1", *truncated(5)), ("0", *after("c", 2, lsn=6)))
    shop.run(("2", *after("c", 3, lsn=4)), ("0", *truncated(3)), ("2", *after("c", 4, lsn=5)))
    assert list(shop.names()) == [2, 4]
    assert shop.rows("c_floor") == [{"lsn": 5}]
    shop.run((None, {"op": "t"}))
    assert list(shop.names()) == [2, 4]
    assert [row["reason"] for row in shop.rows("c_errors")] == [
        "op t has no 'lsn', so no place in the order that sequenceBy gives"
    ]
