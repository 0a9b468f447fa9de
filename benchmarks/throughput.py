"""Rows a second from a real Kafka broker into a keyed table, beside Structured Streaming and MERGE.

Tables of 1 M and 10 M keys; each batch upserts 1 % of the keys, spread over the whole table. The
same topic goes through a pipeline, a transaction a batch, and through Spark Structured Streaming
with `foreachBatch` and Delta's MERGE, with deletion vectors, a micro-batch a batch. In turns.
Rows a second are those of the median batch, reading from Kafka and decoding JSON included, and on
our side compaction in the background; Delta's table is never optimised on the way.

Then two replicas, each a process with half of the cores, on one stream, beside one such replica.

    make bench NAME=throughput
    make bench NAME=throughput ARGS="--large 0"      1 M keys alone
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow.parquet as pq
from confluent_kafka import Producer
from delta import Delta
from orders import SCHEMA, median, orders, parser, say, spark_session, workspace, write_orders
from report import Point, finish, show

import strandline
from strandline.pipeline.settings import PipelineSettings
from strandline.spark import session
from strandline.spark.engines import spark_engine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.broker.broker import Broker, missing
from tests.broker.topics import Topics

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from strandline import Store
    from strandline.pipeline.pipeline import Pipeline

SQL = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount DOUBLE, name STRING, placed BIGINT,
                     PRIMARY KEY (id))
  USING kafka OPTIONS (kafka.bootstrap.servers '{servers}', subscribe '{topic}', format 'json',
                       envelope 'upsert', startingOffsets 'earliest');
"""
PARTITIONS = 2
STAGED_ROWS = 1_000_000
PATIENCE_S = 600


@dataclass(frozen=True, slots=True)
class Stream:
    """A topic of batches that touch 1 % of the keys each."""

    topics: Topics
    topic: str
    keys: int
    numbers: Iterator[int]

    @property
    def batch(self) -> int:
        return self.keys // 100

    @property
    def sql(self) -> str:
        return SQL.format(servers=self.topics.address, topic=self.topic)

    def ids(self, number: int) -> np.ndarray:
        """The keys of a batch: all different, as MERGE insists."""
        return np.random.default_rng(number).choice(self.keys, self.batch, replace=False)

    def write(self, batches: int) -> None:
        writer = Producer(
            {"bootstrap.servers": self.topics.address, "linger.ms": 50, "log_level": 0}
        )
        for number in (next(self.numbers) for _ in range(batches)):
            for at, row in enumerate(orders(self.ids(number), number).to_pylist()):
                # Half of each batch lies in each partition, so that a batch is one for everybody.
                value = json.dumps(row).encode()
                while True:
                    try:
                        writer.produce(self.topic, value, partition=at % PARTITIONS)
                        break
                    except BufferError:
                        writer.poll(0.1)
            if writer.flush(PATIENCE_S):
                raise SystemExit("the broker did not take all rows")


def main() -> None:
    made = parser(__doc__ or "")
    made.add_argument("--keys", type=int, default=1_000_000)
    made.add_argument("--large", type=int, default=10_000_000, help="0 leaves it out")
    made.add_argument("--batches", type=int, default=4, help="of each turn, the first warms up")
    made.add_argument("--replica", help="of a replica that this program starts")
    made.add_argument("--folder")
    made.add_argument("--sql")
    made.add_argument("--rows", type=int)
    options = made.parse_args()
    if options.replica:
        run_replica(options)
        return
    if lacking := missing():
        raise SystemExit(f"no broker: {lacking}")
    options.repeat = min(options.repeat, 3)
    if options.quick:
        options.keys, options.large, options.repeat = 100_000, 0, 1
    with workspace() as folder, broker(folder) as topics:
        found = {}
        with spark_session(options) as spark:
            for count in filter(None, (options.keys, options.large)):
                found[count] = measure(spark, topics, folder / f"{count}", count, options)
        alone, both = replicas(topics, folder / "replicas", options)
    tell(found, alone, both, options)


