"""What a transaction costs a sink whose view it does not change: no write at all.

A publisher follows a view and publishes it to a real Kafka broker. Then transactions come that
change the table behind the view, and nothing of the view. Counted are the writes of the publisher
in the store, at the ports, and what the broker got: the ends of the topic, of the progress topic
and of Kafka's own log of transactions. Claims are renewed, and leases kept and moved on, by the
clock, whatever comes: those writes are told apart. Beside it, what a transaction costs that
changes the view.

    make bench NAME=empty_transaction
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from report import Point, finish, show

import strandline
from strandline.connectors.kafka_target import PREFIX
from strandline.connectors.sink import SinkPorts
from strandline.handles.store import Store
from strandline.journal.log import Journal
from strandline.journal.timeline import timeline_of
from strandline.pipeline import claim
from strandline.pipeline.claims import Claims
from strandline.pipeline.publish import Publisher
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.sinks import targets
from strandline.shard import pulse
from strandline.shard.pulses import TaskHeart
from strandline.store.consensus import CasResult
from strandline.testing.engines import arrow_engine
from strandline.views.parse import parse

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.broker.broker import Broker, missing
from tests.broker.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator

SQL = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 1000;
CREATE SINK out FROM large USING kafka
  OPTIONS (kafka.bootstrap.servers '{servers}', topic '{topic}', envelope 'changes', key 'id');
"""
ROWS = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=5)
LOG = "__transaction_state"
WRITES = ("compare_and_set", "truncate", "put", "delete")
PATIENCE_S = 300


class Counting:
    """A port that counts its writes, by kind of key."""

    def __init__(self, port: object, counts: Counter[str]) -> None:
        self._port = port
        self._counts = counts

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        found = getattr(self._port, name)
        if name not in WRITES:
            return found

        def counted(key: str, *more: object) -> object:
            answer = found(key, *more)
            self._counts[_kind(key)] += answer is not CasResult.MISMATCH
            return answer

        return counted


def _kind(key: str) -> str:
    if key.startswith(claim.KEY_PREFIX):
        return "claim"
    return "pulse" if key.startswith(pulse.KEY_PREFIX) else "other"


def counted_store(url: str, counts: Counter[str]) -> Store:
    """A store as another process opens it, for the publisher alone."""
    plain = strandline.open(url, upkeep=False).env
    env = replace(
        plain,
        consensus=Counting(plain.consensus, counts),  # type: ignore[arg-type]
        blob=Counting(plain.blob, counts),  # type: ignore[arg-type]
        timelines=lambda name: timeline_of(env, name),
    )

    def heart(lease_ms: int) -> TaskHeart:
        return TaskHeart(env.consensus, env.tasks, env.random, lease_ms=lease_ms, owner="bench")

    return Store(env, heart, url=url, is_here=lambda: True)


class Stand:
    """A pipeline, its publisher on a store that counts, and the broker."""

    def __init__(self, folder: Path, topics: Topics) -> None:
        self._topics = topics
        self.topic = topics.make(1)
        self._url, self.counts = str(folder / "lake"), Counter[str]()
        self._sql = SQL.format(servers=topics.address, topic=self.topic)
        self._next = 0

    @contextmanager
    def publishing(self) -> Iterator[None]:
        with strandline.open(self._url, upkeep=False) as store:
            made = store.pipeline("shop", self._sql, settings=SETTINGS, engine=arrow_engine)
            with made as self._shop:
                self.commit(2_000)
                counted = counted_store(self._url, self.counts)
                self._metrics = counted.env.metrics
                journal = Journal(counted.env, "shop")
                journal.refresh()
                ports = SinkPorts(str, counted.env.random.token)
                target = targets(parse(self._sql), ports)[0]
                self._claims = Claims(counted.env, "shop", "out", name="eye", lease_ms=1)
                self._publisher = Publisher(counted, journal, target, SETTINGS, "bench")
                self._publisher.start()
                try:
                    self.catch_up()
                    yield
                finally:
                    self._publisher.stop()
                    counted.close()

    def commit(self, amount: int) -> None:
        """One transaction with one new order."""
        self._next += 1
        row = pa.table({"id": [self._next], "amount": [amount]}, schema=ROWS)
        with self._shop.transaction() as transaction:
            transaction.insert("orders", row)

    def catch_up(self) -> None:
        last = self._shop.committed.last()
        deadline = time.monotonic() + PATIENCE_S
        while self._publisher.status().reached < (last or 0):
            if time.monotonic() > deadline:
                raise SystemExit(f"the publisher is not done: {self._publisher.status()}")
            time.sleep(0.01)

    def written(self, amount: int, transactions: int) -> Counter[str]:
        """What so many transactions with such orders make the publisher write, and where."""
        before, marks = self._seen(), self._marks()
        for _ in range(transactions):
            self.commit(amount)
            self.catch_up()
        found = self._seen()
        found.subtract(before)
        found["intents and dones"] = sum(a != b for a, b in zip(marks, self._marks(), strict=True))
        return found

    def _seen(self) -> Counter[str]:
        names = [self.topic, LOG, *self._progress()]
        ends = {
            ("progress" if name.startswith(PREFIX) else name if name == LOG else "topic"): (
                self._topics.end_of(name, stable=False)
            )
            for name in names
        }
        found = Counter({**ends, **self.counts})
        moved = sum(int(each) for name, _, each in self._metrics.table() if name == "downgrades")
        found.subtract({"other": moved, "pulse": -moved})
        return found

    def _progress(self) -> list[str]:
        return [each for each in self._topics.names() if each.startswith(PREFIX)]

    def _marks(self) -> list[tuple[int, int]]:
        return [(each.intent, each.done) for each in self._claims.read().marks.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--transactions", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if lacking := missing():
        raise SystemExit(f"no broker: {lacking}")
    count = 20 if options.quick else options.transactions
    with tempfile.TemporaryDirectory(prefix="empty-transaction-") as scratch:
        node = Broker(Path(scratch) / "broker")
        try:
            node.start()
            topics = Topics(node.address)
            stand = Stand(Path(scratch), topics)
            with stand.publishing():
                full = stand.written(2_000, count)
                empty = stand.written(1, count)
            topics.close()
        finally:
            node.stop()
    places = {
        "the topic": "topic",
        "the progress topic": "progress",
        "Kafka's log of transactions": LOG,
        "the claim's record of intents and dones": "intents and dones",
        "the store, by the publisher": "other",
        "renewals of the claim, by the clock": "claim",
        "leases, by the clock": "pulse",
    }
    rows = [[place, f"{empty[each]:,}", f"{full[each]:,}"] for place, each in places.items()]
    show(
        f"writes of {count} transactions each",
        ["to", "view unchanged", "view changed"],
        rows,
    )
    counted = ("topic", "progress", LOG, "intents and dones", "other")
    mine, beside = (sum(found[each] for each in counted) for found in (empty, full))
    if beside < count:
        raise SystemExit("transactions that change the view left nothing: nothing was counted")
    name = "empty_transaction: writes of transactions that do not change the view"
    finish([Point(name, mine, beside, mine / count, "0", mine == 0)])
    return 0 if mine == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
