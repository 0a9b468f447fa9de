"""S81: a replica that was paused in the middle of a delivery comes back, and nothing appears."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from strandline.connectors.sink import Delivered
from strandline.pipeline.place import Target
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.settings import PipelineSettings
from strandline.testing import pipelines, publishers
from strandline.testing.roles import Role
from strandline.testing.scripted_sink import Landed, ScriptedSink
from strandline.testing.simulation import Simulation
from strandline.testing.streams import Options
from strandline.testing.world import OPTIONS, Host, World

LEASE_MS = 500
SETTINGS = PipelineSettings(rows_max=3, delay_ms=20, poll_ms=10, claim_lease_ms=LEASE_MS)
ORDERS = 30


class Place:
    """Two replicas that publish one view; the first to come to a step is paused there."""

    def __init__(self, sim: Simulation, step: str) -> None:
        calm = {**dict.fromkeys(OPTIONS, 0), "latency_ms": 1}
        self.sim = sim
        self.world = World(sim, Options(calm))
        self.stage = publishers.Stage(shop=pipelines.Shop())
        self.world.batches[publishers.SINK] = self.stage  # type: ignore[assignment]
        self.step = step
        self.zombie = ""
        self.held: tuple[int, int] | None = None
        """How much was published when the zombie fell asleep, and when it woke up."""
        for name in ("a", "b"):
            self.world.start(name, self._replica())
        self._send()

    def _send(self) -> None:
        shop = self.stage.shop
        shop.sent += 1
        row = {"id": shop.sent % 5, "amount": shop.sent % 9, "seq": shop.sent}
        event = json.dumps(pipelines.change("u", row)).encode()
        shop.topic.send(str(row["id"] % 2), str(row["id"]).encode(), event)
        shop.fed = shop.sent == ORDERS
        if not shop.fed:
            self.sim.after(60, self._send)

    @property
    def landed(self) -> list[Landed]:
        return [each for log in self.stage.target.logs.values() for each in log.landed]

    def _replica(self) -> Role:
        def run(process: Host) -> None:
            def opened(what: Delivered) -> ScriptedSink:
                return ScriptedSink(
                    self.stage.target, what, lambda step: self._before(process, step)
                )

            target = Target(publishers.SINK, publishers.SOURCE, {"connector": "scripted"}, opened)
            made = pipelines.rig_of(self.stage.shop, process.store, SETTINGS)
            rig = replace(made, sinks=[target])
            replica, publishing = Replica(rig), Publishing(rig, process.name)
            publishing.start()
            while not self._settled(replica, publishing):
                process.node.tasks.sleep(max(1.0, replica.step()))
            replica.close()
            publishing.stop()

        return run

    def _settled(self, replica: Replica, publishing: Publishing) -> bool:
        standing, shop = replica.standing, self.stage.shop
        done = shop.fed and standing.sealed is None and pipelines.taken_all(shop, standing)
        return done and publishing.settled(standing.committed)

    def _before(self, process: Host, step: str) -> None:
        """The first one to come here is stopped for much longer than its claim lasts."""
        if step == self.step and not self.zombie and len(self.landed) >= 2:
            self.zombie = process.role
            slept = len(self.landed)
            process.node.suspend(8 * LEASE_MS)
            process.node.tasks.sleep(1)
            self.held = slept, len(self.landed)


@pytest.mark.parametrize("step", ["record", "commit", "reply"])
def test_s81_a_zombie_is_fenced_and_nothing_of_it_appears(step: str) -> None:
    with Simulation(3) as sim:
        place = Place(sim, step)
        sim.run_until(place.world.all_done)
        assert place.held is not None, "somebody was paused there"
        slept, woke = place.held
        assert woke > slept, "the other one went on"
        times = [each.t for each in place.landed]
        assert times == sorted(set(times))
        if step != "reply":
            # What it had begun was delivered by its successor, and its own commit was refused.
            assert sum(log.fenced for log in place.stage.target.logs.values()) >= 1
        publishers.judge(place.world)
