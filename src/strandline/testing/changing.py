"""Roles around a sink that becomes another one while it publishes, and what must come of it.

Two replicas publish the shop's orders to one topic of a broker in memory, by keys. Now and then the
sink changes, to the view of large ones and back, which is a new lineage on the same topic: just
when somebody delivers, who then sleeps for longer than its claim lasts and comes back as a zombie
of the lineage before. In half of the histories progress is lost at that moment, too.

In the end whoever keeps the last value of each key must hold what the sink publishes, and no
lineage may have come back after another one; or the sink has stopped, which only lost progress is
a reason for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.sink import NOTHING_YET
from strandline.errors import FencedError
from strandline.journal.log import Journal
from strandline.pipeline.claims import claim_of
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.testing import brokered, pipelines, verdicts
from strandline.testing.broker import Broker
from strandline.testing.brokered import PROGRESS, SINK, BrokerStage
from strandline.testing.checkers import HistoryError
from strandline.testing.publishers import SETTINGS
from strandline.testing.roles import TOLERATED

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.handles.store import Store
    from strandline.pipeline.rig import Rig
    from strandline.testing.broker import Fate
    from strandline.testing.roles import Role
    from strandline.testing.world import Host, World

_ROUNDS = 5_000
_CHANGES = 2
_ASLEEP_MS = 4 * SETTINGS.claim_lease_ms
_SOURCES = ("orders", "large")
_STEPS = ("begin", "produce answered", "commit")
"""Where a delivery may be interrupted: before, in the middle, and at the end."""


@dataclass
class ChangingStage(BrokerStage):
    """What outlives every process: the sink as it is now among it."""

    # Who wakes up finds its transaction open. One that only founds a lineage nobody knows of when
    # the sink changes again, and it ends when its time is over.
    broker: Broker = field(default_factory=lambda: Broker(timeout_ms=2 * _ASLEEP_MS))
    partitions: int = 1
    version: int = 0
    left: int = _CHANGES
    """How often it may still change."""

    @property
    def source(self) -> str:
        return _SOURCES[self.version % 2]

    def change(self, process: Host) -> None:
        self.left -= 1
        self.version += 1
        process.world.sim.sometimes("a sink changed")
        if self.forgets and process.random.random() < 0.7:
            process.world.sim.sometimes("a sink changed and lost its progress")
            for each in self.broker.log.topics.get(PROGRESS, ()):
                each.cut(each.stable)
        process.node.suspend(_ASLEEP_MS)
        process.node.tasks.sleep(1)


def changed(rig: Rig, stage: ChangingStage, version: int) -> Rig:
    """The same pipeline with the sink of one version; who has an older one opens it no more."""

    def replaced() -> str:
        return "" if version == stage.version else "another program runs"

    (sink,) = rig.sinks
    identity = {**sink.identity, "version": str(version)}
    return replace(
        rig, sinks=[replace(sink, source=stage.source, identity=identity, unable=replaced)]
    )


def _script(stage: ChangingStage, process: Host) -> Callable[[str], Fate | None]:
    usual, begun = brokered.script(stage, process), 0

    def before(step: str) -> Fate | None:
        nonlocal begun
        begun += step == "begin"
        # The first one only leaves a mark.
        if begun > 2 and stage.left and step in _STEPS and process.random.random() < 0.15:
            stage.change(process)
        return usual(step)

    return before


def publisher(stage: ChangingStage) -> Role:
    """Runs the pipeline, and publishes to the sink as it is."""

    def run(process: Host) -> None:
        rig = brokered.rig_of(stage, process, _script(stage, process))
        version, running = stage.version, Replica(rig)
        publishing = Publishing(changed(rig, stage, version), process.name)
        publishing.start()
        for _ in range(_ROUNDS):
            if version != stage.version:
                publishing.stop()
                version = stage.version
                publishing = Publishing(changed(rig, stage, version), process.name)
                publishing.start()
            rest_ms = 50.0
            try:
                rest_ms = running.step()
            except FencedError:
                running.close()
                running = Replica(rig)
            except TOLERATED:
                running.renew()
            ended = [each.cause for each in publishing.status() if each.state == "stopped"]
            stage.stopped += ended if version == stage.version else []
            if rest_ms > 0 and version == stage.version and _settled(stage, rig, publishing):
                break
            process.sleep(max(rest_ms, 5))
        else:
            raise HistoryError(f"{process.name} is not done: {publishing.status()}")
        running.close()
        publishing.stop()

    return run


def _settled(stage: ChangingStage, rig: Rig, publishing: Publishing) -> bool:
    standing = rig.journal.standing
    done = stage.shop.fed and standing.sealed is None
    return done and publishing.settled(standing.committed)


def changing(world: World) -> None:
    """Two replicas that publish to a sink that changes, a feeder, and one who reads along."""
    chance = world.sim.stream("broker")
    stage = ChangingStage(
        sinks={SINK: chance.choice(("upsert", "debezium"))},
        forgets=chance.random() < 0.5,
        mishaps=5,
    )
    stage.broker.log.bumps = chance.random() < 0.5
    # One that comes back to what it was overwrites what it had left.
    stage.left = chance.randint(1, _CHANGES)
    world.batches[SINK] = stage  # type: ignore[assignment]  # what a history keeps, whatever it is
    world.start("f1", pipelines.feeder(stage.shop))
    world.start("a", publisher(stage))
    world.start("b", publisher(stage))
    brokered.tick(world, stage)


def judge(world: World) -> None:
    """Compare what readers hold with the view."""
    stage: ChangingStage = world.batches[SINK]  # type: ignore[assignment]
    stage.broker.arrive()
    stage.broker.settle()
    wrong = [] if stage.forgets else list(stage.stopped)
    wrong += _come_back(stage)

    def look(process: Host) -> None:
        process.heal()
        if not stage.stopped:
            wrong.extend(differences(stage, process.store))

    world.start("judge", look)
    world.sim.run_until(world.all_done)
    if wrong:
        raise HistoryError("\n".join(f"sink: {what}" for what in wrong[:10]))


def _come_back(stage: ChangingStage) -> list[str]:
    """Lineages, by their producers, that have messages after those of another one."""
    log = stage.broker.log
    counted = [each for one in log.topics.get(SINK, ()) for each in one.counted()]
    runs = Counter(name for name, _ in groupby(log.writers[each.transaction] for each in counted))
    return [f"{name} came back, {count} times" for name, count in runs.items() if count > 1]


def differences(stage: ChangingStage, store: Store) -> list[str]:
    """What is wrong with what the topic's keys hold, once the last lineage has begun."""
    claim = claim_of(store.env, pipelines.NAME, SINK)
    if not claim.marks or list(claim.marks.values())[-1].done == NOTHING_YET:
        return []
    journal = Journal(store.env, pipelines.NAME)
    shard = journal.refresh().bindings[stage.source].shard
    rows = verdicts.expected_rows(stage.shop, journal)[-1][shard]
    right = sorted(msgspec.json.encode(row, order="sorted") for row in rows)
    held = sorted(_held(stage))
    return [] if held == right else [f"keys hold {held}, and {stage.source} {right}"]


def _held(stage: ChangingStage) -> list[bytes]:
    counted = [each for one in stage.broker.log.topics[SINK] for each in one.counted()]
    last = {each.key: each.value for each in counted}
    said = [msgspec.json.decode(value) for value in last.values() if value is not None]
    rows = said if stage.sinks[SINK] == "upsert" else [each["after"] for each in said]
    return [msgspec.json.encode(row, order="sorted") for row in rows if row is not None]
