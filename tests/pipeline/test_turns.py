"""Several tasks of a process share one computer: they use it one after the other."""

from __future__ import annotations

import threading

import pytest

import strandline
from strandline.pipeline.engine import PipelineEngine
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.computing import ArrowComputer
from strandline.testing.engines import arrow_engine

TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE TABLE bills (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE MATERIALIZED VIEW ordered REFRESH FULL AS SELECT COUNT(*) AS n FROM orders;
CREATE MATERIALIZED VIEW billed REFRESH FULL AS SELECT COUNT(*) AS n FROM bills;
"""
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=1)
TASKS = 4


class Meeting:
    """Whether two were ever in one place: who comes in waits a moment for another one."""

    def __init__(self):
        self.inside = 0
        self.happened = threading.Event()

    def __enter__(self):
        self.inside += 1
        if self.inside > 1:
            self.happened.set()
        self.happened.wait(0.03)

    def __exit__(self, *_):
        self.inside -= 1


class Watched(ArrowComputer):
    """A computer that knows whether two transactions were ever computed at once."""

    def __init__(self, store, meeting):
        super().__init__(store)
        self.meeting = meeting

    def compute(self, work):
        with self.meeting:
            return super().compute(work)


@pytest.fixture
def place():
    """A pipeline that nobody runs, where two computed at once, and where two made its engine."""
    computing, making = Meeting(), Meeting()

    def engine(store):
        with making:
            return PipelineEngine(Watched(store, computing), arrow_engine(store).answer)

    with strandline.open("memory://") as store:
        pipeline = store.pipeline("shop", TEXT, settings=SETTINGS, engine=engine)
        yield pipeline, computing, making


def at_once(pipeline, *works):
    """Let tasks do these; what one of them raised is raised."""
    failed = []

    def guarded(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    tasks = [
        pipeline.store.env.tasks.start("a request", lambda work=work: guarded(work))
        for work in works
    ]
    assert all(task.join(30_000) for task in tasks)
    for error in failed:
        raise error


def test_requests_that_commit_at_once_where_nobody_runs_compute_one_after_the_other(place):
    pipeline, computing, making = place

    def request(number):
        with pipeline.transaction() as work:
            work.insert(("orders", "bills")[number % 2], [{"id": number, "amount": 1}])

    at_once(pipeline, *(lambda number=number: request(number) for number in range(TASKS)))
    assert not computing.happened.is_set()
    assert not making.happened.is_set(), "one engine does for all"
    for view in ("ordered", "billed"):
        assert pipeline.query(f"SELECT n FROM {view}").to_pylist() == [{"n": TASKS // 2}]
    assert len(list(pipeline.replay())) == TASKS


def test_a_replay_and_a_replica_that_runs_compute_one_after_the_other(place):
    pipeline, computing, _ = place
    pipeline.start()
    for number in range(2):
        pipeline.reload("orders", [{"id": number, "amount": 1}])

    def pushes():
        for number in range(3):
            pipeline.push("bills", [b'{"id": %d, "amount": 1}' % number])

    at_once(pipeline, lambda: list(pipeline.replay(0, 2)), pushes)
    pipeline.stop()
    assert not computing.happened.is_set()
    assert pipeline.query("SELECT n FROM billed").to_pylist() == [{"n": 3}]


def test_who_starts_a_replica_while_a_request_carries_out_its_commit_waits_for_its_turn(place):
    pipeline, computing, _ = place

    def request():
        with pipeline.transaction() as work:
            work.insert("orders", [{"id": 1, "amount": 1}])

    def started():
        pipeline.start(until_idle=True)
        pipeline.wait()

    at_once(pipeline, request, request, started)
    assert not computing.happened.is_set()
    assert pipeline.query("SELECT n FROM ordered").to_pylist() == [{"n": 1}]
