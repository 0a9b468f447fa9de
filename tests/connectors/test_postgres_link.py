"""A connection whose waits end: silence is given up, whatever moves is waited for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from psycopg.waiting import Ready, Wait
from tests.postgres.proxy import Proxy
from tests.postgres.server import PASSWORD, Server
from tests.postgres.tables import Tables, tables_on

from strandline.connectors import postgres_session
from strandline.connectors.postgres_link import SLICE_MS, NoAnswerError, patient
from strandline.connectors.postgres_session import Session, parsed
from strandline.connectors.secret import Secret
from strandline.connectors.sink import Progress
from strandline.errors import SinkError, SinkStoppedError
from strandline.testing.conformance_sink import (
    CHANGES,
    WHAT,
    changes,
    expected,
    founded,
    has,
    opened,
)

KEYED = replace(WHAT, key=("id",))
TIMEOUT_MS = 1_200
SLACK_S = 10
"""What a busy machine may take beside."""


@pytest.fixture
def proxy(postgres: Server) -> Iterator[Proxy]:
    with closing(Proxy(postgres.port)) as made:
        yield made


@pytest.fixture
def tables(postgres: Server, proxy: Proxy) -> Iterator[Tables]:
    with tables_on(postgres) as made:
        founded(made.stand(("id",)), 0).close()
        made.port = proxy.port
        yield made


def impatient(port: int) -> Session:
    url = f"{Server.url_at(port)}?connect_timeout=2"
    made = Session(parsed(url, given=True), Secret(PASSWORD), "strandline test", TIMEOUT_MS)
    made.open()
    return made


def asked(answers: int) -> Iterator[Wait]:
    """What a client does that gets its answer in so many pieces."""
    while answers:
        answers -= bool((yield Wait.R))
    return "answered"


def told(waiting: Iterator[Wait], *ready: Ready) -> object:
    assert next(waiting) is Wait.R
    for each in ready:
        try:
            waiting.send(each)
        except StopIteration as end:
            return end.value
    return None


def test_an_answer_comes_through_and_whatever_moves_starts_the_count_again() -> None:
    patience_ms = 3 * SLICE_MS
    nothing = [Ready.NONE] * 2
    whole = (*nothing, Ready.R, *nothing, Ready.W, *nothing, Ready.R)
    assert told(patient(asked(3), patience_ms), *whole) == "answered"
    with pytest.raises(NoAnswerError, match=r"no answer for 0\.3 s.*raise timeoutMs"):
        told(patient(asked(3), patience_ms), Ready.R, *nothing, Ready.NONE)


def test_one_that_answers_at_once_is_not_waited_for() -> None:
    waiting = patient(asked(0), SLICE_MS)
    with pytest.raises(StopIteration) as end:
        next(waiting)
    assert end.value.value == "answered"


def test_a_statement_without_an_answer_is_given_up_and_the_next_session_is_well(
    postgres: Server, proxy: Proxy
) -> None:
    made = impatient(proxy.port)
    proxy.swallow_from(b"SELECT 41")
    began = time.monotonic()
    silent = pytest.raises(SinkError, match=r"no answer for 1\.2 s")
    with silent as caught, made.meaning(), made.connection.transaction():
        made.one("SELECT 41 + 1")
    assert TIMEOUT_MS / 1_000 <= time.monotonic() - began < TIMEOUT_MS / 1_000 + SLACK_S
    assert not isinstance(caught.value, SinkStoppedError)
    with pytest.raises(SinkError, match="no connection"):
        made.one("SELECT 1")
    with pytest.raises(SinkError, match="timeout expired"):
        made.open()
    proxy.mend()
    made.open()
    assert made.one("SELECT 41 + 1") == 42
    made.close()


def test_after_silence_nothing_more_is_asked(postgres: Server, proxy: Proxy) -> None:
    """Or the end of a COPY or of a transaction would be waited for as long again."""
    made = impatient(proxy.port)
    proxy.swallow_from(b"SELECT 41")
    with pytest.raises(NoAnswerError):
        made.one("SELECT 41 + 1")
    assert made.connection.closed


def test_a_slow_statement_is_waited_for_where_that_was_expected(postgres: Server) -> None:
    made = impatient(postgres.port)
    with made.meaning():
        made.expect(60_000)
        made.run("SELECT pg_sleep(1.8)")
    with pytest.raises(SinkError, match="no answer"), made.meaning():
        made.run("SELECT pg_sleep(60)")
    with postgres.superuser() as login:
        login.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                      " WHERE query LIKE '%pg_sleep(60)'")  # fmt: skip


@pytest.mark.parametrize("statement", [b"FOR UPDATE", b"COPY", b"COMMIT"])
def test_s80_a_delivery_that_is_not_answered_counts_or_not_and_the_progress_tells(
    tables: Tables, proxy: Proxy, statement: bytes
) -> None:
    """The server has heard it, and whoever asks later has to end the session that still waits."""
    stand = tables.stand(("id",), timeoutMs=str(TIMEOUT_MS))
    sink, _ = opened(stand)
    proxy.swallow_from(statement)
    began = time.monotonic()
    with pytest.raises(SinkError, match="no answer"):
        sink.deliver(1, 1, changes(1, 0))
    assert time.monotonic() - began < TIMEOUT_MS / 1_000 + SLACK_S
    sink.close()
    proxy.mend()
    sink, progress = opened(tables.stand(("id",)))
    assert progress == Progress(1 if statement == b"COMMIT" else 0, 1)
    if progress == Progress(0, 1):
        sink.deliver(1, 1, changes(1, 0))
    assert has(tables.stand(), expected(0, 1))


def large(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(100, 100 + rows, 1_000):
        ids = range(start, start + 1_000)
        names = ["x" * 200] * len(ids)
        yield pa.RecordBatch.from_arrays(
            [pa.array(ids, pa.int64()), pa.array(names), pa.array([1] * len(ids), pa.int64())],
            schema=CHANGES,
        )


def test_a_copy_that_gets_stuck_is_given_up(tables: Tables, proxy: Proxy) -> None:
    sink, _ = opened(tables.stand(("id",), timeoutMs=str(TIMEOUT_MS)))
    proxy.stall_after(1_000_000)
    with pytest.raises(SinkError, match="no answer"):
        sink.deliver(1, 1, large(40_000))
    assert proxy.caught.is_set()
    proxy.mend()
    assert opened(tables.stand(("id",)))[1] == Progress(0, 1)
    assert len(tables.rows()) == 2


def test_a_copy_that_gets_on_slowly_is_waited_for(tables: Tables, proxy: Proxy) -> None:
    sink, _ = opened(tables.stand(("id",), timeoutMs=str(TIMEOUT_MS)))
    proxy.slow_down(0.02)
    began = time.monotonic()
    sink.deliver(1, 1, large(40_000))
    assert time.monotonic() - began > TIMEOUT_MS / 1_000, "nothing was waited for"
    assert len(tables.rows()) == 40_002


def test_what_is_read_back_ends_as_well(tables: Tables, proxy: Proxy) -> None:
    found = tables.sink(KEYED, timeoutMs=str(TIMEOUT_MS)).read_back()
    assert found is not None
    proxy.swallow_from(b"FETCH")
    with pytest.raises(SinkError, match="no answer"):
        list(found.rows)


def test_a_backend_that_was_stopped_is_given_up_and_ended_when_it_wakes(
    postgres: Server, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_session, "_TAKEN_MS", 500)
    pids: list[int] = []

    def step(name: str) -> None:
        if name == "commit":
            with postgres.superuser() as login:
                asked = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s"
                pids.extend(pid for (pid,) in login.execute(asked, ("strandline %",)))
            for each in pids:
                os.kill(each, signal.SIGSTOP)

    sink = tables.sink(KEYED, step, timeoutMs=str(TIMEOUT_MS))
    sink.prepare()
    sink.progress()
    try:
        with pytest.raises(SinkError, match="no answer"):
            sink.deliver(1, 1, changes(1, 0))
        assert len(pids) == 1
        # It has the locks and can't be ended: all that is left is to say so, and to try again.
        with pytest.raises(SinkError, match=r"no answer|lock timeout") as caught:
            opened(tables.stand(("id",), timeoutMs="2000"))
        assert not isinstance(caught.value, SinkStoppedError)
    finally:
        for each in pids:
            os.kill(each, signal.SIGCONT)
    sink, progress = opened(tables.stand(("id",)))
    assert progress in {Progress(0, 1), Progress(1, 1)}, "its commit was on its way, or it is ended"
    if progress == Progress(0, 1):
        sink.deliver(1, 1, changes(1, 0))
    assert has(tables.stand(), expected(0, 1))
