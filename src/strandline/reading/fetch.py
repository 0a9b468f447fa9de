"""Fetches parts: in any order, several at once, with a bound on the bytes in flight.

    submit ─► queue ─► worker: get the bytes, check and decode them ─► deliver(descriptor, rows)
                 ▲                     │ it did not happen: wait, try again
                 └─────────────────────┤ it hangs: say so after a minute; give up and try again
                                       └ it can't be read: deliver(descriptor, error)

A read that hangs can't be interrupted, so its worker is given up: another one takes its place,
and what the first one brings in the end is thrown away.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from strandline.errors import (
    CorruptionError,
    InvariantError,
    MaybeAppliedError,
    NotAppliedError,
    StrandlineError,
)
from strandline.parts.part import Part
from strandline.reading.extract import extract, extract_updates
from strandline.shard.env import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.model.tasks import Task
    from strandline.reading.descriptor import PartDescriptor
    from strandline.shard.env import Env
    from strandline.store.blob import Blob, Content

_log = logging.getLogger(__name__)

Fetched: TypeAlias = "pa.Table | StrandlineError"
"""The rows of a part, or why it will never have any."""

BUGS = (
    pa.ArrowException,
    ArithmeticError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What decoding may raise if there is a bug in it: to be told, since a task must not die of it."""


def fetch_part(blob: Blob, descriptor: PartDescriptor) -> pa.Table:
    """The updates that a descriptor asks for, with `_time` and `_diff`.

    Needs nothing but the store's objects, so any process can do it; the lease stays with
    whoever listed the part, who has to be told when the rows have arrived.
    """
    return extract_updates(descriptor, read_object(blob, descriptor))


def read_object(blob: Blob, descriptor: PartDescriptor) -> Content:
    """The object of a part; nothing for inline rows, which the descriptor carries."""
    piece = descriptor.piece
    if not isinstance(piece, Part):
        return b""
    encoded = blob.get(piece.key)
    if encoded is None:
        raise CorruptionError(f"{descriptor} is missing")
    return encoded


def bug(what: str, error: Exception) -> InvariantError:
    """An error that nobody foresaw, as one that can be reported."""
    found = InvariantError(f"{what}: {error!r}")
    found.__cause__ = error
    return found


@dataclass(slots=True)
class _Job:
    """One part on its way."""

    descriptor: PartDescriptor
    first_ms: int = -1
    """When its first read began; before that, -1."""
    started_ms: int = -1
    """When its current read began."""
    attempt: int = 0
    told: bool = False
    given_up: bool = False
    """Whether its read hangs: what comes of it no longer counts."""


@dataclass(frozen=True, slots=True)
class FetchRule:
    """How to fetch."""

    concurrency: int
    bytes_max: int
    timeout_ms: int
    slow_ms: int
    patience_ms: int | None
    """How long to try again what did not happen; `None` is for ever."""


def fetch_rule(env: Env, *, patient: bool) -> FetchRule:
    """The rule of a process's settings; a patient reader waits for a store that is away."""
    settings = env.settings
    return FetchRule(
        concurrency=settings.fetch_concurrency,
        bytes_max=settings.fetch_bytes_max,
        timeout_ms=settings.fetch_timeout_ms,
        slow_ms=settings.stall_ms,
        patience_ms=None if patient else settings.read_deadline_ms,
    )


