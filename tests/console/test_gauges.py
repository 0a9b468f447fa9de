"""The names that Prometheus scrapes are a contract, kept in the module's own table and docs."""

from __future__ import annotations

import re
from pathlib import Path

import strandline
from strandline.console import gauges
from strandline.testing.engines import arrow_engine

TEXT = """CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING generator
  OPTIONS (keys '3', rows '30', rowsPerSecond '0');"""
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_number_is_there_and_in_the_table():
    with strandline.open("memory://") as store:
        pipeline = store.pipeline("p", TEXT, engine=arrow_engine)
        pipeline.run(until_idle=True)
        pipeline.transaction()
        text = gauges.exposition(store.env.metrics.registry, [pipeline.status()]).decode()
    own = r"strandline_(?:pipeline|source)_\w+"
    served = set(re.findall(rf"^({own})", text, re.MULTILINE))
    assert served == set(re.findall(rf"`({own})`", str(gauges.__doc__)))
    assert served <= set(re.findall(rf"`({own})`", DOCS.read_text()))
    assert 'strandline_pipeline_committed{pipeline="p"} 1.0' in text
    assert 'strandline_pipeline_running{pipeline="p"} 0.0' in text
    assert 'strandline_pipeline_replicas{pipeline="p",state="stopped"} 1.0' in text
    assert 'strandline_pipeline_open_transactions{pipeline="p"} 1.0' in text
    assert 'strandline_source_behind{pipeline="p",source="t"} 0.0' in text
