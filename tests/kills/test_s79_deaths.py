"""S79, G14: a publisher dies at each point of one delivery, another goes on; exactly once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.broker.proxy import END_TRANSACTION, Proxy
from tests.kills.dying import BEFORE_THE_REPLY, POINTS
from tests.kills.fleet import Fleet, Life
from tests.kills.sending import all_committed
from tests.kills.watch import Watch

import strandline
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

pytestmark = [pytest.mark.process, pytest.mark.chaos, pytest.mark.timeout(3600)]

SEED = 20_261_118
PATIENCE_S = 100
TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE TABLE others (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE SINK out FROM orders USING kafka
  OPTIONS (kafka.bootstrap.servers '{servers}', topic '{topic}', envelope 'changes', key 'id');
"""
ROWS = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
SETTINGS = PipelineSettings(delay_ms=0, poll_ms=5)


class Deaths:
    """Publishers that die one after the other; each finishes what the one before it left."""

    def __init__(self, folder: Path, proxy: Proxy, broker, topics, partitions: int) -> None:
        self._folder, self._proxy, self._broker = folder, proxy, broker
        self._partitions = partitions
        self._topic = topics.make(partitions)
        self._text = TEXT.format(servers=proxy.address, topic=self._topic)
        (folder / "shop.sql").write_text(self._text)
        self._fleet = Fleet(folder / "said")
        self._store = strandline.open(str(folder / "lake"), upkeep=False)
        self._shop = self._store.pipeline(
            "shop", self._text, settings=SETTINGS, engine=arrow_engine
        )
        self._watch = Watch(folder / "lake")
        self._next = 0
        self.expected: dict[int, Counter[tuple[int, int]]] = {}
        self.last = self._commit(0)

    def die(self, point: str, rows: int, records: int) -> None:
        """Let a publisher catch up, commit so many rows, and see it die at a point of them."""
        life = self._start(point, records)
        self._until(life, lambda: self._reached(life) >= self.last)
        if point == BEFORE_THE_REPLY and rows:
            self._proxy.lose_answers_to(END_TRANSACTION)
        self.last = self._commit(rows)
        if not rows:
            self._until(life, lambda: self._reached(life) >= self.last)
            life.kill()
            return
        if point == BEFORE_THE_REPLY:
            self._until(life, self._proxy.caught.is_set)
            life.kill()
            self._proxy.mend()
            return
        self._until(life, lambda: not life.alive())
        life.killed = True
        assert not life.ended_well()

    def finish(self) -> dict[int, Counter[tuple[int, int]]]:
        """The last one is left alone; then what readers of committed messages see, by time."""
        life = self._start("", 0)
        self._until(life, lambda: self._reached(life) >= self.last)
        life.kill()
        found: dict[int, Counter[tuple[int, int]]] = {}
        for messages in all_committed(self._broker.address, self._topic, self._partitions).values():
            told = [json.loads(value) for _, value in messages]
            times = [each["time"] for each in told]
            assert times == sorted(times), "out of order"
            for each in told:
                change = (each["row"]["id"], each["diff"])
                found.setdefault(each["time"], Counter())[change] += 1
        return found

    def close(self) -> None:
        self._fleet.close()
        self._watch.close()
        self._shop.close()
        self._store.close()

    def _start(self, point: str, records: int) -> Life:
        words = [str(self._folder / "lake"), str(self._folder / "shop.sql")]
        return self._fleet.start("publisher", [*words, point, str(self.last), str(records)])

    def _commit(self, rows: int) -> int:
        """One transaction; without rows, one that does not change what is published."""
        ids = range(self._next, self._next + max(1, rows))
        self._next += len(ids)
        table = pa.table({"id": [*ids], "amount": [*ids]}, schema=ROWS)
        with self._shop.transaction() as transaction:
            transaction.insert("orders" if rows else "others", table)
        t = self._shop.committed.last()
        assert t is not None
        if rows:
            self.expected[t] = Counter((each, 1) for each in ids)
        return t

    def _reached(self, life: Life) -> int:
        said = life.events()
        return said[-1]["reached"] if said else -1

    def _until(self, life: Life, holds: Callable[[], bool]) -> None:
        assert self._watch.wait(holds, PATIENCE_S), life.last_words()


@pytest.fixture
def stand(broker, topics, tmp_path: Path) -> Iterator[Callable[[int], Deaths]]:
    """Makes deaths on a topic with so many partitions."""
    proxy = Proxy(*broker.proxied)
    yield lambda partitions: Deaths(tmp_path, proxy, broker, topics, partitions)
    proxy.close()


def died(deaths: Deaths, rounds: int, rows: int, seed: int | None) -> None:
    choice = random.Random(SEED if seed is None else seed)
    try:
        for _ in range(rounds):
            for point in choice.sample(POINTS, len(POINTS)):
                deaths.die(point, rows, choice.randint(1, max(1, rows)))
        assert deaths.finish() == deaths.expected
    finally:
        deaths.close()


def test_s79_a_death_at_each_point_of_a_delivery_leaves_it_once(
    stand: Callable[[int], Deaths], seed: int | None
) -> None:
    deaths = stand(1)
    died(deaths, 1, 5, seed)
    assert len(deaths.expected) == len(POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3, 7])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_s79_as_often_as_it_is_told_to(
    stand: Callable[[int], Deaths], cycles: int, seed: int | None, partitions: int, rows: int
) -> None:
    died(stand(partitions), min(cycles, 20), rows, seed)
