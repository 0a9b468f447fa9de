"""A sink's options: understood, or refused by name; what librdkafka is told follows from them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from strandline.connectors.kafka_target import (
    progress_topic,
    target_of,
    transactional_id,
    writer_settings,
)
from strandline.connectors.sink import Address, Delivered
from strandline.errors import UsageError

ADDRESS = Address("l0", "shop", "out", "first")
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
WHAT = Delivered(ADDRESS, COLUMNS)
SERVERS = "kafka.bootstrap.servers"
LEAST = {SERVERS: "host:9092", "topic": "out", "envelope": "changes"}


def test_little_has_to_be_said() -> None:
    target = target_of(LEAST, WHAT)
    assert (target.topic, target.partitions, target.form.key) == ("out", 0, ())
    assert target.progress == progress_topic(ADDRESS)
    assert target.form.columns == ("id", "name")


def test_all_may_be_said() -> None:
    target = target_of(
        {
            **LEAST,
            "envelope": "debezium",
            "key": "name, id",
            "headers": "id",
            "tombstones": "false",
            "partitions": "3",
            "progressTopic": "mine",
        },
        WHAT,
    )
    assert (target.progress, target.partitions) == ("mine", 3)
    form = target.form
    assert (form.key, form.headers, form.tombstones) == (("name", "id"), ("id",), False)


def test_rows_come_in_order_of_the_key_that_the_collection_has() -> None:
    upserts = {**LEAST, "envelope": "upsert"}
    own = target_of(upserts, replace(WHAT, key=("id",))).form
    assert (own.key, own.ordered) == (("id",), True)
    other = target_of({**upserts, "key": "name"}, replace(WHAT, key=("id",))).form
    assert (other.key, other.ordered) == (("name",), False)
    assert not target_of({**upserts, "key": "id"}, WHAT).form.ordered


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": ""}, "needs the option topic"),
        ({"topic": "a b"}, "option topic is 'a b'"),
        ({"topic": "x" * 250}, "option topic"),
        ({"progressTopic": "é"}, "option progressTopic"),
        ({"envelope": "avro"}, "upsert, debezium, changes"),
        ({"envelope": ""}, "option envelope"),
        ({"envelope": "upsert"}, "needs a key"),
        ({"envelope": "debezium"}, "needs a key"),
        ({"key": "nothing"}, "option key names 'nothing'"),
        ({"key": "id,id"}, "a column twice"),
        ({"headers": "id,"}, "option headers names ''"),
        ({"tombstones": "false"}, "of envelope debezium alone"),
        ({"partitions": "0"}, "option partitions"),
        ({"subscribe": "x"}, "topic 'name'"),
        ({"format": "json"}, "values are JSON"),
        ({"whatever": "x"}, "whatever"),
        ({SERVERS: ""}, "kafka.bootstrap.servers"),
        ({"kafka.transactional.id": "x"}, "Strandline's to set"),
        ({"kafka.acks": "1"}, "Strandline's to set"),
        ({"kafka.enable.idempotence": "false"}, "Strandline's to set"),
        ({"kafka.isolation.level": "read_uncommitted"}, "Strandline's to set"),
        ({"kafka.plugin.library.paths": "x"}, "run or load programs"),
        ({"kafka.sasl.password": "hunter2"}, "holds a secret"),
    ],
)
def test_what_can_not_be_right_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        target_of({**LEAST, **given}, WHAT)
    assert "hunter2" not in str(refused.value)


def test_sinks_have_progress_topics_of_their_own_and_lineages_share_them() -> None:
    mine = progress_topic(ADDRESS)
    assert mine.startswith("strandline-progress-shop-out-")
    assert progress_topic(replace(ADDRESS, lineage="second")) == mine
    for other in ({"store": "l1"}, {"pipeline": "bank"}, {"sink": "in"}):
        assert progress_topic(replace(ADDRESS, **other)) != mine
    strange = progress_topic(Address("l0", "a/b é" * 100, "\n" * 300, "x"))
    target_of({**LEAST, "progressTopic": strange}, WHAT)


def test_a_transactional_id_is_of_store_pipeline_sink_and_lineage() -> None:
    ids = {
        transactional_id(replace(ADDRESS, **{name: "x"}))
        for name in ("store", "pipeline", "sink", "lineage")
    }
    assert len({*ids, transactional_id(ADDRESS)}) == 5


def test_librdkafka_is_told_what_exactly_once_needs() -> None:
    options = {
        **LEAST,
        "kafka.compression.type": "lz4",
        "kafka.sasl.password": "env:PASSWORD",
        "kafka.fetch.max.bytes": "1",
    }
    told = writer_settings(target_of(options, WHAT), lambda value: f"<{value}>", "id")
    assert (told["transactional.id"], told["acks"]) == ("id", "all")
    assert told["enable.idempotence"] is True
    assert told["partitioner"] == "murmur2_random"
    assert told["compression.type"] == "<lz4>"
    assert told["sasl.password"] == "<env:PASSWORD>"
    assert "fetch.max.bytes" not in told
    assert "isolation.level" not in told
