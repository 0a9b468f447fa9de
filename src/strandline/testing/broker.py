"""A broker in memory that does as it is told: it loses, delays and repeats requests, and forgets.

    broker = Broker()
    cluster = ModelCluster(broker)          # one for each process

`before` is called with the name of every request that is about to leave a process, and again when
its answer has come (`commit`, `commit answered`): it may raise, let the process die, or say what
becomes of the request (`Fate`). What is on its way arrives when the test says so; what the broker
does by itself, markers and timeouts, it does at once, or when somebody waits for it, or when the
test says so. A seed is a whole history. What requests do, `broker_log` says.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from strandline.connectors.kafka_port import Message
from strandline.errors import SinkError, SinkFencedError
from strandline.testing.broker_log import Answer, BrokerLog, partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from strandline.connectors.kafka_port import Batch, Headers
    from strandline.testing.broker_log import Entry, Partition, Sent

T = TypeVar("T")

_WAITS_MAX = 2_000
_WAIT_MS = 50


class Fate(StrEnum):
    """What becomes of a request whose sender is told that there was no answer, or of its copy."""

    LOST = "lost"
    """It never arrives."""
    UNANSWERED = "unanswered"
    """It arrived; its answer did not."""
    LATE = "late"
    """It is still on its way."""
    TWICE = "twice"
    """It is answered, and a copy of it is still on its way."""


class Broker:
    """Shared by all processes."""

    def __init__(self, *, timeout_ms: float = 60_000, expiry_ms: float = 10**9) -> None:
        self.log = BrokerLog(timeout_ms=timeout_ms, expiry_ms=expiry_ms)
        self.now_ms = 0.0
        self.down = False
        """Whether nobody is answered."""
        self.lazy = False
        """Whether markers come one by one, when `work` is called, and not with the decision."""
        self.late: list[Callable[[], object]] = []
        """Requests on their way."""
        self.fenced: Counter[str] = Counter()
        """By transactional id: how often somebody was told so."""

    def arrive(self) -> None:
        """Let everything arrive that is on its way."""
        late, self.late = self.late, []
        for request in late:
            request()
            self.settle()

    def work(self, passed_ms: float = 0) -> None:
        """Let time pass, and the broker do one thing that it has to do."""
        self.now_ms += passed_ms
        self.log.expire(self.now_ms)
        self.log.mark()

    def settle(self) -> None:
        """Write the markers, unless they come one by one."""
        while not self.lazy and self.log.mark():
            continue


class Link:
    """How one process reaches the broker."""

    def __init__(
        self,
        broker: Broker,
        before: Callable[[str], Fate | None],
        wait: Callable[[], None],
    ) -> None:
        self.broker = broker
        self.before = before
        self._wait = wait

    def asked(self, step: str, request: Callable[[], T]) -> T:
        """The answer to a request, unless one of the two gets lost."""
        fate, broker = self.before(step), self.broker
        silent = SinkError(f"{step} was not answered")
        if broker.down or fate is Fate.LOST:
            raise silent
        if fate in {Fate.LATE, Fate.TWICE}:
            broker.late.append(request)
        if fate is Fate.LATE:
            raise silent
        answer = request()
        broker.settle()
        if fate is Fate.UNANSWERED:
            raise silent
        self.before(f"{step} answered")
        return answer

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for what the broker does by itself."""
        for _ in range(_WAITS_MAX):
            if reached():
                return
            self._wait()
        raise SinkError("the broker did not come to an end in time")


