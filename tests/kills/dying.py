"""A publisher in a process of its own that kills itself at one point of a delivery (S79).

    point               what is on record then
    ------------------  ----------------------------------------------------------------------
    before begin        the intent, in the store
    after begin         the same; the producer has a transaction that the broker knows nothing of
    after some records  some messages, of a transaction that is open
    after flush         all messages
    before commit       all messages and the progress
    before the reply    the commit, which the broker has got; nobody has heard so
    before done         the same, and it was heard

The nursery forks it: `publisher`, and then what `publish` takes. The reply is kept away by a proxy,
and whoever holds that proxy kills the publisher.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

import strandline
from strandline.connectors.kafka_client import KafkaCluster, KafkaOutbox
from strandline.connectors.kafka_port import Batch
from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.kafka_target import target_of
from strandline.connectors.sink import Delivered, SinkPorts
from strandline.journal.log import Journal
from strandline.pipeline.publish import Publisher
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.sinks import targets
from strandline.views.parse import parse

BEFORE_THE_REPLY = "before the reply"
POINTS = (
    "before begin",
    "after begin",
    "after some records",
    "after flush",
    "before commit",
    BEFORE_THE_REPLY,
    "before done",
)
LEASE_MS = 300
_FLUSH_S = 60


class Death:
    """Where to die, once it is armed."""

    def __init__(self, point: str, records: int) -> None:
        self._point = point
        self.records = records
        """Of messages, how many are sent before `after some records`."""
        self.armed = False

    def at(self, point: str) -> bool:
        return self.armed and point == self._point

    def meet(self, point: str) -> None:
        if self.at(point):
            os.kill(os.getpid(), signal.SIGKILL)


class DyingOutbox(KafkaOutbox):
    """The real one, with those points."""

    death: Death
    progress: str

    def begin(self) -> None:
        self.death.meet("before begin")
        super().begin()
        self.death.meet("after begin")

    def send(self, topic: str, batch: Batch) -> None:
        if topic == self.progress:
            if self.death.at("after flush"):
                self._flush()
                self.death.meet("after flush")
        elif self.death.at("after some records"):
            some = self.death.records
            super().send(topic, Batch(batch.keys[:some], batch.values[:some]))
            self._flush()
            self.death.meet("after some records")
        super().send(topic, batch)

    def commit(self) -> None:
        if self.death.at("before commit"):
            self._flush()
            self.death.meet("before commit")
        super().commit()

    def _flush(self) -> None:
        assert self._producer is not None
        assert self._producer.flush(_FLUSH_S) == 0


class DyingCluster(KafkaCluster):
    """Its outboxes have those points."""

    death: Death

    def outbox(self, transactional_id: str) -> KafkaOutbox:
        made = DyingOutbox(self._target, self._resolve, transactional_id)
        made.death, made.progress = self.death, self._target.progress
        return made


class DyingSink(KafkaSink):
    """Dies in the first delivery after a time."""

    death: Death
    after: int

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        self.death.armed = t > self.after
        super().deliver(t, epoch, changes)
        self.death.meet("before done")


def publish(folder: str, program: str, point: str, after: str, records: str) -> int:
    """Publish the one sink of a program, and die at a point of what comes after a time.

    Says how far it is, in lines; it ends when it is killed.
    """
    text = Path(program).read_text()
    declared = parse(text).sinks[0]
    death = Death(point, int(records))

    def opened(what: Delivered) -> DyingSink:
        target = target_of(_options(declared.options), what)
        cluster = DyingCluster(target, str)
        cluster.death = death
        sink = DyingSink(cluster, target, what)
        sink.death, sink.after = death, int(after)
        return sink

    with strandline.open(folder, upkeep=False) as store:
        journal = Journal(store.env, "shop")
        journal.refresh()
        target = targets(parse(text), SinkPorts(str, store.env.random.token))[0]
        settings = PipelineSettings(claim_lease_ms=LEASE_MS)
        mine = replace(target, open=opened)
        publisher = Publisher(store, journal, mine, settings, "dying")
        publisher.start()
        said = ""
        while True:
            status = publisher.status()
            facts = {"kind": "publisher", "reached": status.reached, "state": status.state}
            line = json.dumps({**facts, "cause": status.cause})
            if line != said:
                said = line
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
            time.sleep(0.01)


def _options(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name not in {"interval", "delivery"}}
