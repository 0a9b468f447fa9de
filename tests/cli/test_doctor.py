"""The doctor finds what is there and what is not, and leaves nothing behind."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from strandline.assembly import open_store


def findings(ask, *arguments, code=0):
    said = ask("doctor", *arguments, "--json")
    assert (said.code, said.err) == (code, "")
    found = json.loads(said.out)
    assert found["well"] == (code == 0)
    return {each["what"]: each for each in found["findings"]}


def test_a_machine_without_a_store_is_examined(ask):
    found = findings(ask)
    assert list(found) == [
        "python",
        "pyarrow",
        "polars",
        "numpy",
        "msgspec",
        "pyspark",
        "java",
        "spark's traffic",
        "memory",
        "open files",
        "lease helper",
    ]
    assert found["lease helper"]["status"] == "ok"


def test_a_machine_without_java_is_well_and_is_told_what_spark_needs(ask, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = findings(ask)
    assert found["java"]["status"] == "warn"
    assert str(tmp_path) in found["java"]["advice"]


def test_a_store_is_examined_and_left_as_it_was(ask, lake):
    def names():
        return {path.name for path in Path(lake).iterdir()} - {
            "consensus.db-wal",
            "consensus.db-shm",
        }

    before = names()
    found = findings(ask, lake)
    assert {"store", "space", "writable", "disk", "sqlite", "shards", "clock"} <= set(found)
    assert found["shards"]["found"] == "all 3 can be opened"
    assert names() == before
    with open_store(lake, upkeep=False) as store:
        assert store.shard("orders").state().readers == {}


def test_a_store_that_is_not_there_is_a_failure_with_advice(ask, tmp_path):
    found = findings(ask, str(tmp_path / "lake"), code=1)
    assert found["store"]["status"] == "fail"
    assert found["store"]["advice"]
    assert found["lease helper"]["status"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_a_failure(ask, lake):
    (Path(lake) / "consensus.db").write_bytes(b"not a database at all, but long enough" * 200)
    for extra in ("consensus.db-wal", "consensus.db-shm"):
        (Path(lake) / extra).unlink(missing_ok=True)
    found = findings(ask, lake, code=1)
    assert found["sqlite"]["status"] == "fail"
    assert found["lease helper"]["status"] == "ok"


def test_another_journal_mode_is_a_warning(ask, lake):
    connection = sqlite3.connect(Path(lake) / "consensus.db")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    assert findings(ask, lake)["sqlite"]["status"] == "warn"


@pytest.mark.parametrize("arguments", [[], ["memory://"]])
def test_the_table_has_one_line_for_each_finding(ask, arguments):
    said = ask("doctor", *arguments)
    assert said.code == 0
    lines = said.out.splitlines()
    assert all(line.split()[0] == "ok" for line in lines[1:])
