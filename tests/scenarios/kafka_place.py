"""The production sink on a broker in memory: alone, and in whole histories of two replicas."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.kafka_target import target_of
from strandline.connectors.sink import Delivered
from strandline.pipeline.compute import Computed, Work
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.settings import PipelineSettings
from strandline.testing import pipelines
from strandline.testing.broker import Broker, Fate, ModelCluster
from strandline.testing.brokered import SINK, BrokerStage, judge, rig_of
from strandline.testing.conformance_sink import CHANGES, SinkStand
from strandline.testing.simulation import Simulation
from strandline.testing.streams import Options
from strandline.testing.world import OPTIONS, Host, World

TOPIC = "out"
PROGRESS = "progress"
Before = Callable[[str], Fate | None]


def nothing(_: str) -> None:
    return None


def options(partitions: int, envelope: str = "changes") -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": "model:9092",
        "topic": TOPIC,
        "envelope": envelope,
        "partitions": str(partitions),
        "progressTopic": PROGRESS,
        **({} if envelope == "changes" else {"key": "id"}),
    }


def opened(
    broker: Broker, what: Delivered, before: Before = nothing, partitions: int = 3
) -> KafkaSink:
    return KafkaSink(ModelCluster(broker, before), target_of(options(partitions), what), what)


def read(broker: Broker, what: Delivered) -> list[tuple[int, int, pa.Table]]:
    """What a reader of committed records sees of one lineage, in the order of transactions."""
    found: dict[int, tuple[int, int, list[dict[str, object]]]] = {}
    for each in broker.log.topics.get(TOPIC, ()):
        for entry in each.committed():
            said = json.loads(entry.value or b"{}")
            if said["lineage"] == what.address.lineage:
                row = {**said["row"], "_diff": said["diff"]}
                new = (said["time"], said["epoch"], [])
                found.setdefault(entry.transaction, new)[2].append(row)
    landed = [found[number] for number in sorted(found)]
    return [(t, epoch, pa.Table.from_pylist(rows, CHANGES)) for t, epoch, rows in landed]


def lose(broker: Broker) -> None:
    for each in broker.log.topics[PROGRESS]:
        each.cut(each.end)


def stand_of(partitions: int = 3, *, lazy: bool = False) -> Callable[[], SinkStand]:
    def stand() -> SinkStand:
        broker = Broker()
        broker.lazy = lazy

        def seen(what: Delivered) -> list[tuple[int, int, pa.Table]]:
            while broker.log.mark():
                continue
            return read(broker, what)

        return SinkStand(
            lambda what, step: opened(broker, what, step, partitions),
            seen,
            lambda _: lose(broker),
        )

    return stand


LEASE_MS = 500
SETTINGS = PipelineSettings(rows_max=3, delay_ms=20, poll_ms=10, claim_lease_ms=LEASE_MS)
React = Callable[[Host, str], Fate | None]


class Shop:
    """Replicas of the shop that publish to one broker; `react` is asked at every request."""

    def __init__(
        self,
        sim: Simulation,
        react: React,
        *,
        replicas: str = "ab",
        orders: int = 30,
        every_ms: int = 60,
    ) -> None:
        calm = {**dict.fromkeys(OPTIONS, 0), "latency_ms": 1}
        self.sim = sim
        self.world = World(sim, Options(calm))
        self.stage = BrokerStage()
        self.world.batches[SINK] = self.stage  # type: ignore[assignment]
        self.orders = orders
        self.every_ms = every_ms
        self.react = react
        self.each: Callable[[Host, Replica, Publishing], None] = lambda *_: None
        """Called at every turn of a replica."""
        self.computed: dict[str, list[int]] = {}
        """By process: the times that it computed."""
        self.late: tuple[int, list[int]] = (0, [])
        """In the end: how many requests were still on their way, and what counted by then."""
        self._known: tuple[int, list[int]] = (-1, [])
        for name in replicas:
            self.world.start(name, self._run)
        self._send()
        self._tick()

    @property
    def broker(self) -> Broker:
        return self.stage.broker

    @property
    def times(self) -> list[int]:
        """What counts by now, in the topic's order."""
        if self._known[0] != self.broker.log.markers:
            arrived = self.stage.readers[0].topic.arrived()
            self._known = self.broker.log.markers, [each.t for each in arrived]
        return self._known[1]

    def run(self) -> None:
        self.world.run(faults_ms=4_000)
        self.late = len(self.broker.late), self.times
        judge(self.world)

    def _tick(self) -> None:
        self.broker.now_ms = self.sim.elapsed_ms()
        self.broker.work()
        self.stage.look()
        if not self.world.all_done():
            self.sim.after(5, self._tick)

    def _send(self) -> None:
        shop = self.stage.shop
        shop.sent += 1
        row: pipelines.Row = {"id": shop.sent % 5, "amount": shop.sent % 9, "seq": shop.sent}
        event = json.dumps(pipelines.change("u", row)).encode()
        shop.topic.send(str(shop.sent % 5 % 2), str(row["id"]).encode(), event)
        shop.fed = shop.sent == self.orders
        if not shop.fed:
            self.sim.after(self.every_ms, self._send)

    def _run(self, process: Host) -> None:
        def before(step: str) -> Fate | None:
            process.node.tasks.sleep(process.random.uniform(0, 2))
            return self.react(process, step)

        rig = replace(rig_of(self.stage, process, before), settings=SETTINGS)
        times = self.computed.setdefault(process.name, [])
        compute = rig.computer.compute

        def computed(work: Work) -> Computed:
            times.append(work.time)
            return compute(work)

        rig.computer.compute = computed  # type: ignore[method-assign]
        replica, publishing = Replica(rig), Publishing(rig, process.name)
        publishing.start()
        while not self._settled(replica, publishing):
            self.each(process, replica, publishing)
            process.node.tasks.sleep(max(1.0, replica.step()))
        self.stage.stopped += [
            each.cause for each in publishing.status() if each.state == "stopped"
        ]
        replica.close()
        publishing.stop()

    def _settled(self, replica: Replica, publishing: Publishing) -> bool:
        standing, shop = replica.standing, self.stage.shop
        done = shop.fed and standing.sealed is None and pipelines.taken_all(shop, standing)
        return done and publishing.settled(standing.committed)
