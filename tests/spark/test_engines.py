"""Spark as the engine of a pipeline: the faces work as they do without it, and nothing is open."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import strandline
from strandline.errors import ProgramError, UsageError, ViewFailedError
from strandline.spark.engines import spark_engine
from strandline.testing.engines import arrow_engine

TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '9', rows '20', rowsPerSecond '0');
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW shares AS SELECT id, 100 / amount AS share FROM orders;
"""
SETTINGS = strandline.PipelineSettings(rows_max=10, delay_ms=0, poll_ms=5)


def test_a_pipeline_runs_answers_and_replays_on_spark(spark, tmp_path):
    with strandline.open(str(tmp_path / "lake")) as store:
        engine = spark_engine(spark)
        with store.pipeline("shop", TEXT, settings=SETTINGS, engine=engine) as pipeline:
            assert pipeline.run(until_idle=True).transactions == 2
            joined = "SELECT COUNT(*) AS n FROM orders o JOIN large l ON o.id = l.id"
            (row,) = pipeline.query(joined).to_pylist()
            assert row["n"] == pipeline.query("SELECT id FROM large").num_rows
            early = pipeline.query("SELECT id FROM orders", as_of=0).num_rows
            assert 0 < early <= 10
            with pipeline.transaction() as transaction:
                transaction.insert("orders", [{"id": 900, "amount": 0}])
            assert transaction.time == 2
            with pytest.raises(ViewFailedError, match="shares has no answer as of 2"):
                pipeline.query("SELECT * FROM shares")
            assert [each.t for each in pipeline.replay()] == [0, 1, 2]
            for sql, kind, why in (
                ("SELECT nothing FROM orders", ProgramError, "name `nothing` cannot be resolved"),
                ("SELECT id + ARRAY(1) AS x FROM orders", ProgramError, "Cannot resolve"),
                ("SELECT 1 / amount AS x FROM orders", UsageError, "division by zero"),
            ):
                with pytest.raises(kind, match=why):
                    pipeline.query(sql)
            assert spark.catalog.listTables() == []
        assert spark.sql("SELECT 1").count() == 1, "a session that was given is not stopped"
        with store.pipeline("shop", engine=arrow_engine) as other:
            noted = [each.noted for each in other.replay(0, 2)]
            assert noted == [(), ()], "two engines computed the same"


def test_a_table_that_gets_columns_is_the_same_on_both_engines(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    text = f"""
    CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING files
      OPTIONS (path '{folder}', transaction 'file', newColumns 'add', sequenceBy 'n');
    CREATE MATERIALIZED VIEW shares AS SELECT *, 10 / n AS share FROM t;
    CREATE MATERIALIZED VIEW whole REFRESH FULL AS SELECT * FROM t;
    """
    (folder / "1.json").write_text('{"id": 1, "n": 1}\n{"id": 2, "n": 0}\n')
    (folder / "2.json").write_text('{"id": 1, "n": 5, "note": "new"}\n{"id": 3, "n": 1, "f": 2}\n')
    (folder / "3.json").write_text('{"id": 2, "n": 1, "f": 2.5}\n{"id": 3, "n": "x"}\n')
    with strandline.open(str(tmp_path / "lake")) as store:
        options = {"settings": SETTINGS, "engine": spark_engine(spark)}
        with store.pipeline("shop", text, **options) as pipeline:
            pipeline.run(until_idle=True)
            # A whole number came first, so what is none is an error of the table.
            rows = pipeline.query("SELECT id, n, note, f FROM t ORDER BY id").to_pylist()
            assert [tuple(row.values()) for row in rows] == [
                (1, 5, "new", None), (2, 0, None, None), (3, 1, None, 2)
            ]  # fmt: skip
            assert pipeline.collection("t_errors").snapshot().to_arrow().num_rows == 2
            assert pipeline.view("whole").schema.names == ["id", "n"]
            assert [each.noted for each in pipeline.replay()] == [()] * 3
        with store.pipeline("shop", engine=arrow_engine) as other:
            assert [each.noted for each in other.replay()] == [()] * 3


def test_x09_nothing_of_spark_listens_beyond_loopback(spark):
    spark.range(10).count()
    listening = {
        line.split()[1].split(":")[0]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[9] in _inodes()
    }
    loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    assert listening <= loopback
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_x09_nobody_speaks_to_the_driver_without_its_secret(spark):
    """What is no handshake is answered with a refusal, whatever it asks for."""
    body = b"strandline"
    request = b"\x03" + (7).to_bytes(8) + len(body).to_bytes(4) + body
    with socket.create_connection(
        ("127.0.0.1", int(spark.conf.get("spark.driver.port"))), 60
    ) as to:
        to.sendall((8 + len(request)).to_bytes(8) + request)
        answer = to.makefile("rb").read(8 + 1 + 8 + 4 + 120)
    assert b"SaslMessage" in answer or b"SASL" in answer
    # It was drawn for this session, and nobody can ask for it.
    assert spark.conf.get("spark.authenticate") == "true"
    assert "spark.authenticate.secret" not in dict(spark.conf.getAll)


def _inodes() -> set[str]:
    """Sockets of this process and of those that it started."""
    found: set[str] = set()
    for pid in _family(str(Path("/proc/self").resolve().name)):
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(file.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target.removeprefix("socket:[").removesuffix("]"))
    return found


def _family(pid: str) -> list[str]:
    children = [
        child
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]
    return [pid, *(one for child in children for one in _family(child))]
