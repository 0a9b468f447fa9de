"""Columns that appear in mid-topic: at one time, on the record, the same for everybody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import strandline
from strandline.errors import NewerFormatError, NotFoundError, UsageError
from strandline.journal.next import Want
from strandline.journal.record import Answer, Evolve, Seal
from strandline.pipeline.evolve import (
    COLUMNS_MAX,
    TYPES,
    addable,
    evolved,
    joined,
    type_of,
    with_added,
    word_of,
)
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig, rigged
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.computing import ArrowComputer
from strandline.testing.engines import arrow_engine
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.views.parse import parse

SETTINGS = PipelineSettings(rows_max=2, delay_ms=0, poll_ms=1)
TEXT = """
CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (envelope '{envelope}', newColumns '{new}');
CREATE MATERIALIZED VIEW some AS SELECT * FROM t WHERE n > 0;
CREATE MATERIALIZED VIEW whole REFRESH FULL AS SELECT * FROM t;
CREATE MATERIALIZED VIEW shares AS SELECT id, 10 / (n - 2) AS share FROM t;
"""
"""`shares` raises for a row that is there before the table gets more columns, and tells of it."""


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def rig_of(
    store: strandline.Store, topic: ScriptedTopic, envelope: str = "upsert", new: str = "add"
) -> Rig:
    text = TEXT.format(envelope=envelope, new=new)
    return rigged(
        store, "shop", parse(text), text, sources={"t": ScriptedSource(topic)},
        computer=ArrowComputer(store, fetch=topic.fetch), settings=SETTINGS,
    )  # fmt: skip


def sent(*values: object) -> ScriptedTopic:
    topic = ScriptedTopic(["0"])
    for value in values:
        topic.send("0", None, json.dumps(value).encode())
    return topic


def settle(*replicas: Replica) -> None:
    idle = 0
    while idle < len(replicas):
        idle = sum(replica.step() > 0 for replica in replicas)


def at(store: strandline.Store, t: int, name: str = "t") -> list[dict[str, object]]:
    shard = next(each for each in store.shards() if each.split(".")[1] == name)
    return store.shard(shard).snapshot(as_of=t).to_arrow().sort_by("id").to_pylist()


ROWS = (
    {"id": 1, "n": 1}, {"id": 2, "n": 2},
    {"id": 3, "n": 3, "note": "new", "size": 1}, {"id": 1, "n": 4, "size": 1.5},
    {"id": 2, "n": 5}, {"id": 4, "n": 6, "note": "x", "size": 2},
)  # fmt: skip


def test_a_column_that_appears_evolves_the_table_at_one_time(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, sent(*ROWS))
        replica = Replica(rig)
        settle(replica)
        assert replica.standing.added == {"t": {"note": "STRING", "size": "DOUBLE"}}
        none = {"note": None, "size": None}
        assert at(store, 0) == [{"id": 1, "n": 1, **none}, {"id": 2, "n": 2, **none}]
        assert at(store, 2) == [
            {"id": 1, "n": 4, "note": None, "size": 1.5},
            {"id": 2, "n": 5, **none},
            {"id": 3, "n": 3, "note": "new", "size": 1.0},
            {"id": 4, "n": 6, "note": "x", "size": 2.0},
        ]
        # Between SEAL and ANSWER of that very time; before it nobody has the columns.
        kinds = [type(record) for _, record in rig.journal.records()]
        first = kinds.index(Evolve)
        assert (kinds[first - 1], kinds[first + 1]) == (Seal, Answer)
        assert kinds.count(Evolve) == 1
        (record,) = (each for _, each in rig.journal.records() if isinstance(each, Evolve))
        assert record.t == 1
        # Views keep the columns that they had.
        for view in ("some", "whole"):
            assert at(store, 2, view) == [
                {"id": key, "n": n} for key, n in ((1, 4), (2, 5), (3, 3), (4, 6))
            ]
        assert [each.noted for each in replay(rig, Planner(rig), 0, 3)] == [()] * 3
        replica.close()


def test_replicas_that_race_and_one_that_comes_later_agree(lab: Lab) -> None:
    topic = sent(*ROWS[:4])
    with new_store(lab) as one, new_store(lab) as two:
        replicas = Replica(rig_of(one, topic)), Replica(rig_of(two, topic))
        settle(*replicas)
        for value in ROWS[4:]:
            topic.send("0", None, json.dumps(value).encode())
        # It opens a table that is wider than it is declared.
        later = Replica(rig_of(two, topic))
        settle(later)
        settle(*replicas)
        assert at(one, 2) == at(two, 2)
        assert replicas[0].standing.added == {"t": {"note": "STRING", "size": "DOUBLE"}}
        for each in (*replicas, later):
            each.close()


def test_whoever_died_after_the_record_is_followed(lab: Lab) -> None:
    topic = sent(*ROWS[:4])
    with new_store(lab) as store:
        replica = Replica(rig_of(store, topic))
        while not replica.standing.added:
            replica.step()
        replica.close()
        assert store.shard("shop.t").schema.names == ["id", "n"]
        again = Replica(rig_of(store, topic))
        settle(again)
        assert store.shard("shop.t").schema.names == ["id", "n", "note", "size"]
        assert at(store, 1)[0] == {"id": 1, "n": 4, "note": None, "size": 1.5}
        again.close()


def test_columns_are_ignored_unless_they_are_asked_for(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store, sent(*ROWS), new="ignore"))
        settle(replica)
        assert replica.standing.added == {}
        assert at(store, 2)[2] == {"id": 3, "n": 3}
        replica.close()


def test_sinks_keep_their_columns(tmp_path: Path) -> None:
    """One that runs while the table gets a column, and one that starts afterwards."""
    folder = tmp_path / "in"
    folder.mkdir()
    text = f"""
    CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING files
      OPTIONS (path '{folder}', transaction 'file', newColumns 'add');
    CREATE SINK one FROM t USING files OPTIONS (path '{tmp_path / "one"}', format 'json');
    """
    later = (
        f"CREATE SINK two FROM t USING files OPTIONS (path '{tmp_path / 'two'}', format 'json');"
    )
    for number, value in enumerate(ROWS):
        (folder / f"{number}.json").write_text(json.dumps(value))
    with strandline.open("memory://", upkeep=False) as store:
        for program in (text, text + later):
            options = {"settings": SETTINGS, "engine": arrow_engine}
            with store.pipeline("shop", program, **options) as pipeline:
                if program != text:
                    pipeline.promote()
                pipeline.run(until_idle=True)
                assert pipeline.query("SELECT note FROM t WHERE id = 4").to_pylist() == [
                    {"note": "x"}
                ]
    for name in ("one", "two"):
        files = [each for each in (tmp_path / name).rglob("*.json*") if "part" in each.name]
        lines = [json.loads(line) for each in files for line in each.read_text().splitlines()]
        assert lines
        assert {key for line in lines for key in line if not key.startswith("_")} == {"id", "n"}


def message(row: dict[str, object], *fields: tuple[str, str]) -> dict[str, object]:
    """A change as Debezium writes it, with the schema of its rows."""
    columns = [{"field": name, "type": kind, "optional": True} for name, kind in fields]
    after = {"field": "after", "type": "struct", "fields": columns}
    schema = {"type": "struct", "fields": [{"field": "op", "type": "string"}, after]}
    return {"schema": schema, "payload": {"op": "c", "before": None, "after": row}}


def test_the_schema_of_a_debezium_message_says_the_type(lab: Lab) -> None:
    ours = (("id", "int64"), ("n", "int32"))
    more = (*ours, ("price", "double"), ("day", "int32"), ("tags", "array"))
    topic = sent(
        message({"id": 1, "n": 1}, *ours),
        message({"id": 2, "n": 2, "price": 3, "day": None, "tags": [1]}, *more),
        message({"id": 3, "n": 3, "price": 2.5, "day": 9, "tags": []}, *more),
    )
    with new_store(lab) as store:
        rig = rig_of(store, topic, "debezium")
        replica = Replica(rig)
        settle(replica)
        # 3 is a whole number, and the schema knows better.
        assert replica.standing.added == {"t": {"day": "BIGINT", "price": "DOUBLE"}}
        assert at(store, 1)[1:] == [
            {"id": 2, "n": 2, "day": None, "price": 3.0}, {"id": 3, "n": 3, "day": 9, "price": 2.5}
        ]  # fmt: skip
        assert [each.noted for each in replay(rig, Planner(rig), 0, 2)] == [()] * 2
        replica.close()


def test_new_dates_timestamps_and_decimals_are_columns_of_their_type(lab: Lab) -> None:
    found = message({"id": 1, "n": 1, "born": 20_513, "at": 1_000_001, "paid": "Ag=="})
    fields = [
        {"type": "int32", "field": "born", "name": "io.debezium.time.Date"},
        {"type": "int64", "field": "at", "name": "io.debezium.time.MicroTimestamp"},
        {
            "type": "bytes",
            "field": "paid",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "1", "connect.decimal.precision": "5"},
        },
    ]
    found["schema"]["fields"][1]["fields"] += fields
    with new_store(lab) as store:
        rig = rig_of(store, sent(found), envelope="debezium")
        replica = Replica(rig)
        settle(replica)
        assert replica.standing.added == {
            "t": {"at": "TIMESTAMP_NTZ", "born": "DATE", "paid": "DECIMAL(5, 1)"}
        }
        (row,) = at(store, 0)
        assert (str(row["born"]), str(row["at"]), str(row["paid"])) == (
            "2026-03-01",
            "1970-01-01 00:00:01.000001",
            "0.2",
        )
        assert [each.noted for each in replay(rig, Planner(rig), 0, 1)] == [()]
        replica.close()


def test_a_debezium_topic_of_a_real_broker_that_changes_on_the_way(broker, topics) -> None:
    ours = (("id", "int64"), ("n", "int32"))
    name = topics.make()
    text = f"""CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING kafka
        OPTIONS (kafka.bootstrap.servers '{topics.address}', subscribe '{name}',
                 envelope 'debezium', newColumns 'add');"""
    first = message({"id": 1, "n": 1}, *ours)
    second = message({"id": 1, "n": 2, "day": None}, *ours, ("day", "int32"))
    with strandline.open("memory://", upkeep=False) as store:
        for value in (first, second):
            topics.write(name, [json.dumps(value).encode()])
            options = {"settings": SETTINGS, "engine": arrow_engine}
            with store.pipeline("shop", text, **options) as pipeline:
                pipeline.run(until_idle=True)
                assert all(each.noted == () for each in pipeline.replay())
        assert at(store, 1) == [{"id": 1, "n": 2, "day": None}]


def test_a_program_that_declares_the_column_goes_on(lab: Lab) -> None:
    topic = sent(*ROWS)
    with new_store(lab) as store:
        replica = Replica(rig_of(store, topic))
        settle(replica)
        replica.close()
        text = TEXT.format(envelope="upsert", new="ignore")
        text = text.replace("n BIGINT,", "n BIGINT, size DOUBLE,")
        before = rig_of(store, topic)
        rig = rigged(
            store, "shop", parse(text), text, sources=before.sources, computer=before.computer,
            settings=SETTINGS,
        )  # fmt: skip
        changed = Replica(rig)
        changed.want(Want.PROMOTE)
        topic.send("0", None, b'{"id": 9, "n": 9, "note": "y", "size": 9}')
        settle(changed)
        assert at(store, changed.standing.next_t - 1)[-1] == {
            "id": 9, "n": 9, "note": "y", "size": 9.0
        }  # fmt: skip
        changed.close()


def test_a_column_that_is_declared_and_never_came_is_added(lab: Lab) -> None:
    topic = sent(*ROWS[:2])
    with new_store(lab) as store:
        before = rig_of(store, topic, new="ignore")
        replica = Replica(before)
        settle(replica)
        replica.close()
        text = before.text.replace("n BIGINT,", "y BIGINT, n BIGINT,")
        rig = rigged(
            store, "shop", parse(text), text, sources=before.sources, computer=before.computer,
            settings=SETTINGS, reopen=lambda *_: {"t": ScriptedSource(topic)},
        )  # fmt: skip
        changed = Replica(rig)
        changed.want(Want.PROMOTE)
        topic.send("0", None, b'{"id": 9, "n": 9, "y": 7}')
        settle(changed)
        last = changed.standing.next_t
        assert at(store, last - 1) == [
            {"id": 1, "n": 1, "y": None}, {"id": 2, "n": 2, "y": None}, {"id": 9, "n": 9, "y": 7}
        ]  # fmt: skip
        assert [each.noted for each in replay(rig, Planner(rig), 0, last)] == [()] * last
        changed.close()


def test_explicit_transactions_and_amendments_have_the_columns_too(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    text = f"""
    CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING files
      OPTIONS (path '{folder}', newColumns 'add');
    """
    (folder / "1.json").write_text('{"id": 1, "n": 1, "x": 5}')
    with (
        strandline.open("memory://", upkeep=False) as store,
        store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine) as pipeline,
    ):
        assert pipeline.declared("t").columns.names == ["id", "n"]
        pipeline.run(until_idle=True)
        assert pipeline.declared("T").columns.names == ["id", "n", "x"]
        with pytest.raises(NotFoundError, match="no table 'u': it has t"):
            pipeline.declared("u")
        with pipeline.transaction() as transaction:
            transaction.insert("t", [{"id": 1, "n": 2, "x": 6}])
        assert pipeline.query("SELECT * FROM t").to_pylist() == [{"id": 1, "n": 2, "x": 6}]
        (folder / "2.json").write_text('{"id": 2, "n": 2}')
        sealed = pipeline.committed.time
        while pipeline.status().sealed is None:
            pipeline.step()
        assert pipeline.fed_by("t").columns.names == ["id", "n", "x"]
        pipeline.amend(sealed, "t", reason="lost", rows=[{"id": 2, "n": 3, "x": 7}])
        pipeline.run(until_idle=True)
        found = pipeline.query("SELECT x FROM t WHERE id = 2").to_pylist()
        assert found == [{"x": 7}]


def test_errors_of_a_view_are_retracted_after_a_column_is_declared(lab: Lab) -> None:
    topic = sent(*ROWS[:4])
    with new_store(lab) as store:
        before = rig_of(store, topic)
        replica = Replica(before)
        settle(replica)
        bound = replica.standing.bindings["shares_errors"].shard
        assert store.shard(bound).snapshot().to_arrow()["row"].to_pylist() == ["t: id = 2, n = 2"]
        replica.close()
        text = TEXT.format(envelope="upsert", new="add")
        text = text.replace("n BIGINT,", "n BIGINT, size DOUBLE,")
        rig = rigged(
            store, "shop", parse(text), text, sources=before.sources, computer=before.computer,
            settings=SETTINGS,
        )  # fmt: skip
        changed = Replica(rig)
        changed.want(Want.PROMOTE)
        topic.send("0", None, b'{"id": 2, "n": 7}')
        settle(changed)
        # The same collection: what it said of the row is what is taken back.
        assert changed.standing.bindings["shares_errors"].shard == bound
        assert store.shard(bound).snapshot().to_arrow().num_rows == 0
        changed.close()


def test_what_can_not_be_a_column_is_left_alone() -> None:
    columns = pa.schema([("id", pa.int64()), ("Name", pa.string())])
    fresh = {"a": "STRING", "NAME": "STRING", "_mine": "STRING", "": "STRING", "b\n": "STRING"}
    assert addable(fresh, columns) == {"a": "STRING"}
    many = {f"c{number}": "BIGINT" for number in range(COLUMNS_MAX)}
    assert len(addable(many, columns)) == COLUMNS_MAX - 2


def test_types_of_new_columns() -> None:
    kinds = {
        pa.bool_(): "BOOLEAN", pa.int16(): "BIGINT", pa.float32(): "DOUBLE", pa.string(): "STRING",
        pa.large_binary(): "BINARY", pa.list_(pa.int64()): None, pa.uint64(): None,
        pa.date32(): "DATE", pa.timestamp("ms"): "TIMESTAMP_NTZ", pa.timestamp("ns"): None,
        pa.timestamp("us", "UTC"): "TIMESTAMP", pa.decimal128(10, 2): "DECIMAL(10, 2)",
        pa.time64("us"): None, pa.decimal256(40, 2): None,
    }  # fmt: skip
    assert {kind: word_of(kind) for kind in kinds} == kinds
    same = [each for each in kinds if each in {*TYPES.values(), pa.decimal128(10, 2)}]
    assert [type_of(word_of(kind)) for kind in same] == same
    with pytest.raises(NewerFormatError, match=r"'TIME'.*upgrade"):
        type_of("TIME")
    found = [{"b": "BIGINT", "a": "STRING"}, {"b": "DOUBLE"}, {"b": "BIGINT", "a": "BOOLEAN"}]
    assert joined(found) == {"a": "STRING", "b": "DOUBLE"}
    assert list(joined(found)) == ["a", "b"]


def test_declared_columns_win_and_views_stay() -> None:
    program = parse(TEXT.format(envelope="upsert", new="add"))
    found = evolved(program, {"t": {"n": "STRING", "x": "BOOLEAN"}})
    assert found.tables[0].columns == pa.schema(
        [*program.tables[0].columns, pa.field("x", pa.bool_())]
    )
    assert found.views == program.views
    assert evolved(program, {}) is program
    assert with_added(program.tables[0].columns, {}) == program.tables[0].columns


def test_a_shard_as_a_source_is_refused_by_name() -> None:
    with strandline.open("memory://", upkeep=False) as store:
        store.shard("s", pa.schema([("id", pa.int64())]))
        text = "CREATE TABLE t (id BIGINT) USING strandline OPTIONS (shard 's', newColumns 'add');"
        with (
            store.pipeline("p", text, engine=arrow_engine) as pipeline,
            pytest.raises(UsageError, match="newColumns 'add' is not built for shards"),
        ):
            pipeline.run(until_idle=True)
