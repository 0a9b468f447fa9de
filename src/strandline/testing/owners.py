"""Roles around a timeline: owners that come and go, and somebody who appends past them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import ConflictError, LeaseLostError, UsageError
from strandline.testing.checkers import HistoryError
from strandline.testing.observer import number
from strandline.testing.roles import Writing, opened, repeat
from strandline.testing.workload import Client

if TYPE_CHECKING:
    from strandline.handles.ownership import TimelineOwner
    from strandline.handles.shard import Shard
    from strandline.testing.roles import Role
    from strandline.testing.world import Host


def intruder(name: str) -> Role:
    """Appends to a shard past its timeline: that must be refused once it is attached."""

    def run(process: Host) -> None:
        at = Writing(process, name, ("id",))

        def step() -> None:
            state = at.shard.state()
            if state.timeline is None:
                return
            writer = at.writer()
            lower = number(at.shard.upper.time)
            rows = at.client.fresh(1, lower=lower, upper=lower + 1)
            try:
                at.client.compare_and_append(writer, at.shard, rows, (lower, lower + 1))
            except UsageError:
                process.world.sim.sometimes("an intruder was refused")
            except LeaseLostError:
                at.renew()
                raise
            else:
                raise HistoryError(f"{process.name} appended to {name} past its timeline")

        repeat(process, step, pause_ms=300)

    return run


def owner(timeline: str, shards: tuple[str, ...], *, pause_ms: float = 100.0) -> Role:
    """Owns a timeline for a while: stages rows in its shards, commits them, or walks away."""

    def run(process: Host) -> None:
        client = Client(process)
        handles = {name: opened(process, name, ("id",)) for name in shards}

        def step() -> None:
            line = process.store.timeline(timeline)
            for handle in handles.values():
                line.attach(handle)
            try:
                with line.own() as mine:
                    for _ in range(process.random.randrange(1, 6)):
                        if not _transaction(client, timeline, handles, mine):
                            break
                        process.sleep(pause_ms)
            except ConflictError:
                process.world.sim.sometimes("fenced")

        repeat(process, step, pause_ms=5 * pause_ms)

    return run


def _transaction(
    client: Client, timeline: str, shards: dict[str, Shard], mine: TimelineOwner
) -> bool:
    """Stage and commit; `False` if this owner walked away from what it staged."""
    time = mine.time
    staged: dict[str, list[dict[str, object]]] = {}
    committing = False
    try:
        for name in client.random.sample(sorted(shards), client.random.randrange(len(shards) + 1)):
            staged[name] = client.fresh(client.random.choice((1, 2)))
            mine.stage(name, client.table(shards[name], staged[name]))
        if client.random.random() < 0.15:
            client.process.sleep(1_000)
        if client.random.random() < 0.15:
            return False
        committing = True
        upper = time + client.random.choice((1, 1, 1, 3))
        client.commit(timeline, (time, upper), staged, lambda: mine.commit(upper))
        return True
    finally:
        if not committing:
            client.abandon(staged, time)
