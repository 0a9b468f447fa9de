"""What is reloaded from Spark or from large files is staged by tasks, and never comes here."""

from __future__ import annotations

import json
import shutil

import msgspec
import pyarrow as pa
import pytest

import strandline
from strandline.config import resolve_secret
from strandline.errors import SchemaError
from strandline.journal.record import Input, StagedRef
from strandline.journal.staging import fetch
from strandline.pipeline import reload
from strandline.pipeline.bringing import Bringing
from strandline.pipeline.meaning import unpacked_rows
from strandline.spark.engines import spark_engine
from strandline.spark.stagings import Told, stage_frame, staged_by
from strandline.views.parse import parse

pytestmark = pytest.mark.spark

TEXT = "CREATE TABLE orders (id BIGINT, note STRING, PRIMARY KEY (id)) USING http;"
TABLE = parse(TEXT).tables[0]


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as made:
        yield made


def test_a_row_that_does_not_fit_is_named_by_the_task_that_met_it(store, spark):
    nulls = spark.sql("SELECT CAST(NULL AS BIGINT) AS id, 'x' AS note")
    with pytest.raises(SchemaError, match="its key"):
        staged_by(store, spark, resolve_secret, Bringing("shop", TABLE, frame=nulls))


def test_a_frame_is_staged_where_it_is_computed_and_counts_at_once(
    store, spark, tmp_path, monkeypatch
):
    with store.pipeline("shop", TEXT, engine=spark_engine(spark)) as shop:
        frame = spark.range(0, 900, 1, 3).selectExpr("id", "repeat('x', 5) AS note")
        monkeypatch.setattr(type(frame), "toArrow", _only_answers(type(frame).toArrow))
        time = shop.reload("orders", frame)
        sealed = [record for _, record in shop._journal.records() if isinstance(record, Input)]
        assert [(each.t, each.replace, len(each.staged)) for each in sealed] == [(time, True, 3)]
        tables = [unpacked_rows(fetch(store.env, "shop", ref)) for ref in sealed[0].staged]
        assert pa.concat_tables(tables)["id"].to_pylist() == list(range(900))
        # Files that are too large to be read here: the same content but for one row.
        folder = tmp_path / "files"
        folder.mkdir()
        for number in range(2):
            keys = range(450 * number, 450 * (number + 1))
            rows = [{"id": key, "note": "y" if key == 7 else "xxxxx"} for key in keys]
            (folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
        monkeypatch.setattr(reload, "HERE_MAX", 0)
        shop.reload("orders", folder)
        assert shop.history(1)[0].rows == 900
        delta = shop.table("orders").snapshot(as_of=time + 1).to_arrow()
        assert delta.filter(pa.compute.equal(delta["id"], 7))["note"].to_pylist() == ["y"]
        assert delta.num_rows == 900


def test_a_store_that_was_made_anew_is_opened_anew(tmp_path):
    rows = pa.table({"k": [1], "s": ["a"]})
    for _ in range(2):
        with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
            columns = rows.schema.serialize().to_pybytes()
            told = Told(store.url, "shop", "t", columns, ("k",), (), {}, (), 0)
            (batch,) = stage_frame(msgspec.msgpack.encode(told), rows.to_batches())
            refs = msgspec.msgpack.decode(batch.column("answer")[0].as_py())
            (ref,) = [msgspec.convert(each, StagedRef) for each in refs]
            assert store.env.blob.get(ref.key) is not None
        shutil.rmtree(tmp_path / "lake")


def _only_answers(original):
    """Rows of users must not come to the driver; what tasks answer may."""

    def collected(self):
        assert self.columns == ["answer"], "rows were collected"
        return original(self)

    return collected
