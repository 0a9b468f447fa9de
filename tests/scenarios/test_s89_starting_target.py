"""S89: a target that is starting up is waited for; one that refuses the password is not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from strandline.connectors.sink import Delivered
from strandline.errors import SinkError, SinkStoppedError
from strandline.pipeline.place import Target
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.said import SinkStatus
from strandline.pipeline.states import SinkState
from strandline.testing import pipelines, publishers
from strandline.testing.scripted_sink import ScriptedSink
from strandline.testing.simulation import Simulation
from strandline.testing.streams import Options
from strandline.testing.world import OPTIONS, Host, World

TRANSIENT = [
    "connection refused",
    "the database system is starting up",
    "sorry, too many clients already",
]
TURNS_MAX = 5_000

pytestmark = pytest.mark.simulation


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Place:
    """One replica whose target says something else than yes for a while."""

    def __init__(self, sim: Simulation, complaints: list[SinkError], step: str) -> None:
        self.sim, self.complaints, self.step = sim, complaints, step
        self.world = World(sim, Options({**dict.fromkeys(OPTIONS, 0), "latency_ms": 1}))
        self.stage = publishers.Stage()
        self.world.batches[publishers.SINK] = self.stage  # type: ignore[assignment]
        self.tries: list[float] = []
        self.told: list[SinkStatus] = []
        self.committed = 0
        self.world.start("f", pipelines.feeder(self.stage.shop))
        self.world.start("a", self._run)

    def _before(self, step: str) -> None:
        if step == self.step:
            self.tries.append(self.sim.elapsed_ms())
            if self.complaints:
                raise self.complaints.pop(0)

    def _run(self, process: Host) -> None:
        def opened(what: Delivered) -> ScriptedSink:
            return ScriptedSink(self.stage.target, what, self._before)

        target = Target(publishers.SINK, publishers.SOURCE, {"connector": "scripted"}, opened)
        made = pipelines.rig_of(self.stage.shop, process.store, publishers.SETTINGS)
        rig = replace(made, sinks=[target])
        replica, publishing = Replica(rig), Publishing(rig, process.name)
        publishing.start()
        for _ in range(TURNS_MAX):
            rest_ms = replica.step()
            self.told.extend(publishing.status())
            done = self.stage.shop.fed and replica.standing.sealed is None and rest_ms > 0
            if done and publishing.settled(replica.standing.committed):
                break
            process.node.tasks.sleep(max(1.0, rest_ms))
        self.stage.stopped += [
            each.cause for each in publishing.status() if each.state == "stopped"
        ]
        self.committed = replica.standing.next_t
        replica.close()
        publishing.stop()


@pytest.mark.parametrize(
    ("text", "step"), [*((text, "prepare") for text in TRANSIENT), (TRANSIENT[0], "commit")]
)
def test_s89_what_passes_is_tried_again_ever_less_often_and_nothing_is_abandoned(
    text: str, step: str
) -> None:
    with Simulation(3) as sim:
        place = Place(sim, [SinkError(text) for _ in range(6)], step)
        place.world.run(faults_ms=1_000)
        assert place.complaints == []
        retrying = [each for each in place.told if each.state is SinkState.RETRYING]
        assert {each.cause for each in retrying} == {f"SinkError: {text}"}
        if step == "prepare":
            waits = [after - before for before, after in pairwise(place.tries[:7])]
            assert waits[-1] > 4 * waits[0], "it is tried as often as at first"
            assert max(each.retries for each in retrying) >= 5
        assert place.stage.stopped == []
        publishers.judge(place.world)


def test_s89_what_does_not_pass_stops_the_sink_by_name_and_nothing_else() -> None:
    with Simulation(3) as sim:
        wrong = SinkStoppedError("password authentication failed: change option password")
        place = Place(sim, [wrong], "prepare")
        place.world.run(faults_ms=1_000)
        assert len(place.tries) == 1, "it is not tried again"
        assert place.stage.stopped == [
            "sink out: password authentication failed: change option password"
        ]
        assert place.committed > 3, "transactions go on"
