"""The names that Prometheus scrapes are a contract, kept in the module's own table and docs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import strandline
from strandline.console import gauges
from strandline.testing.engines import arrow_engine

TEXT = """CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING generator
  OPTIONS (keys '3', rows '30', rowsPerSecond '0');
CREATE SINK out FROM t USING files OPTIONS (path '{}');"""
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_number_is_there_and_in_the_table(tmp_path):
    with strandline.open("memory://") as store:
        pipeline = store.pipeline("p", TEXT.format(tmp_path), engine=arrow_engine)
        pipeline.run(until_idle=True)
        pipeline.transaction()
        text = gauges.exposition(store.env.metrics.registry, [pipeline.status()]).decode()
    own = r"strandline_(?:pipeline|source|sink)_\w+"
    served = set(re.findall(rf"^({own})", text, re.MULTILINE))
    assert served == set(re.findall(rf"`({own})`", str(gauges.__doc__)))
    assert served <= set(re.findall(rf"`({own})`", DOCS.read_text()))
    assert 'strandline_pipeline_committed{pipeline="p"} 1.0' in text
    assert 'strandline_pipeline_running{pipeline="p"} 0.0' in text
    assert 'strandline_pipeline_replicas{pipeline="p",state="stopped"} 1.0' in text
    assert 'strandline_pipeline_open_transactions{pipeline="p"} 1.0' in text
    assert 'strandline_source_behind{pipeline="p",source="t"} 0.0' in text
    assert 'strandline_pipeline_stalled{pipeline="p"} 0.0' in text
    assert 'strandline_pipeline_still_seconds{pipeline="p"} 0.0' in text
    for name in gauges.SINKS:
        value = 1 if name == "reached" else 0
        assert f'strandline_sink_{name}{{pipeline="p",sink="out"}} {value}.0' in text


def test_what_needs_somebody_is_a_one(tmp_path):
    with strandline.open("memory://") as store:
        pipeline = store.pipeline("p", TEXT.format(tmp_path), engine=arrow_engine)
        pipeline.run(until_idle=True)
        pipeline.pause(sink="out")
        status = pipeline.status()
    (sink,) = status.sinks
    stopped = replace(sink, state="stopped", behind=3, lag_seconds=None, reached=None)
    hangs = replace(sink, name="more", state="stalled", still_seconds=75.0)
    text = gauges.exposition(
        store.env.metrics.registry,
        [replace(status, state="stalled", still_seconds=70.0, sinks=(stopped, hangs))],
    ).decode()
    assert 'strandline_pipeline_stalled{pipeline="p"} 1.0' in text
    assert 'strandline_pipeline_still_seconds{pipeline="p"} 70.0' in text
    for name, value in {"reached": 0, "behind": 3, "stopped": 1, "paused": 1}.items():
        assert f'strandline_sink_{name}{{pipeline="p",sink="out"}} {value}.0' in text
    assert 'strandline_sink_lag_seconds{pipeline="p",sink="out"}' not in text, "nobody knows it"
    for name, value in {"stalled": 1, "still_seconds": 75, "stopped": 0}.items():
        assert f'strandline_sink_{name}{{pipeline="p",sink="more"}} {value}.0' in text
