"""S83 for outputs: what was published can be computed from what a power cut leaves.

The store's objects are on a disk that forgets what was not synced; consensus and the broker are
elsewhere and forget nothing. Whatever transaction a reader of the topic has seen, the journal has
its commit, and the view can be read at its time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.shop import rig_of
from tests.scenarios.kafka_place import options
from tests.scenarios.test_s83_durability import SETTINGS, NoFolderSync

from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.kafka_target import target_of
from strandline.connectors.sink import Delivered
from strandline.errors import NotFoundError
from strandline.handles.store import Store
from strandline.journal.log import Journal
from strandline.pipeline.place import Target
from strandline.pipeline.publish import Publisher
from strandline.pipeline.replica import Replica
from strandline.store.files import FilesBlob
from strandline.store.memory import MemoryConsensus
from strandline.testing.broker import Broker, ModelCluster
from strandline.testing.disk import ForgetfulDisk, PowerCutError
from strandline.testing.specimen import open_ports
from strandline.testing.topics import Topic

TURNS = 20


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Machine:
    """A computer with one disk that runs a replica and publishes, one step after the other."""

    def __init__(self, disk: ForgetfulDisk) -> None:
        self.disk = disk
        self.consensus = MemoryConsensus(iter(range(10**12, 10**13)).__next__)
        self.broker = Broker()

    def open(self) -> Store:
        return open_ports(FilesBlob(Path("lake"), self.disk), self.consensus.client(), SETTINGS)

    def work(self, commits: int) -> bool:
        """Go on until the power goes, right after so many commits; whether it did."""
        left = commits

        def before(step: str) -> None:
            nonlocal left
            left -= step == "commit answered"
            if left == 0:
                raise PowerCutError(step)

        def opened(what: Delivered) -> KafkaSink:
            return KafkaSink(ModelCluster(self.broker, before), target_of(options(3), what), what)

        store = self.open()
        target = Target("out", "large", {"connector": "kafka"}, opened)
        rig = replace(rig_of(store), sinks=[target])
        replica = Replica(rig)
        publisher = Publisher(store, rig.journal, target, rig.settings, "a")
        try:
            for _ in range(TURNS):
                replica.step()
                # The first turns come before the view is there.
                with suppress(NotFoundError):
                    publisher._turn()
        except PowerCutError:
            return True
        finally:
            publisher._close()
            store.close()  # It reaches consensus only, and lets the tasks of the dead end.
        return False

    def published(self) -> dict[int, Counter[str]]:
        """By time, what the topic adds up to."""
        total, found = Counter[str](), {}
        for each in Topic(self.broker.log, "out", "progress", "out", "changes").arrived():
            for row in each.rows:
                total[str((row["id"], row["twice"]))] += int(str(row["_diff"]))
            found[each.t] = +total
        return found

    def lost(self) -> list[str]:
        """What was published and is not in the store, after the power came back."""
        wrong: list[str] = []
        with self.open() as store:
            standing = Journal(store.env, "shop").refresh()
            for t, rows in self.published().items():
                if standing.next_t <= t:
                    wrong.append(f"{t} was published and is not committed")
                    continue
                held = None
                # A part that is gone is damage to the reader, and the loss to this test.
                with suppress(Exception):
                    shard = store.shard(standing.bindings["large"].shard)
                    table = shard.snapshot(as_of=t, timeout_ms=0).to_arrow()
                    held = Counter(str((row["id"], row["twice"])) for row in table.to_pylist())
                if held != rows:
                    wrong.append(f"{t} was published as {rows} and is {held}")
        return wrong


def losses(disk: type[ForgetfulDisk]) -> tuple[list[str], int]:
    """Cut the power right after each commit in turn, until something is missing or all is done.

    What is missing, and how often the power went.
    """
    for cuts in range(1, 100):
        machine = Machine(disk())
        if not machine.work(cuts):
            return [], cuts
        machine.disk.power_cut()
        if wrong := machine.lost():
            return wrong, cuts
    raise AssertionError("the work has no end")


def test_s83_whatever_was_published_survives_a_power_cut() -> None:
    lost, cuts = losses(ForgetfulDisk)
    assert lost == []
    assert cuts > 4


def test_s83_a_store_that_does_not_sync_its_folders_is_caught() -> None:
    lost, _ = losses(NoFolderSync)
    assert lost
