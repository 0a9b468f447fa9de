"""Options of the data source: what they mean, and what is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from strandline.errors import BoundsError, NameRefusedError, UsageError
from strandline.spark.source_delete import DeleteWhen
from strandline.spark.source_options import (
    Feed,
    Options,
    Place,
    Scan,
    StreamRead,
    Write,
    checkpoint_name,
)

AT = {"path": "/lake", "table": "orders"}
PLACE = Place("/lake", "orders")


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"path": "/lake/orders"}, Place("/lake", "orders")),
        ({"path": "/lake/orders/"}, Place("/lake", "orders")),
        ({"path": "/lake", "table": "sales.orders"}, Place("/lake", "sales.orders")),
        ({"path": "file:/lake%20one", "table": "orders"}, Place("/lake one", "orders")),
        ({"path": "file:///lake/orders"}, Place("file:///lake", "orders")),
        ({"path": "lake/orders"}, Place("lake", "orders")),
    ],
)
def test_a_path_names_a_store_and_a_table(given, place):
    assert Options(given).place() == place


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({}, UsageError, "no path"),
        ({"path": "orders"}, UsageError, "names a table but no store"),
        ({"path": "memory://", "table": "orders"}, UsageError, "belongs to one process"),
        ({"path": "/lake", "table": "../x"}, NameRefusedError, "table name"),
    ],
)
def test_a_place_that_is_none_is_refused(given, error, told):
    with pytest.raises(error, match=told):
        Options(given).place()


def test_each_use_understands_its_own_options():
    names = {"VERSIONASOF": "7", "columns": "a, b", "leaseMs": "5", "maxPartitionBytes": "9999"}
    assert Options({**AT, **names}).scan() == Scan(PLACE, ("a", "b"), 7, None, 5, 9999)
    feed = {"readChangeFeed": "true", "startingVersion": "2", "endingVersion": "3"}
    assert Options({**AT, **feed}).feed() == Feed(PLACE, None, 2, 3)
    limits = {"startingVersion": "1", "maxRowsPerTrigger": "10", "maxVersionsPerTrigger": "2"}
    assert Options({**AT, **limits}).stream_read() == StreamRead(
        PLACE, start=1, max_rows=10, max_versions=2
    )
    upsert = {"keys": "k", "sequenceBy": "s,t", "deleteWhen": "op = 'D'"}
    found = Options({**AT, **upsert, "txnAppId": "job", "txnVersion": "0"}).write(overwrite=False)
    assert found == Write(PLACE, ("k",), ("s", "t"), DeleteWhen("op", "D"), "job", 0)
    assert found.extra == ("s", "t", "op")


def test_an_instant_has_a_time_zone():
    found = Options({**AT, "timestampAsOf": "2026-01-31T12:00:00Z"}).scan()
    assert found.timestamp == datetime(2026, 1, 31, 12, tzinfo=UTC)
    with pytest.raises(UsageError, match="no time zone"):
        Options({**AT, "timestampAsOf": "2026-01-31 12:00"}).scan()


@pytest.mark.parametrize(
    ("use", "given", "told"),
    [
        ("scan", {"foo": "1"}, "unknown option 'foo': for batch reads there are columns"),
        ("scan", {"keys": "k"}, "option keys is for batch writes and streaming writes"),
        ("scan", {"versionAsOf": "-1"}, "versionAsOf is '-1'"),
        ("scan", {"versionAsOf": "1", "timestampAsOf": "2026-01-31T12:00Z"}, "leave one"),
        ("scan", {"timestampAsOf": "yesterday"}, "write it like"),
        ("scan", {"columns": "a,,b"}, "joined by commas"),
        ("scan", {"leaseMs": "0"}, "whole number >= 1"),
        ("feed", {"readChangeFeed": "true"}, "needs startingVersion"),
        ("stream_read", {"versionAsOf": "1"}, "versionAsOf is for batch reads"),
        ("stream_read", {"readChangeFeed": "maybe"}, "write true or false"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(use, given, told):
    with pytest.raises(UsageError, match=told):
        getattr(Options({**AT, **given}), use)()


@pytest.mark.parametrize(
    ("use", "given", "told"),
    [
        ("write", {"sequenceBy": "s"}, "give keys"),
        ("write", {"txnAppId": "a"}, "go together"),
        ("write", {"versionAsOf": "1"}, "for batch reads, not for batch writes"),
        ("write", {"checkpointLocation": "/cp"}, "for streaming writes"),
        ("sink", {}, "needs option\\('txnAppId'"),
        ("sink", {"txnAppId": "a", "txnVersion": "1"}, "txnVersion is for batch writes"),
    ],
)
def test_writes_refuse_what_they_do_not_know(use, given, told):
    with pytest.raises(UsageError, match=told):
        getattr(Options({**AT, **given}), use)(overwrite=False)


def test_versions_of_a_feed_come_in_order():
    with pytest.raises(BoundsError, match="comes before"):
        Options({**AT, "startingVersion": "3", "endingVersion": "2"}).feed()


def test_overwriting_is_refused_with_what_to_do_instead():
    refused = r"mode overwrite is refused.*option\('keys'"
    with pytest.raises(UsageError, match=refused):
        Options(AT).write(overwrite=True)
    with pytest.raises(UsageError, match=refused):
        Options({**AT, "checkpointLocation": "/cp"}).sink(overwrite=True)


def test_a_sink_is_known_by_its_name_or_by_its_checkpoint():
    by_checkpoint = Options({**AT, "checkpointLocation": "/cp"}).sink(overwrite=False)
    assert by_checkpoint.app == "/cp"
    named = Options({**AT, "checkpointLocation": "/cp", "txnAppId": "a"})
    both = named.sink(overwrite=False)
    assert both.app == "a"


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/data/cp", "/data/cp"),
        ("/data/cp/", "/data/cp"),
        ("//data//./x/../cp", "/data/cp"),
        ("file:/data/cp", "/data/cp"),
        ("file:///data/cp/", "/data/cp"),
        ("FILE:/data/cp", "/data/cp"),
        ("hdfs:///data/cp", "hdfs:///data/cp"),
        ("/data/c%20p", "/data/c%20p"),
        ("s3a://bucket/cp/", "s3a://bucket/cp"),
        ("s3a://bucket//cp", "s3a://bucket/cp"),
        ("dbfs:/cp/", "dbfs:/cp"),
    ],
)
def test_all_spellings_of_a_checkpoint_are_one_name(location, name):
    assert checkpoint_name(location) == name


@pytest.mark.parametrize("location", ["cp", "./cp/", "../cp", "file:cp"])
def test_a_checkpoint_that_is_somewhere_else_for_every_process_is_refused(location):
    given = {**AT, "checkpointLocation": location}
    with pytest.raises(UsageError, match=r"is relative.*give an absolute path, or .*txnAppId"):
        Options(given).sink(overwrite=False)
    assert Options({**given, "txnAppId": "a"}).sink(overwrite=False).app == "a"


def test_a_sink_is_known_by_its_checkpoint_however_it_is_spelled():
    for location in ("/cp/", "file:///cp"):
        options = Options({**AT, "checkpointLocation": location})
        assert options.sink(overwrite=False).app == "/cp"


def test_a_table_of_a_catalog_remembers_its_options_and_forgets_what_spark_added():
    given = {**AT, "provider": "strandline", "owner": "me", "option.table": "orders"}
    created = Options(given)
    assert created.in_catalog
    asked = Options({"columns": "a"})
    assert not asked.named
    assert asked.over(created.remembered()).scan() == Scan(PLACE, ("a",))
