"""Rows a second from a shard into a real Kafka broker, exactly once, beside Spark's own sink.

The same orders go to a topic of the same broker twice, in turns: from a compacted shard through
the Kafka sink with envelope `upsert`, from the first read to the commit of the one transaction
that they are, with its progress in it; and from plain Parquet through `df.write.format("kafka")`
with the same keys and values, which promises each message at least once. A topic a turn. Spark
runs warm, with as many tasks as there are cores and a file for each.

    make bench NAME=kafka_throughput
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from delta import Delta
from orders import SCHEMA, median, parser, say, seconds, spark_session, workspace, write_orders
from report import Point, finish, show

import strandline
from strandline.connectors.kafka_client import KafkaCluster
from strandline.connectors.kafka_sink import open_sink
from strandline.connectors.kafka_target import target_of
from strandline.connectors.sink import NOTHING_YET, Address, Delivered, Progress, SinkPorts
from strandline.pipeline.outgoing import Outgoing, Wish

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.broker.broker import Broker, missing
from tests.broker.topics import Topics

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from strandline.handles.shard import Shard

PARTITIONS = 3
KEY = ("id",)
NUMBERS = count()


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--rows", type=int, default=1_000_000)
    options = made.parse_args()
    if lacking := missing():
        raise SystemExit(f"no broker: {lacking}")
    if options.quick:
        options.rows, options.repeat = 50_000, 1
    with workspace() as folder, broker(folder) as topics:
        with spark_session(options) as spark:
            plain = write_orders(spark, options.rows, folder / "plain", files=options.cores)
        with (
            strandline.open(str(folder / "lake"), upkeep=False) as store,
            Delta(options, folder / "peer") as peer,
        ):
            shard = store.shard("orders", schema=SCHEMA, key=list(KEY))
            load(shard, plain)
            ours, theirs = measure(shard, topics, peer, plain, options)
    tell(ours, theirs, options)


@contextmanager
def broker(folder: Path) -> Iterator[Topics]:
    node = Broker(folder / "broker")
    try:
        node.start()
        topics = Topics(node.address)
        yield topics
        topics.close()
    finally:
        node.stop()


def load(shard: Shard, plain: Path) -> None:
    say("loading our shard")
    with shard.writer() as writer:
        writer.append(pq.read_table(plain, schema=SCHEMA))
    shard.compact(full=True)


def measure(
    shard: Shard, topics: Topics, peer: Delta, plain: Path, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """The seconds of each turn, ours and Spark's; the first turn warms both up."""
    ours, theirs = [], []
    for number in range(options.repeat + 1):
        topic = topics.make(PARTITIONS)
        ours.append(seconds(lambda topic=topic: publish(shard, topics.address, topic)))  # type: ignore[misc]
        if number == 0:
            check(topics, topic, options.rows)
        topics.drop(topic)
        topic = topics.make(PARTITIONS)
        theirs.append(peer.publish(plain, topics.address, topic))
        if number == 0:
            check(topics, topic, options.rows)
        topics.drop(topic)
        say(f"turn {number}: ours {ours[-1]:.2f} s, Spark {theirs[-1]:.2f} s")
    return ours[1:], theirs[1:]


def publish(shard: Shard, servers: str, topic: str) -> None:
    """All of a shard as one transaction, as a publisher that has the claim does it."""
    what = Delivered(Address("bench", "shop", topic, "first"), SCHEMA, KEY)
    told = {"kafka.bootstrap.servers": servers, "topic": topic, "envelope": "upsert"}
    sink = open_sink(told, what, SinkPorts(resolve=str, token=lambda: str(next(NUMBERS))))
    sink.prepare()
    if sink.progress() is None:
        sink.found(Progress(NOTHING_YET, 1))
    hold = f"sink.bench.{topic}"
    with Outgoing(shard, None, NOTHING_YET, hold, Wish(SCHEMA.names, KEY)) as outgoing:
        found = None
        while found is None:
            found = outgoing.next(1_000)
        sink.deliver(found.t, 1, found.batches())
        outgoing.delivered(found.t)
    sink.close()


def check(topics: Topics, topic: str, rows: int) -> None:
    """Each order is there once: neither of them has sent less."""
    what = Delivered(Address("bench", "shop", topic, "first"), SCHEMA, KEY)
    told = {"kafka.bootstrap.servers": topics.address, "topic": topic, "envelope": "upsert"}
    cluster = KafkaCluster(target_of(told, what), str)
    keys = [each.key for each in cluster.committed(topic)]
    cluster.close()
    if (len(keys), len(set(keys))) != (rows, rows):
        raise SystemExit(f"{topic} has {len(keys):,} messages of {len(set(keys)):,} keys")


def tell(ours: list[float], theirs: list[float], options: argparse.Namespace) -> None:
    mine, peer = options.rows / median(ours), options.rows / median(theirs)
    show(
        f"{options.rows:,} orders into Kafka",
        ["sink", "promises", "rows a second", "seconds"],
        [
            ["ours", "exactly once", f"{mine:,.0f}", f"{median(ours):.2f}"],
            ["Spark's", "at least once", f"{peer:,.0f}", f"{median(theirs):.2f}"],
        ],
    )
    name = "kafka_throughput: rows a second, ours exactly once / Spark's sink at least once"
    finish([Point(name, mine, peer, mine / peer, ">= 0.7", mine / peer >= 0.7)])


if __name__ == "__main__":
    main()
