"""Replicas of one pipeline that run side by side in the simulator, and a plain dict beside them.

place = Together(sim)
one, other = place.open("one"), place.open("other")
place.give((1, 10), (2, None))            # keys and values; no value deletes
place.until(lambda: one.next_t == 1)
place.check(one, other)                   # not restarted, and as the dict says at every time
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from strandline.handles.store import Store
from strandline.journal.log import Journal
from strandline.model.digest import Digest
from strandline.pipeline.compute import Computed, Work
from strandline.pipeline.replica import Replica
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import State
from strandline.testing.computing import ArrowComputer
from strandline.testing.world import Host

from .conftest import Fates
from .pipeline_place import NAME, Place

VIEWED = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 10;
"""
ONE_BY_ONE = {"rows_max": 1, "poll_ms": 20}
PATIENCE_MS = 60_000
Row = tuple[int, int | None]


class Noting(ArrowComputer):
    """Remembers what it computed, and takes as long as it is told to."""

    def __init__(self, store: Store, member: Member, fetch: Callable) -> None:
        super().__init__(store, fetch=fetch)
        self._member = member

    def compute(self, work: Work) -> Computed:
        found = super().compute(work)
        self._member.computed.append(work.time)
        self._member.answers[work.time] = (work.now_ms, found.digests())
        self._member.host.node.tasks.sleep(self._member.slow.pop(work.time, 0))
        return found


@dataclass
class Member:
    """One process that runs the pipeline until the test ends."""

    name: str
    starts: int = 0
    """How often it began to run: what is started again has more than one."""
    computed: list[int] = field(default_factory=list)
    answers: dict[int, tuple[int, dict[str, Digest]]] = field(default_factory=dict)
    """By time: what `now()` was, and what came of it."""
    slow: dict[int, float] = field(default_factory=dict)
    """By time: how many ms pass between computing it and going on, once."""
    fates: Fates = field(default_factory=Fates)
    host: Host = field(init=False)
    runner: Runner = field(init=False)

    @property
    def next_t(self) -> int:
        """How many transactions it has seen committed."""
        return self.runner.standing.next_t if self.starts else 0

    @property
    def running(self) -> bool:
        return bool(self.starts) and self.runner.status().state is State.RUNNING

    def check(self) -> None:
        """S35: it was never started again, and is well."""
        status = self.runner.status()
        assert self.starts == 1, "a restart is no cure"
        assert (status.state, status.cause) == (State.RUNNING, "")


class Together(Place):
    """One simulated store and topic, and replicas on them."""

    def give(self, *rows: Row) -> None:
        for key, value in rows:
            said = None if value is None else json.dumps({"id": key, "amount": value}).encode()
            self.topic.send(str(key % 2), str(key).encode(), said)

    def open(
        self, name: str, *, fetch: Callable | None = None, jump_ms: int = 0, **settings: int
    ) -> Member:
        """A process that runs a replica from now on; its clock is off by `jump_ms`."""
        member = Member(name)

        def run(process: Host) -> None:
            member.host = process
            process.blob.plan = process.consensus.plan = member.fates  # type: ignore[assignment]
            process.node.clock.jump(jump_ms)
            computer = Noting(process.store, member, fetch or self.topic.fetch)
            rig = replace(self.rig(process.store, **{**ONE_BY_ONE, **settings}), computer=computer)
            member.runner = Runner(Replica(rig), process.store.env, rig.settings)
            member.starts += 1
            member.runner.run()

        self.world.start(name, run)
        return member

    def until(self, reached: Callable[[], bool], within_ms: float = PATIENCE_MS) -> None:
        self.sim.run_until(reached, within_ms=within_ms)

    def rest(self, duration_ms: float) -> None:
        self.sim.run(until_ms=self.sim.elapsed_ms() + duration_ms)

    def committed(self) -> int:
        """How far the journal is, whoever wrote it."""
        found = self.ask(lambda store: Journal(store.env, NAME).refresh().next_t)
        assert isinstance(found, int)
        return found

    def taken(self, member: Member) -> bool:
        """Whether it has seen that every row of the topic is in a transaction."""
        found = member.runner.standing.positions.get("orders", {})
        return all(found.get(each, 0) == end for each, end in self.topic.ends.items())

    def changes(self, name: str, first: int, last: int) -> list[tuple[int, int, int, int]]:
        """(time, id, amount, diff) of every change of a collection at these times."""

        def read(store: Store) -> object:
            shard = Journal(store.env, NAME).refresh().bindings[name].shard
            with store.shard(shard).listen(first - 1, until=last + 1) as subscription:
                found = [event.rows for event in subscription if hasattr(event, "rows")]
            return sorted(
                (row["_time"], row["id"], row["amount"], row["_diff"])
                for rows in found
                for row in rows.to_pylist()
            )

        found = self.ask(read)
        assert isinstance(found, list)
        return found

    def check(self, *members: Member) -> None:
        """They are well; each row of the topic counts once, every time is what the dict says of
        it, and a replay of all of them agrees."""
        for each in members:
            each.check()
        state: dict[int, int] = {}
        at = dict.fromkeys(self.topic.ends, 0)
        for number, (t, taken, _, _, rows) in enumerate(self.history()):
            assert t == number, "numbers have no gap"
            for partition, (start, stop) in dict(taken)["orders"].items():
                assert start == at[partition], f"{t} takes {start} after {at[partition]}"
                at[partition] = stop
                for offset in range(start, stop):
                    key, value = self.topic.record(partition, offset)
                    state.pop(int(key), None)
                    if value is not None:
                        state[int(key)] = json.loads(value)["amount"]
            told = {row["id"]: row["amount"] for row in rows}
            assert len(told) == len(rows), "a key is there twice"
            assert told == state, f"at {t}"
        assert at == self.topic.ends, "rows are left over"
