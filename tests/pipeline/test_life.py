"""The replica of a process: one runner at a time, and its end is never a silence."""

from __future__ import annotations

import pytest

import strandline
from strandline.errors import ReplayDivergedError, UsageError
from strandline.pipeline.engine import PipelineEngine
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.computing import ArrowComputer
from strandline.testing.engines import arrow_engine

TEXT = """CREATE TABLE t (k BIGINT, v BIGINT, PRIMARY KEY (k))
  USING generator OPTIONS (seed '1', keys '5', rows '20', rowsPerSecond '0');"""
SETTINGS = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=1)


@pytest.fixture
def store():
    with strandline.open("memory://") as opened:
        yield opened


def test_what_was_started_is_waited_for(store):
    pipeline = store.pipeline("p", TEXT, settings=SETTINGS, engine=arrow_engine)
    with pytest.raises(UsageError, match="no replica"):
        pipeline.wait()
    pipeline.start(until_idle=True)
    ended = pipeline.wait()
    assert (ended.state, ended.transactions) == ("stopped", 2)
    assert pipeline.here is None
    pipeline.start()
    assert pipeline.wait(1) is None
    pipeline.stop_here()
    assert pipeline.wait().state == "stopped"
    pipeline.start()


def test_what_ended_it_is_raised_whoever_waits(store):
    class Broken(ArrowComputer):
        def compute(self, work):
            raise ReplayDivergedError("not what it was")

    def engine(store):
        return PipelineEngine(Broken(store), arrow_engine(store).answer)

    pipeline = store.pipeline("p", TEXT, settings=SETTINGS, engine=engine)
    for call in (pipeline.run, lambda: (pipeline.start(), pipeline.wait())):
        with pytest.raises(ReplayDivergedError, match="not what it was"):
            call()
    told = pipeline.status()
    assert told.state == "failed"
    assert "not what it was" in told.cause


def test_a_runner_in_this_process_takes_its_own_checkpoints(store):
    pipeline = store.pipeline("p", TEXT, settings=SETTINGS, engine=arrow_engine)
    pipeline.run(until_idle=True)
    pipeline.start()
    with pytest.raises(UsageError, match="stop it first"):
        pipeline.promote()
    assert pipeline.checkpoint(timeout_ms=60_000) == 1
    pipeline.stop()