class Fetcher:
    """The fetching tasks of one reader of one shard.

    `deliver` is called once for each descriptor, by the task that fetched it, with its rows
    (see `extract`) or with the error that is final; it must not raise. The bytes of a part count
    as in flight until `settle` is called for it.
    """

    def __init__(
        self,
        env: Env,
        shard: str,
        deliver: Callable[[PartDescriptor, Fetched], None],
        rule: FetchRule,
    ) -> None:
        self._env = env
        self._shard = shard
        self._deliver = deliver
        self._rule = rule
        self._changed = env.tasks.condition()
        self._queue: deque[_Job] = deque()
        self._flying: list[_Job] = []
        self._bytes = 0
        self._closed = False
        self._tasks: list[Task] = []
        self._workers = 0

    def submit(self, descriptors: Iterable[PartDescriptor]) -> None:
        with self._changed:
            self._queue.extend(_Job(descriptor) for descriptor in descriptors)
            self._staff()
            self._changed.notify_all()

    def settle(self, descriptor: PartDescriptor) -> None:
        """The rows of a part were taken: its bytes are no longer in flight."""
        with self._changed:
            self._count(-descriptor.size)
            self._changed.notify_all()

    @property
    def queued(self) -> int:
        """How many parts nobody has begun to fetch."""
        with self._changed:
            return len(self._queue)

    def close(self) -> None:
        """Fetch nothing more. What is being read is left alone, and thrown away."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the tasks to end; `False` if some still hang in a read."""
        deadline = self._env.clock.monotonic_ms() + timeout_ms
        ended = True
        for task in list(self._tasks):
            left = max(0, deadline - self._env.clock.monotonic_ms())
            ended = task.join(left) and ended
        return ended

    def _staff(self) -> None:
        """As many workers as there is work, up to the limit. The caller holds the lock."""
        wanted = min(self._rule.concurrency, len(self._queue) + len(self._flying))
        if wanted and not self._tasks:
            self._start("watch", self._watch)
        for _ in range(wanted - self._workers):
            self._workers += 1
            self._start("fetch", self._work)

    def _start(self, what: str, run: Callable[[], None]) -> None:
        self._tasks.append(self._env.tasks.start(f"{what} {self._shard}", run))

    def _count(self, size: int) -> None:
        self._bytes += size
        self._env.metrics.set("bytes_in_flight", self._bytes, self._shard)

    def _work(self) -> None:
        while True:
            job = self._take()
            if job is None:
                return
            found = self._read(job)
            if job.given_up:  # Another worker has taken the place of this one.
                return
            if found is not None:
                self._deliver(job.descriptor, found)

    def _take(self) -> _Job | None:
        with self._changed:
            while not self._closed and not self._may_begin():
                self._changed.wait()
            if self._closed:
                self._workers -= 1
                return None
            job = self._queue.popleft()
            job.started_ms = self._env.clock.monotonic_ms()
            if job.first_ms < 0:
                job.first_ms = job.started_ms
                self._count(job.descriptor.size)
            self._flying.append(job)
            self._changed.notify_all()  # The watching task counts from now.
            return job

    def _may_begin(self) -> bool:
        """A part that is larger than the bound goes alone; one tried again is counted already."""
        if not self._queue:
            return False
        job = self._queue[0]
        fits = self._bytes + job.descriptor.size <= self._rule.bytes_max
        return fits or self._bytes == 0 or job.first_ms >= 0

    def _read(self, job: _Job) -> Fetched | None:
        """The rows or the final error; `None` if nobody waits for it any more."""
        while True:
            found = self._attempt(job.descriptor)
            with self._changed:
                if self._closed or job.given_up:
                    return None
                again = isinstance(found, (NotAppliedError, MaybeAppliedError))
                if not again or self._is_over(job):
                    self._flying.remove(job)
                    return found
                self._env.metrics.add("retries", self._shard)
                self._pause(PATIENCE.delay(job.attempt, self._env.random.uniform))
                job.attempt += 1
                job.started_ms = self._env.clock.monotonic_ms()

    def _attempt(self, descriptor: PartDescriptor) -> Fetched:
        try:
            encoded = read_object(self._env.blob, descriptor)
            found = extract(descriptor, encoded)
        except StrandlineError as error:
            return error
        except BUGS as error:
            return bug(f"{descriptor} could not be decoded", error)
        if encoded:
            self._env.metrics.add("parts_read", self._shard)
            self._env.metrics.add("bytes_read", self._shard, len(encoded))
        return found

    def _pause(self, pause_ms: float) -> None:
        """Wait, unless the reader is closed meanwhile. The caller holds the lock."""
        deadline = self._env.clock.monotonic_ms() + max(1, int(pause_ms))
        while not self._closed:
            left = deadline - self._env.clock.monotonic_ms()
            if left <= 0:
                return
            self._changed.wait(left)

    def _is_over(self, job: _Job) -> bool:
        patience = self._rule.patience_ms
        return patience is not None and self._env.clock.monotonic_ms() - job.first_ms >= patience

    def _watch(self) -> None:
        """Make reads that hang visible, and give them up in the end."""
        while True:
            with self._changed:
                if self._closed:
                    return
                now = self._env.clock.monotonic_ms()
                over = [job for job in list(self._flying) if self._look(job, now)]
                if not over:
                    due = [self._due(job) - now for job in self._flying]
                    self._changed.wait(max(1, min(due)) if due else None)
            for job in over:
                age_s = self._rule.timeout_ms // 1000
                self._deliver(
                    job.descriptor,
                    NotAppliedError(f"{job.descriptor} did not arrive within {age_s} s"),
                )

    def _due(self, job: _Job) -> int:
        slow, timeout = self._rule.slow_ms, self._rule.timeout_ms
        return job.started_ms + (timeout if job.told else min(slow, timeout))

    def _look(self, job: _Job, now_ms: int) -> bool:
        """Look at one read; whether it hung for so long that the part is not tried again."""
        age_ms = now_ms - job.started_ms
        if age_ms >= self._rule.slow_ms and not job.told:
            job.told = True
            self._env.metrics.add("slow_reads", self._shard)
            _log.warning("%s: its read has taken %d s so far", job.descriptor, age_ms // 1000)
        if age_ms < self._rule.timeout_ms:
            return False
        job.given_up = True
        self._flying.remove(job)
        self._workers -= 1
        if self._is_over(job):
            return True
        again = _Job(job.descriptor, job.first_ms, attempt=job.attempt + 1, told=True)
        self._queue.appendleft(again)
        self._env.metrics.add("retries", self._shard)
        self._staff()
        self._changed.notify_all()
        return False