class ModelCluster:
    """The Cluster port on a broker, as one process has it."""

    def __init__(
        self,
        broker: Broker,
        before: Callable[[str], Fate | None] = lambda _: None,
        wait: Callable[[], None] | None = None,
    ) -> None:
        self._log = broker.log
        self._link = Link(broker, before, wait or (lambda: broker.work(_WAIT_MS)))

    def partitions(self, topic: str) -> int:
        return self._link.asked("metadata", lambda: len(self._log.topics.get(topic, ())))

    def identity(self, topic: str) -> int | None:
        def known() -> int | None:
            return self._log.identities[topic] if topic in self._log.topics else None

        return self._link.asked("metadata", known)

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        def created() -> None:
            if topic not in self._log.topics:
                self._log.grow(topic, partitions)
                self._log.policies[topic] = config.get("cleanup.policy", "delete")

        self._link.asked("create", created)

    def policy(self, topic: str) -> str:
        return self._link.asked("configs", lambda: self._log.policies.get(topic, "delete"))

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        found = self._link.asked("bounds", lambda: self._log.topics.get(topic))
        return {at: (each.first, each.end) for at, each in enumerate(_known(topic, found))}

    def committed(self, topic: str, start: Mapping[int, int] | None = None) -> Iterator[Message]:
        found = _known(topic, self._link.asked("bounds", lambda: self._log.topics.get(topic)))
        ends = [(each, each.end) for each in found]
        return self._read(ends, start or {})

    def outbox(self, transactional_id: str) -> ModelOutbox:
        return ModelOutbox(self._link, transactional_id)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _read(
        self, ends: list[tuple[Partition, int]], start: Mapping[int, int]
    ) -> Iterator[Message]:
        for number, (partition, end) in enumerate(ends):
            self._link.until(partial(_decided, partition, end))
            kept = self._link.asked("fetch", partial(_kept, partition, start.get(number, 0)))
            for each in kept:
                if each.offset < end:
                    yield Message(
                        number, each.offset, each.key, each.value, each.headers, round(each.sent_ms)
                    )


class ModelOutbox:
    """The Outbox port. It asks no more of its user than Kafka's protocol does."""

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._log = link.broker.log
        self._name = name
        self._who = (-1, -1)
        self._sequences: Counter[tuple[str, int]] = Counter()
        self._sent = 0
        self._failed = ""

    def init(self) -> None:
        def init() -> Answer:
            answer, producer, epoch = self._log.init(self._name, self._link.broker.now_ms)
            if answer is Answer.DONE:
                self._who = (producer, epoch)
            return answer

        self._request("init", init)
        self._sequences.clear()

    def begin(self) -> None:
        """Nobody is told: a transaction begins with its first record."""
        self._link.before("begin")
        self._sent, self._failed = 0, ""

    def send(self, topic: str, batch: Batch) -> None:
        count = len(_known(topic, self._log.topics.get(topic)))
        parts: dict[int, list[Sent]] = {}
        for at, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            headers: Headers = () if batch.headers is None else batch.headers[at]
            number = self._sent % count if key is None else partition_of(key, count)
            parts.setdefault(number, []).append((key, value, headers))
            self._sent += 1
        for number, records in parts.items():
            self._produce((topic, number), records)

    def _produce(self, place: tuple[str, int], records: list[Sent]) -> None:
        who, sequence = self._who, self._sequences[place]
        self._sequences[place] += 1

        def produce() -> Answer:
            now_ms = self._link.broker.now_ms
            return self._log.produce(self._name, who, place, (sequence, records), now_ms)

        try:
            self._request("produce", produce)
        except SinkError as error:
            # A client that does not know of a record commits nothing.
            self._failed = str(error)
            raise

    def commit(self) -> None:
        if self._failed:
            raise SinkError(f"nothing is committed: {self._failed}")
        if self._sent:
            self._end("commit", commit=True)

    def abort(self) -> None:
        if self._sent:
            self._end("abort", commit=False)

    def close(self) -> None:
        """Nothing is ended by it, and nobody is told."""

    def _end(self, step: str, *, commit: bool) -> None:
        who = self._who

        def end() -> Answer:
            now_ms = self._link.broker.now_ms
            answer = self._log.end(self._name, who, commit=commit, now_ms=now_ms)
            if answer is Answer.DONE and self._who == who:
                self._who = (who[0], self._log.owners[self._name].epoch)
            return answer

        self._request(step, end)
        if self._log.bumps:
            self._sequences.clear()

    def _request(self, step: str, request: Callable[[], Answer]) -> None:
        """Ask until the broker is no longer busy; say what its answer means."""
        answer = Answer.BUSY

        def asked() -> bool:
            nonlocal answer
            answer = self._link.asked(step, request)
            return answer is not Answer.BUSY

        self._link.until(asked)
        if answer is Answer.FENCED:
            self._link.broker.fenced[self._name] += 1
            raise SinkFencedError(f"{step}: {answer}")
        if answer is not Answer.DONE:
            raise SinkError(f"{step}: {answer}")


def _decided(partition: Partition, end: int) -> bool:
    return partition.stable >= end


def _kept(partition: Partition, start: int) -> list[Entry]:
    return list(partition.committed(start))


def _known(topic: str, found: list[Partition] | None) -> list[Partition]:
    if found is None:
        raise SinkError(f"there is no topic {topic}")
    return found
