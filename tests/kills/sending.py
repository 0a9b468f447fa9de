"""Replicas publish to a real broker while they and the broker are killed, and a reader looks on.

    a cycle   wait for more messages ─► kill -9 of one replica, of both, or of the broker; or one
              is stopped for longer than its claim lasts, and comes back as a zombie
    reader    reads committed messages all along, from the first one on
    the end   both stop in order; the topic must have each change of the table once, in order of
              time in every partition, and the reader must have seen just that

What must be there is told by the shard (`sent`): its changes at every time that the topic has, and
no time with changes in between may be missing.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition
from tests.kills.racing import Racing
from tests.kills.sent import Change, Sent

from strandline.connectors.sink import NOTHING_YET

if TYPE_CHECKING:
    from tests.broker.broker import Broker
    from tests.broker.topics import Topics

SEED = 20_261_118
PARTITIONS = 3
KINDS = ("kill one", "kill one", "kill the broker", "kill both", "stop one beyond its leases")
_TABLE = """
CREATE TABLE orders (id BIGINT, customer INT, amount BIGINT, paid BOOLEAN, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '{keys}', deletes '0.1', rowsPerSecond '{pace}');
CREATE SINK out FROM orders USING kafka
  OPTIONS (kafka.bootstrap.servers '{servers}', topic '{topic}', envelope 'changes', key 'id');
"""


class Reader:
    """Reads a topic's committed messages beside everything else, and never starts again."""

    def __init__(self, address: str, topic: str) -> None:
        self.seen: dict[int, list[tuple[int, bytes]]] = {n: [] for n in range(PARTITIONS)}
        self._ended = threading.Event()
        self._consumer = consumer(address)
        self._consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(1_000, 0.1):
                if message.error() is None:
                    value = message.value() or b""
                    self.seen[message.partition()].append((message.offset(), value))


def consumer(address: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def all_committed(address: str, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes]]]:
    """Offsets and values that are committed in the end, by partition."""
    reading = consumer(address)
    found: dict[int, list[tuple[int, bytes]]] = {}
    for number in range(partitions):
        found[number] = []
        reading.assign([TopicPartition(topic, number, 0)])
        while not _read_some(reading, found[number]):
            continue
    reading.close()
    return found


def _read_some(reading: Consumer, into: list[tuple[int, bytes]]) -> bool:
    """Whether the end of a partition was reached."""
    for message in reading.consume(10_000, 0.5):
        error = message.error()
        if error is None:
            into.append((message.offset(), message.value() or b""))
        elif error.name() == "_PARTITION_EOF":
            return True
    return False


class Sending:
    """A run in a folder of its own, on a broker that may be killed."""

    def __init__(
        self,
        folder: Path,
        broker: Broker,
        topics: Topics,
        *,
        seed: int = SEED,
        rows: int = 50,
        engine: str = "arrow",
    ) -> None:
        """`rows` are those of a transaction; `engine` may name a mutant: `arrow!its_name`."""
        self._broker = broker
        self._random = random.Random(seed)
        self._topic = topics.make(PARTITIONS)
        text = _TABLE.format(
            keys=rows * 20, pace=rows * 20, servers=broker.address, topic=self._topic
        )
        self._race = Racing(
            folder,
            seed=seed,
            engine=engine,
            text=text,
            more={"kill the broker": self._kill_the_broker},
            words=("run", "--rows", str(rows), "--delay", "20"),
        )
        self.sent = Sent()

    def run(self, messages: int, kills: int, kinds: Sequence[str] = ()) -> Sent:
        """At least so many messages, and so many kills spread over them: of these kinds, one after
        the other, or of any."""
        began = time.monotonic()
        reader = Reader(self._broker.address, self._topic)
        try:
            self._race.start()
            for number in range(1, kills + 1):
                self._arrives(reader, messages * number // (kills + 1))
                kind = kinds[number - 1] if kinds else self._random.choice(KINDS)
                self._race.strike(kind)
                if not kind.startswith("kill"):
                    self._race.strike("kill one")
            self._arrives(reader, messages)
            self._race.stop()
            self.sent.wrong += self._race.outcome.wrong
            if not self.sent.wrong:
                self._judge(reader)
        finally:
            reader.stop()
            self._race.close()
        self.sent.kills = self._race.outcome.done
        self.sent.seconds = time.monotonic() - began
        return self.sent

    def _kill_the_broker(self) -> None:
        self._broker.kill()
        time.sleep(self._random.uniform(0, 1.0))
        self._broker.start()

    def _arrives(self, reader: Reader, count: int) -> None:
        """Wait until the reader has so many; every message has to arrive some time."""
        if self._race.outcome.wrong:
            return
        patience_s = max(self._race.patience_s, count / 200)
        if not self._race.watch.wait(lambda: reader.count >= count, patience_s):
            words = "\n".join(life.last_words() for life in self._race.replicas)
            self._race.outcome.wrong.append(
                f"{reader.count} of {count} messages within {patience_s} s\n{words}"
            )

    def _judge(self, reader: Reader) -> None:
        final = all_committed(self._broker.address, self._topic, PARTITIONS)
        self.sent.messages = sum(map(len, final.values()))
        self._race.watch.wait(lambda: reader.count >= self.sent.messages, 60)
        if reader.seen != final:
            self.sent.wrong.append(
                f"the reader saw {reader.count} messages on the way, and {self.sent.messages} are "
                "there: not the same, or not in the same order"
            )
        times: dict[int, Counter[Change]] = {}
        for partition, messages in final.items():
            last = NOTHING_YET
            for _, value in messages:
                found = json.loads(value)
                if found["time"] < last:
                    self.sent.reorderings += 1
                    self.sent.wrong.append(f"{found['time']} after {last} in {partition}")
                last = found["time"]
                row = json.dumps(found["row"], sort_keys=True)
                times.setdefault(last, Counter())[row, found["diff"]] += 1
        self.sent.judge(self._race.watch.shard("orders"), times)
