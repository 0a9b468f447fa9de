"""S63: transactions of 20 records every 50 ms, killed at any moment between plan and publish."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from strandline.connectors.sink import Delivered
from strandline.errors import LeaseLostError, StoreError
from strandline.journal.next import phase_of
from strandline.pipeline.place import Target
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.pipeline.settings import PipelineSettings
from strandline.testing import pipelines, publishers, verdicts
from strandline.testing.scripted_sink import ScriptedSink
from strandline.testing.simulation import Simulation
from strandline.testing.streams import Options
from strandline.testing.world import OPTIONS, Host, World

RECORDS, INTERVAL_MS, LATENCY_MS = 20, 50, 1
LIFE_MS = 20 * INTERVAL_MS
"""Longer than it takes to join and to finish what was sealed: most lives commit something."""
SETTINGS = PipelineSettings(
    rows_max=RECORDS, delay_ms=INTERVAL_MS, poll_ms=5, claim_lease_ms=100, checkpoint_every=20
)


class Stream:
    """A shop whose orders go on while replicas come and go."""

    def __init__(self, sim: Simulation) -> None:
        calm = {**dict.fromkeys(OPTIONS, 0), "latency_ms": LATENCY_MS}
        self.sim = sim
        self.world = World(sim, Options(calm))
        self.stage = publishers.Stage(shop=pipelines.Shop())
        self.world.batches[pipelines.NAME] = self.stage.shop  # type: ignore[assignment]
        self.world.batches[publishers.SINK] = self.stage  # type: ignore[assignment]
        self.chance = sim.stream("kills")
        self.running: tuple[Replica, Publishing] | None = None
        self._feed()

    def _feed(self) -> None:
        shop = self.stage.shop
        for _ in range(RECORDS):
            shop.sent += 1
            key = self.chance.randrange(40)
            row = {"id": key, "amount": shop.sent % 9, "seq": shop.sent}
            event = pipelines.change("d" if self.chance.random() < 0.2 else "u", row)
            shop.topic.send(str(key % 2), str(key).encode(), json.dumps(event).encode())
        if not shop.fed:
            self.sim.after(INTERVAL_MS, self._feed)

    def rig(self, process: Host) -> Rig:
        def opened(what: Delivered) -> ScriptedSink:
            def step(_: str) -> None:
                # Long enough for a kill to strike in the middle of a delivery.
                process.node.tasks.sleep(process.random.uniform(0, 5 * LATENCY_MS))

            return ScriptedSink(self.stage.target, what, step)

        made = pipelines.rig_of(self.stage.shop, process.store, SETTINGS)
        sink = Target(publishers.SINK, publishers.SOURCE, {"connector": "scripted"}, opened)
        return replace(made, sinks=[sink])

    def start(self) -> None:
        """One more life; it ends when all that was fed is committed and published."""
        self.running = None

        def run(process: Host) -> None:
            rig = self.rig(process)
            replica, publishing = Replica(rig), Publishing(rig, process.name)
            self.running = replica, publishing
            publishing.start()
            while not (self.stage.shop.fed and self._settled(replica, publishing)):
                try:
                    process.node.tasks.sleep(max(1.0, replica.step()))
                except (StoreError, LeaseLostError):
                    replica.renew()
                    process.node.tasks.sleep(10)
            replica.close()
            publishing.stop()

        self.world.start("r", run)

    def _settled(self, replica: Replica, publishing: Publishing) -> bool:
        standing = replica.standing
        done = standing.sealed is None and pipelines.taken_all(self.stage.shop, standing)
        return done and publishing.settled(standing.committed)

    def kill(self) -> str:
        """Kill it; where it was, as far as it knew."""
        (process,) = self.world.hosts()
        process.node.crash()
        if self.running is None:
            return "starting"
        replica, publishing = self.running
        behind, _ = publishing.behind(replica.standing.committed)
        return f"{phase_of(replica.standing).value}, {'publishing' if behind else 'published'}"


def killed(seed: int, kills: int) -> tuple[Counter[str], int]:
    """Where each of the kills struck, and how many transactions there are in the end."""
    struck: Counter[str] = Counter()
    with Simulation(seed) as sim:
        stream = Stream(sim)
        for _ in range(kills):
            stream.start()
            sim.run(until_ms=sim.elapsed_ms() + stream.chance.uniform(0, LIFE_MS))
            struck[stream.kill()] += 1
        stream.stage.shop.fed = True
        stream.start()
        sim.run_until(stream.world.all_done)
        verdicts.judge(stream.world)
        publishers.judge(stream.world)
        assert stream.running is not None
        return struck, stream.running[0].standing.next_t


def test_s63_small_transactions_survive_a_crash_at_any_point() -> None:
    """And S56: every life comes back to running, and what it computes again is the same."""
    struck, transactions = killed(1, 10)
    assert sum(struck.values()) == 10
    assert transactions >= 10
    assert len(struck) >= 3, struck


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 12))
def test_s63_fifty_kills_and_ten_times_that(seed: int) -> None:
    struck, transactions = killed(seed, 50)
    assert transactions >= 50
    assert any(each.startswith(("sealed", "answered")) for each in struck), struck
    assert any(each.endswith("publishing") for each in struck), struck