@contextmanager
def broker(folder: Path) -> Iterator[Topics]:
    home = folder / "broker"
    home.mkdir()
    node = Broker(home)
    try:
        node.start()
        topics = Topics(node.address)
        yield topics
        topics.close()
    finally:
        node.stop()


def new_stream(topics: Topics, keys: int) -> Stream:
    return Stream(topics, topics.make(PARTITIONS), keys, iter(range(10**6)))


# ---- beside Delta


def measure(
    spark: SparkSession, topics: Topics, folder: Path, keys: int, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """The seconds of batches, ours and Delta's."""
    folder.mkdir()
    plain = write_orders(spark, keys, folder / "plain")
    stream = new_stream(topics, keys)
    ours, peers = [], []
    with (
        strandline.open(str(folder / "lake")) as store,
        opened(store, stream, spark_engine(spark)) as shop,
        Delta(options, folder / "delta") as delta,
    ):
        load(shop, plain)
        say("loading Delta's table")
        delta.load("orders", plain)
        # The first turn warms both up.
        for number in range(options.repeat + 1):
            stream.write(options.batches)
            before = shop.committed.time or 0
            shop.run(until_idle=True)
            mine = batch_seconds(shop, before, stream.batch, options.batches)
            theirs = delta.stream("orders", topics.address, stream.topic, stream.batch)
            say(f"turn {number}: ours {mine}, Delta {theirs}")
            if number:
                ours += mine
                peers += theirs[1:]
        check(shop, stream)
    return ours, peers


def opened(store: Store, stream: Stream, engine: object = None) -> Pipeline:
    settings = PipelineSettings(rows_max=stream.batch, bytes_max=1 << 40, delay_ms=500, retain=2)
    return store.pipeline("shop", stream.sql, settings=settings, engine=engine)  # type: ignore[arg-type]


def load(shop: Pipeline, plain: Path) -> None:
    """The rows of plain Parquet, by explicit transactions."""
    say("loading our table")
    for file in sorted(plain.glob("*.parquet")):
        rows: pa.Table = pq.read_table(file, schema=SCHEMA)
        for first in range(0, rows.num_rows, STAGED_ROWS):
            with shop.transaction() as transaction:
                transaction.insert("orders", rows.slice(first, STAGED_ROWS))
    shop.checkpoint()


def batch_seconds(shop: Pipeline, before: int, rows: int, batches: int) -> list[float]:
    """From commit to commit, without the first."""
    seen = shop.history((shop.committed.time or 0) - before)[::-1]
    seen = [each for each in seen if each.rows]
    if [each.rows for each in seen] != [rows] * batches:
        raise SystemExit(f"transactions of {[each.rows for each in seen]} rows")
    instants = [each.instant_ms for each in seen]
    return [(b - a) / 1000 for a, b in pairwise(instants)]


def check(shop: Pipeline, stream: Stream) -> None:
    """There is a row for every key, and those of the last batch are as it said."""
    last = next(stream.numbers) - 1
    found = shop.collection("orders").snapshot(columns=["id", "placed"]).to_arrow()
    if found.num_rows != stream.keys:
        raise SystemExit(f"{found.num_rows:,} rows where there are {stream.keys:,} keys")
    placed = dict(zip(*(found[name].to_pylist() for name in ("id", "placed")), strict=True))
    for row in orders(stream.ids(last), last).to_pylist():
        if placed[row["id"]] != row["placed"]:
            raise SystemExit(f"order {row['id']} is not what the last batch said")


# ---- two replicas


def run_replica(options: argparse.Namespace) -> None:
    """What a replica of the second part does, in a process of its own."""
    session("replica", master=f"local[{options.cores}]")
    settings = PipelineSettings(
        rows_max=options.rows, bytes_max=1 << 40, delay_ms=500, retain=2, poll_ms=20
    )
    with strandline.open(options.folder) as store:
        shop = store.pipeline("shop", options.sql, replica=options.replica, settings=settings)
        shop.start()
        print("started", flush=True)
        sys.stdin.read()


class Replica:
    """Such a process. Use it with `with`."""

    def __init__(self, folder: Path, name: str, stream: Stream, cores: int) -> None:
        self._log = folder / f"{name}.log"
        told = ["--replica", name, "--folder", str(folder / "lake"), "--sql", stream.sql]
        told += ["--rows", str(stream.batch), "--cores", str(cores)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, *told],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit(f"a replica ended: {self._log.read_text()[-4000:]}")
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def replicas(
    topics: Topics, folder: Path, options: argparse.Namespace
) -> tuple[list[float], list[float]]:
    """The seconds of batches by one replica and by two; one is measured before and after."""
    folder.mkdir()
    stream = new_stream(topics, options.keys)
    cores = max(1, options.cores // 2)
    with spark_session(options) as spark:
        plain = write_orders(spark, stream.keys, folder / "plain")
        with (
            strandline.open(str(folder / "lake")) as store,
            opened(store, stream, spark_engine(spark)) as shop,
        ):
            load(shop, plain)
    alone, both = [], []
    with strandline.open(str(folder / "lake"), upkeep=False) as store, ExitStack() as stack:
        shop = opened(store, stream)
        stack.enter_context(Replica(folder, "a", stream, cores))
        # The first of each form warms up.
        for number in range(options.repeat + 1):
            found = turn(shop, stream, options.batches)
            say(f"one replica: {found}")
            alone += found if number else []
            with Replica(folder, "b", stream, cores):
                turn(shop, stream, options.batches)
                found = turn(shop, stream, options.batches)
            say(f"two replicas: {found}")
            both += found if number else []
    return alone, both


def turn(shop: Pipeline, stream: Stream, batches: int) -> list[float]:
    """Let rows come while everybody rests, then let them go; the seconds of each batch."""
    shop.pause()
    until("everybody rests", lambda: states(shop) <= {"paused"})
    before = shop.committed.time or 0
    stream.write(batches)
    shop.resume()
    rows = batches * stream.batch
    until("all rows are in", lambda: taken(shop, before) >= rows)
    return batch_seconds(shop, before, stream.batch, batches)


def taken(shop: Pipeline, before: int) -> int:
    new = (shop.committed.time or 0) - before
    return sum(each.rows for each in shop.history(new)) if new else 0


def states(shop: Pipeline) -> set[str]:
    return {each.state for each in shop.status().replicas if each.alive}


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"within {PATIENCE_S} s it did not happen that {what}")
        time.sleep(0.05)


# ---- what came of it


def tell(
    found: dict[int, tuple[list[float], list[float]]],
    alone: list[float],
    both: list[float],
    options: argparse.Namespace,
) -> None:
    rates = {
        keys: (keys / 100 / median(ours), keys / 100 / median(peers))
        for keys, (ours, peers) in found.items()
    }
    show(
        "rows a second from Kafka, batches of 1 % of the keys",
        ["keys", "ours", "seconds", "streaming + MERGE", "seconds", "times faster"],
        [
            [
                f"{keys:,}",
                f"{ours:,.0f}",
                f"{median(found[keys][0]):.2f}",
                f"{peer:,.0f}",
                f"{median(found[keys][1]):.2f}",
                f"{ours / peer:.1f}",
            ]
            for keys, (ours, peer) in rates.items()
        ],
    )
    batch = options.keys / 100
    one, two = batch / median(alone), batch / median(both)
    points = [
        Point(
            f"throughput: rows a second, {keys:,} keys, ours / MERGE",
            ours,
            peer,
            ours / peer,
            ">= 5" if keys >= 10_000_000 else "shown",
            keys < 10_000_000 or ours / peer >= 5,
        )
        for keys, (ours, peer) in rates.items()
    ]
    name = "throughput: rows a second of each of two replicas / of one alone"
    finish([*points, Point(name, two, one, two / one, ">= 0.8", two / one >= 0.8)])


if __name__ == "__main__":
    main()
