"""Fetching parts: several at once, bounded, patient, and visibly stuck."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError, NotAppliedError, StrandlineError
from strandline.handles.write import Writer
from strandline.model.tasks import Event
from strandline.reading.descriptor import PartDescriptor
from strandline.reading.fetch import Fetched, Fetcher, FetchRule, fetch_part, fetch_rule
from strandline.reading.snapshot import take_snapshot
from strandline.shard.env import Env
from strandline.store.memory import MemoryBlob
from strandline.testing.lab import Lab

RULE = FetchRule(
    concurrency=4, bytes_max=2**30, timeout_ms=60_000, slow_ms=60_000, patience_ms=60_000
)


class StrangeBlob(MemoryBlob):
    """Asks a function what to do before each read."""

    def __init__(self, objects: dict[str, bytes], before: Callable[[str], None]) -> None:
        super().__init__(objects)
        self._before = before

    def get(self, key: str) -> bytes | None:
        self._before(key)
        return super().get(key)


class Inbox:
    """What was delivered, and a way to wait for it."""

    def __init__(self, env: Env) -> None:
        self.changed = env.tasks.condition()
        self.found: dict[str, Fetched] = {}

    def deliver(self, descriptor: PartDescriptor, fetched: Fetched) -> None:
        with self.changed:
            assert descriptor.id not in self.found
            self.found[descriptor.id] = fetched
            self.changed.notify_all()

    def wait(self, count: int) -> list[Fetched]:
        with self.changed:
            while len(self.found) < count:
                assert self.changed.wait(10_000)
            return list(self.found.values())


def _parts(lab: Lab, count: int) -> tuple[Env, list[PartDescriptor]]:
    env = lab.env(inline_max_bytes=0)
    machine = lab.machine(env=env)
    leases = lab.leases(env)
    writer = Writer(machine, leases.writer(machine))
    for number in range(count):
        writer.append(pa.table({"id": [number], "name": ["x"]}))
    return env, take_snapshot(machine, leases, None).parts()


def _wait(event: Event) -> None:
    event.wait(20_000)


def _strange(lab: Lab, env: Env, before: Callable[[str], None]) -> Env:
    return replace(env, blob=StrangeBlob(lab.blob._objects, before))


def test_s20_a_read_that_hangs_is_named_and_tried_again(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    env, parts = _parts(lab, 1)
    hang, reads = env.tasks.event(), []

    def before(key: str) -> None:
        reads.append(key)
        if len(reads) == 1:
            hang.wait(20_000)

    env = _strange(lab, env, before)
    inbox = Inbox(env)
    rule = replace(RULE, slow_ms=10, timeout_ms=30, patience_ms=None)
    fetcher = Fetcher(env, "orders", inbox.deliver, rule)
    with caplog.at_level(logging.WARNING):
        fetcher.submit(parts)
        (rows,) = inbox.wait(1)
    assert isinstance(rows, pa.Table)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert parts[0].piece.key in lines[0]
    assert "orders" in lines[0]
    assert env.metrics.value("slow_reads", "orders") == 1
    hang.set()
    fetcher.close()
    assert fetcher.join(10_000)
    assert len(inbox.found) == 1


def test_s20_a_read_that_hangs_for_too_long_is_an_error_that_may_be_retried(lab: Lab) -> None:
    env, parts = _parts(lab, 1)
    hang = env.tasks.event()
    env = _strange(lab, env, lambda _key: _wait(hang))
    inbox = Inbox(env)
    rule = replace(RULE, slow_ms=10, timeout_ms=20, patience_ms=0)
    fetcher = Fetcher(env, "orders", inbox.deliver, rule)
    fetcher.submit(parts)
    (error,) = inbox.wait(1)
    assert isinstance(error, NotAppliedError)
    assert parts[0].piece.key in str(error)
    hang.set()
    fetcher.close()
    assert fetcher.join(10_000)


def test_what_did_not_happen_is_tried_again(lab: Lab) -> None:
    env, parts = _parts(lab, 3)
    reads: list[str] = []

    def before(key: str) -> None:
        reads.append(key)
        if reads.count(key) < 3:
            raise NotAppliedError("not today")

    env = _strange(lab, env, before)
    inbox = Inbox(env)
    fetcher = Fetcher(env, "orders", inbox.deliver, RULE)
    fetcher.submit(parts)
    assert all(isinstance(rows, pa.Table) for rows in inbox.wait(3))
    assert env.metrics.value("retries", "orders") == 6
    fetcher.close()


def test_bytes_in_flight_are_bounded_until_rows_are_taken(lab: Lab) -> None:
    env, parts = _parts(lab, 8)
    inbox = Inbox(env)
    seen: list[float] = []

    def before(_key: str) -> None:
        seen.append(env.metrics.value("bytes_in_flight", "orders"))

    strange = _strange(lab, env, before)
    fetcher = Fetcher(strange, "orders", inbox.deliver, replace(RULE, bytes_max=1))
    fetcher.submit(parts)
    for count in range(1, 9):
        inbox.wait(count)
        assert len(inbox.found) == count
        fetcher.settle(parts[count - 1])
    assert seen == [part.size for part in parts]
    fetcher.close()
    assert fetcher.join(10_000)


def test_what_cant_be_read_is_delivered_as_an_error(lab: Lab) -> None:
    env, parts = _parts(lab, 2)
    lab.blob.delete(parts[0].piece.key)
    inbox = Inbox(env)
    fetcher = Fetcher(env, "orders", inbox.deliver, RULE)
    fetcher.submit(parts)
    inbox.wait(2)
    assert isinstance(inbox.found[parts[0].id], CorruptionError)
    assert isinstance(inbox.found[parts[1].id], pa.Table)
    fetcher.close()
    with pytest.raises(StrandlineError, match="is missing"):
        fetch_part(lab.blob, parts[0])


def test_a_closed_fetcher_delivers_nothing(lab: Lab) -> None:
    env, parts = _parts(lab, 4)
    go = env.tasks.event()
    env = _strange(lab, env, lambda _key: _wait(go))
    inbox = Inbox(env)
    fetcher = Fetcher(env, "orders", inbox.deliver, RULE)
    fetcher.submit(parts)
    fetcher.close()
    go.set()
    assert fetcher.join(10_000)
    assert inbox.found == {}


def test_a_patient_reader_never_gives_up(lab: Lab) -> None:
    env = lab.env()
    assert fetch_rule(env, patient=True).patience_ms is None
    assert fetch_rule(env, patient=False).patience_ms == env.settings.read_deadline_ms
