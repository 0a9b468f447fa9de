"""How far a run has come, for people."""

from __future__ import annotations

import strandline
from strandline.cli.backfill import Backfill, shown_backfill
from strandline.cli.output import Output
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

TEXT = """CREATE TABLE t (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING generator
    OPTIONS (seed '1', keys '50', rows '300', rowsPerSecond '0');"""


class Seen(Output):
    """Somebody who looks, and keeps what is shown."""

    def __init__(self):
        super().__init__()
        self.steps = []

    @property
    def watched(self):
        return True

    def progress(self, what):
        return _Bar(self.steps)


class _Bar:
    def __init__(self, steps):
        self._steps = steps

    def __enter__(self):
        return lambda *told: self._steps.append(told)

    def __exit__(self, *_):
        return None


def test_what_is_left_is_told_of_what_there_was():
    seen = Backfill()
    assert seen.told(100, 0) == (0, 100, "0 transactions, rows taken")
    assert seen.told(40, 1) == (60, 100, "1 transaction, rows taken")
    assert seen.told(140, 2) == (0, 140, "2 transactions, rows taken"), "more came than was taken"
    assert seen.told(0, 9) == (140, 140, "9 transactions, rows taken")


def test_a_first_run_shows_rows_and_transactions(monkeypatch):
    monkeypatch.setattr("strandline.cli.backfill._LOOK_MS", 1)
    out = Seen()
    settings = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=1)
    with strandline.open("memory://") as store:
        pipeline = store.pipeline("p", TEXT, settings=settings, engine=arrow_engine)
        pipeline.start(until_idle=True)
        with shown_backfill(pipeline, out):
            while pipeline.wait(20) is None:
                pass
    done = [each[0] for each in out.steps]
    assert done == sorted(done)
    assert any(0 < each[0] < each[1] <= 300 for each in out.steps), out.steps
    assert any("transactions, rows taken" in each[2] for each in out.steps)
