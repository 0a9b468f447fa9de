"""A small pipeline in the simulator, whose processes are killed at the calls a test names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from strandline.handles.store import Store
from strandline.journal.log import Journal
from strandline.pipeline import agree
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import recorded, replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig, rigged
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.computing import ArrowComputer
from strandline.testing.faults import FailNth, Fault, FaultKind
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.testing.simulation import Simulation
from strandline.testing.world import Host, World
from strandline.views.parse import parse

NAME = "shop"
TINY = "CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING generator;"
WRITES = {"blob.put", "blob.delete", "consensus.compare_and_set", "consensus.truncate"}
SETTINGS = PipelineSettings(rows_max=3, delay_ms=0, poll_ms=5)


@dataclass
class Place:
    """One simulated store, one topic, and processes that come and go."""

    sim: Simulation
    text: str = TINY
    topic: ScriptedTopic = field(default_factory=lambda: ScriptedTopic(["0", "1"]))
    lives: int = 0

    def __post_init__(self) -> None:
        self.world = World(self.sim)

    def send(self, *ids: int) -> None:
        for each in ids:
            value = json.dumps({"id": each, "amount": each * 10 + self.lives}).encode()
            self.topic.send(str(each % 2), str(each).encode(), value)

    def rig(self, store: Store, **settings: int) -> Rig:
        program = parse(self.text)
        return rigged(
            store,
            NAME,
            program,
            self.text,
            sources={"orders": ScriptedSource(self.topic)},
            computer=ArrowComputer(store, fetch=self.topic.fetch),
            settings=PipelineSettings(**{"rows_max": 3, "delay_ms": 0, "poll_ms": 5, **settings}),
        )

    def live(self, act: Callable[[Host], None], plan: FailNth | None = None) -> bool:
        """One life of a process: whether it lived to the end of what it does."""
        self.lives += 1
        name, ended = f"p{self.lives}", []

        def run(process: Host) -> None:
            if plan is not None:
                process.blob.plan = process.consensus.plan = plan  # type: ignore[assignment]
            act(process)
            ended.append(True)

        self.world.start(name, run)
        self.sim.run_until(lambda: bool(ended) or not self._alive(name))
        return bool(ended)

    def _alive(self, name: str) -> bool:
        return any(host.role == name for host in self.world.hosts())

    def until_sealed(self, t: int) -> None:
        """A replica runs until a transaction is sealed, and dies."""

        def act(process: Host) -> None:
            replica = Replica(self.rig(process.store))
            while replica.standing.sealed is None or replica.standing.sealed.t < t:
                replica.step()

        self.live(act)

    def until_idle(self, plan: FailNth | None = None) -> bool:
        """A replica runs until there is nothing to do; whether it lived so long."""

        def act(process: Host) -> None:
            replica = Replica(self.rig(process.store))
            while replica.step() == 0:
                pass

        return self.live(act, plan)

    def ask(self, question: Callable[[Store], object]) -> object:
        answers: list[object] = []
        self.live(lambda process: answers.append(question(process.store)))
        return answers[0]

    def history(self) -> list[tuple[object, ...]]:
        """Every transaction: its time, what it took, every digest, and what the table is then."""
        found = self.ask(lambda store: list(self._history(store)))
        assert isinstance(found, list)
        return found

    def _history(self, store: Store) -> Iterator[tuple[object, ...]]:
        rig = self.rig(store)
        last = rig.journal.refresh().next_t
        list(replay(rig, Planner(rig), 0, last))
        for each in recorded(rig.journal, 0, last):
            shard = store.shard(each.standing.bindings["orders"].shard)
            with shard.snapshot(as_of=each.sealed.t) as snapshot:
                rows = sorted(snapshot.to_arrow().to_pylist(), key=str)
            taken = [(one.endpoint, one.taken) for one in each.sealed.inputs]
            yield (
                each.sealed.t,
                taken,
                agree.unpacked(each.commit.inputs),
                agree.unpacked(each.commit.deltas),
                rows,
            )

    def counts(self) -> tuple[object, ...]:
        """What a crash leaves behind, as far as it counts: records, and rows in shards."""

        def look(store: Store) -> tuple[object, ...]:
            standing = Journal(store.env, NAME).refresh()
            shards = [bound.shard for _, bound in sorted(standing.bindings.items())]
            return standing.lsn, *(store.machine(each).refresh().upper.time for each in shards)

        found = self.ask(look)
        assert isinstance(found, tuple)
        return found


def dies(nth: int, *, after: bool = True, key: str = "") -> FailNth:
    """A process that dies at the nth of its writes, after it happened or before."""
    kind = FaultKind.CRASH_AFTER if after else FaultKind.CRASH_BEFORE
    return FailNth(nth, Fault(kind), lambda call, at: call in WRITES and at.startswith(key))


def dies_anywhere(nth: int) -> FailNth:
    """A process that dies at the nth call of its store, whatever it is, before it happens."""
    return FailNth(nth, Fault(FaultKind.CRASH_BEFORE))
