"""The target's disk is full: a sink says so, tries again, and goes on when there is space again.

A small tmpfs is the disk, which only root can mount; a ballast leaves so many pages of it free.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.broker.broker import Broker, missing
from tests.broker.topics import Topics
from tests.kills.sending import all_committed
from tests.kills.watch import Watch

import strandline
from strandline.connectors.files_sink import read_published
from strandline.connectors.sink import SinkPorts
from strandline.journal.log import Journal
from strandline.pipeline.publish import Publisher, SinkState
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.sinks import targets
from strandline.testing.engines import arrow_engine
from strandline.views.parse import parse

pytestmark = [pytest.mark.process, pytest.mark.chaos, pytest.mark.timeout(600)]

PATIENCE_S = 200
TABLE = "CREATE TABLE orders (id BIGINT, note STRING, PRIMARY KEY (id)) USING http;\n"
ROWS = pa.schema([("id", pa.int64()), ("note", pa.string())])
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=5)


class Disk:
    """A file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, pages: int) -> None:
        """Leave so many pages free."""
        found = os.statvfs(self.folder)
        taken = max(0, found.f_bavail - pages) * found.f_frsize
        self._ballast.write_bytes(bytes(taken))

    def free(self) -> None:
        self._ballast.unlink()


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Disk]:
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("a full disk is a small tmpfs, and it can't be mounted here: that takes root")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Shop:
    """A pipeline with one sink, and its publisher."""

    def __init__(self, folder: Path, sink: str) -> None:
        text = TABLE + sink
        self._store = strandline.open(str(folder / "lake"), upkeep=False)
        self._shop = self._store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)
        self._watch = Watch(folder / "lake")
        self.expected: dict[int, Counter[tuple[int, int]]] = {}
        self._journal = Journal(self._store.env, "shop")
        self.last = self.commit(1)
        target = targets(parse(text), SinkPorts(str, self._store.env.random.token))[0]
        self._publisher = Publisher(self._store, self._journal, target, SETTINGS, "a")
        self._publisher.start()
        self.catch_up()

    def commit(self, rows: int) -> int:
        first = sum(map(len, self.expected.values()))
        ids = [*range(first, first + rows)]
        table = pa.table({"id": ids, "note": [f"note {n}" for n in ids]}, schema=ROWS)
        with self._shop.transaction() as transaction:
            transaction.insert("orders", table)
        t = self._shop.committed.last()
        assert t is not None
        self.expected[t] = Counter((each, 1) for each in ids)
        self.last = t
        self._journal.refresh()
        return t

    def catch_up(self) -> None:
        self.until(self.has_all)

    def has_all(self) -> bool:
        return self._publisher.status().reached >= self.last

    def tries_again(self, why: str = "") -> bool:
        """Whether it says that it does, and why."""
        status = self._publisher.status()
        stuck = status.state is SinkState.RETRYING and status.still_ms > 0
        return stuck and status.retries > 1 and why in status.cause

    def until(self, holds: Callable[[], bool]) -> None:
        assert self._watch.wait(holds, PATIENCE_S), self._publisher.status()

    def close(self) -> None:
        self._publisher.stop()
        self._watch.close()
        self._shop.close()
        self._store.close()


def test_a_full_disk_holds_files_up_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    """Filled to every page at which one delivery can stop, until one has enough."""
    with disk(tmp_path / "disk", "256k") as target:
        out = target.folder / "out"
        shop = Shop(tmp_path, f"CREATE SINK out FROM orders USING files OPTIONS (path '{out}');")
        try:
            held_up = 0
            for pages in range(12):
                target.fill(pages)
                shop.commit(20)
                shop.until(lambda: shop.has_all() or shop.tries_again("No space left"))
                done = shop.has_all()
                held_up += not done
                target.free()
                shop.catch_up()
                if done:
                    break
        finally:
            shop.close()
        found = {each.t: changes(each.to_arrow()) for each in read_published(out)}
    assert found == shop.expected
    assert held_up >= 2, "within a file, and within a manifest"


def changes(rows: pa.Table) -> Counter[tuple[int, int]]:
    return Counter(zip(rows["id"].to_pylist(), rows["_diff"].to_pylist(), strict=True))


@pytest.mark.slow
def test_a_broker_whose_disk_was_full_gets_everything_once(tmp_path: Path) -> None:
    """It may end by itself, and is started again when there is space."""
    if trouble := missing():
        pytest.skip(f"no Kafka broker: {trouble}")
    with disk(tmp_path / "disk", "128m") as target:
        broker = Broker(target.folder / "broker")
        broker.start()
        topics = Topics(broker.address)
        topic = topics.make(3)
        shop = Shop(
            tmp_path,
            "CREATE SINK out FROM orders USING kafka OPTIONS (kafka.bootstrap.servers "
            f"'{broker.address}', topic '{topic}', envelope 'changes', key 'id', "
            "timeoutMs '5000');",
        )
        try:
            for _ in range(3):
                target.fill(0)
                shop.commit(5_000)
                shop.until(shop.tries_again)
                target.free()
                broker.kill()
                broker.start()
                shop.catch_up()
            found = told(all_committed(broker.address, topic, 3))
        finally:
            shop.close()
            topics.close()
            broker.stop()
    assert found == shop.expected


def told(messages: dict[int, list[tuple[int, bytes]]]) -> dict[int, Counter[tuple[int, int]]]:
    found: dict[int, Counter[tuple[int, int]]] = {}
    for partition in messages.values():
        for _, value in partition:
            each = json.loads(value)
            found.setdefault(each["time"], Counter())[each["row"]["id"], each["diff"]] += 1
    return found
