"""What simulated processes do with shards: each function here makes one role.

A role repeats its step while faults last. The errors that a step may meet are those that the
interface promises (the store is away, a lease was lost, a time was merged, a column was added);
all others, damage above all, end the history. When peace comes each role does its last step once
more, without excuses, and returns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.errors import (
    BoundsError,
    ConflictError,
    LeaseLostError,
    NotFoundError,
    ReplicaDivergedError,
    SchemaError,
    SinceError,
    StoreError,
    UsageError,
)
from strandline.shard.pulses import void
from strandline.shard.state import Retention
from strandline.testing.checkers import HistoryError
from strandline.testing.workload import SCHEMA, WIDER, Client

if TYPE_CHECKING:
    from strandline.handles.shard import Shard
    from strandline.handles.write import Writer
    from strandline.testing.world import Host

Role = Callable[["Host"], None]

TOLERATED = (StoreError, LeaseLostError, SinceError, SchemaError)
_LAST_TRIES = 20


def repeat(process: Host, step: Callable[[], None], *, pause_ms: float = 100.0) -> None:
    """Do a step again and again; when peace has come, once more, and that must work."""
    while process.running():
        try:
            step()
        except TOLERATED as error:
            process.world.sim.sometimes(type(error).__name__)
        process.sleep(pause_ms)
    for left in range(_LAST_TRIES, -1, -1):
        try:
            step()
        except TOLERATED:
            if not left:
                raise
            process.sleep(1_000)
        else:
            return


def opened(process: Host, name: str, key: tuple[str, ...] = ()) -> Shard:
    """Open a shard, and create it if need be, however long that takes."""
    while True:
        try:
            return process.store.shard(name, SCHEMA, key)
        except SchemaError:
            # A steward has added a column meanwhile; rows without it are still welcome.
            return process.store.shard(name)
        except StoreError:
            process.sleep(100)


class Writing:
    """A writer that is opened anew when its lease is lost."""

    def __init__(self, process: Host, name: str, key: tuple[str, ...]) -> None:
        self.process = process
        self.client = Client(process)
        self.shard = opened(process, name, key)
        self._writer: Writer | None = None

    def writer(self) -> Writer:
        if self._writer is None:
            self._writer = self.shard.writer(self.process.role)
        return self._writer

    def renew(self) -> None:
        self._writer = None


def appender(name: str, key: tuple[str, ...] = (), *, pause_ms: float = 100.0) -> Role:
    """An independent writer: appends rows at the next time, retracts some of its own later."""

    def run(process: Host) -> None:
        at = Writing(process, name, key)
        mine: list[dict[str, object]] = []

        def step() -> None:
            rows = at.client.fresh(process.random.choice((1, 1, 2, 5)))
            if mine and process.random.random() < 0.4:
                gone = mine.pop(process.random.randrange(len(mine)))
                diff = gone["_diff"]
                rows.append({**gone, "_diff": -diff if isinstance(diff, int) else -1})
            try:
                at.client.append(at.writer(), at.shard, rows)
            except LeaseLostError:
                at.renew()
                raise
            mine.extend(row for row in rows[:1])

        repeat(process, step, pause_ms=pause_ms)

    return run


def racer(name: str, key: tuple[str, ...] = (), *, pause_ms: float = 100.0) -> Role:
    """Compares and appends at the upper it last saw, which others move as well."""

    def run(process: Host) -> None:
        at = Writing(process, name, key)

        def step() -> None:
            lower = at.client.look(at.shard, "upper")
            late = process.random.random() < 0.2
            if late:
                process.sleep(300)
            # Whoever guesses a time that it knows to be wrong must be told the newest upper.
            if process.random.random() < (0.5 if late else 0.1):
                lower += process.random.choice((-1, 1))
            upper = max(0, lower) + process.random.choice((1, 1, 2, 4))
            count = process.random.choice((0, 1, 2, 4))
            rows = at.client.fresh(count, lower=max(0, lower), upper=upper)
            try:
                at.client.compare_and_append(at.writer(), at.shard, rows, (max(0, lower), upper))
            except LeaseLostError:
                at.renew()
                raise

        repeat(process, step, pause_ms=pause_ms)

    return run


def agreed(time: int) -> list[dict[str, object]]:
    """The rows that every replica computes for a time."""
    drawn = hashlib.blake2b(str(time).encode(), digest_size=8).digest()
    count = drawn[0] % 3
    return [
        {
            "id": -(time * 4 + i) - 1,
            "value": str(drawn[i + 1]),
            "x": None,
            "_time": time,
            "_diff": 1,
        }
        for i in range(count)
    ]


def replica(name: str, *, pause_ms: float = 100.0) -> Role:
    """One of several that write the same rows; a time that a peer wrote must be the same."""

    def run(process: Host) -> None:
        at = Writing(process, name, ("id",))

        def step() -> None:
            lower = at.client.look(at.shard, "upper")
            behind = max(0, lower - process.random.choice((0, 0, 1, 2)))
            rows = agreed(behind)
            bounds = (behind, behind + 1)
            try:
                if not at.client.compare_and_append(at.writer(), at.shard, rows, bounds):
                    table = at.client.table(at.shard, rows)
                    at.writer().verify(table, lower=bounds[0], upper=bounds[1])
            except LeaseLostError:
                at.renew()
                raise

        repeat(process, step, pause_ms=pause_ms)

    return run


def liar(name: str) -> Role:
    """A replica that computed something else: it must be told so, and never be counted."""

    def run(process: Host) -> None:
        at = Writing(process, name, ("id",))

        def step() -> None:
            upper = at.client.look(at.shard, "upper")
            time = process.random.randrange(max(1, upper))
            if not upper or time < at.client.look(at.shard, "since"):
                return
            # As many rows as there are, and each of the wrong ones twice.
            told: dict[str, object] = {"id": time, "x": None, "_time": time, "_diff": 1}
            lie = [{**told, "value": "a lie"}, {**told, "value": "a truth", "_diff": -1}]
            twice = [*agreed(time), *lie, *lie]
            process.world.sim.sometimes("a lie was told")
            try:
                at.writer().verify(at.client.table(at.shard, twice), lower=time, upper=time + 1)
            except ReplicaDivergedError:
                process.world.sim.sometimes("a lie was found")
            except LeaseLostError:
                at.renew()
                raise
            else:
                raise HistoryError(f"{process.name} computed other rows at {time} unnoticed")

        repeat(process, step, pause_ms=500)

    return run


def reader(name: str, key: tuple[str, ...] = (), *, pause_ms: float = 100.0) -> Role:
    """Reads at all sorts of times, and again later what it has read before."""

    def run(process: Host) -> None:
        client = Client(process)
        shard = opened(process, name, key)
        known: list[int] = []

        def step() -> None:
            upper, since = client.look(shard, "upper"), client.look(shard, "since")
            as_of = _some_time(process, known, since, upper)
            if as_of is None and not upper:
                return
            lag_ms = process.random.choice((0, 0, 50, 1_000))
            try:
                read = client.read(shard, as_of, lag_ms=lag_ms)
            except SinceError:
                known[:] = [time for time in known if time != as_of]
                raise
            known.append(read.as_of)
            client.look(shard, "upper")
            if process.random.random() < 0.5:
                client.read_some(shard, read)

        repeat(process, step, pause_ms=pause_ms)

    return run


def _some_time(process: Host, known: list[int], since: int, upper: int) -> int | None:
    """A time that was read before, or can be read, or is about to be; `None` is the newest."""
    choice = process.random.random()
    if known and choice < 0.4:
        return process.random.choice(known)
    if choice < 0.8 and since < upper:
        return process.random.randrange(since, upper)
    return upper if choice < 0.9 and process.running() else None


def holder(name: str, key: tuple[str, ...] = (), *, critical: bool = False) -> Role:
    """Holds a time and reads at it: that must work for as long as the hold is not lost."""

    def run(process: Host) -> None:
        client = Client(process)
        shard = opened(process, name, key)

        def step() -> None:
            if not client.look(shard, "upper"):
                return
            if critical:
                _read_held(client, shard)
            else:
                _read_leased(client, shard)

        repeat(process, step, pause_ms=200)

    return run


def _read_leased(client: Client, shard: Shard) -> None:
    process = client.process
    with shard.reader(purpose=process.role) as reader_:
        since = reader_.since
        for _ in range(process.random.randrange(1, 4)):
            process.sleep(500)
            try:
                client.read(shard, since)
            except SinceError as error:
                if reader_.id in shard.state().readers:
                    raise HistoryError(f"{process.name} holds {since}: {error}") from error
                raise
            if process.random.random() < 0.4:
                since += process.random.choice((0, 1))
                reader_.downgrade(since, durable=process.random.random() < 0.5)
        if process.random.random() < 0.2:
            with reader_.clone("a clone") as clone:
                clone.downgrade(max(since, clone.since))


def _read_held(client: Client, shard: Shard) -> None:
    process = client.process
    start = shard.state().readable_from()
    shard.hold(process.role, start, epoch=0, note="simulated")
    held = shard.state().holds[process.role].since
    for _ in range(3):
        process.sleep(500)
        try:
            client.read(shard, held)
        except SinceError as error:
            raise HistoryError(f"{held} is held by {process.role}: {error}") from error
    if process.random.random() < 0.7:
        shard.release_hold(process.role)


def steward(
    name: str, key: tuple[str, ...] = (), *, evolve: bool = True, pause_ms: float = 1_500
) -> Role:
    """Changes how much history stays, and once the schema."""

    def run(process: Host) -> None:
        shard = opened(process, name, key)
        client = Client(process)

        def step() -> None:
            rule = process.random.choice(
                (Retention(0, None), Retention(500, None), Retention(None, 2), Retention(300, 5),
                 Retention(None, None), Retention())
            )  # fmt: skip
            shard.retain(rule)
            client.look(shard, "since")
            if evolve and process.random.random() < 0.2:
                try:
                    shard.evolve(WIDER)
                except UsageError as error:
                    raise HistoryError(f"{name} did not take a wider schema: {error}") from error

        repeat(process, step, pause_ms=pause_ms)

    return run


def tender(*names: str, key: tuple[str, ...] = (), pause_ms: float = 100.0) -> Role:
    """Compacts, collects and sweeps, beside others that do the same."""

    def run(process: Host) -> None:
        shards = [opened(process, name, key) for name in names]
        upkeep = process.store.upkeep

        def step() -> None:
            machine = process.random.choice(shards).machine
            choice = process.random.random()
            try:
                if choice < 0.7:
                    upkeep.run_once(machine)
                elif choice < 0.85:
                    upkeep.compact(machine, full=True)
                else:
                    upkeep.collector.sweep(machine, delete=True)
            except (ConflictError, NotFoundError):
                process.world.sim.sometimes("upkeep was overtaken")

        repeat(process, step, pause_ms=pause_ms)

    return run


def sweeper(name: str, *, pause_ms: float = 100.0) -> Role:
    """Looks for orphans, over and over."""

    def run(process: Host) -> None:
        machine = opened(process, name).machine
        collector = process.store.upkeep.collector
        repeat(process, lambda: void(collector.sweep(machine, delete=True)), pause_ms=pause_ms)

    return run


def newcomer(name: str, *, pause_ms: float = 100.0) -> Role:
    """A new writer for every append."""

    def run(process: Host) -> None:
        client = Client(process)
        shard = opened(process, name)

        def step() -> None:
            with shard.writer(process.role) as writer:
                client.append(writer, shard, client.fresh(2))

        repeat(process, step, pause_ms=pause_ms)

    return run


def phoenix(name: str, *, drops: bool) -> Role:
    """Writes to and reads from a shard that is dropped now and then, and made again."""

    def run(process: Host) -> None:
        client = Client(process)

        def step() -> None:
            shard = opened(process, name)
            try:
                with shard.writer(process.role) as writer:
                    state = shard.machine.state
                    if writer.id in state.writers:
                        label = process.world.observer.label_of(state.id)
                        client.append(writer, shard, client.fresh(2), label)
                client.read_reborn(shard)
                if drops and process.random.random() < 0.2:
                    process.store.drop(name)
                    process.world.sim.sometimes("dropped")
            except (NotFoundError, ConflictError, BoundsError):
                process.world.sim.sometimes("found it dropped")

        repeat(process, step, pause_ms=50)

    return run


def vandal(name: str) -> Role:
    """Makes one object disappear that the shard needs, behind everybody's back."""

    def run(process: Host) -> None:
        observer = process.world.observer
        opened(process, name)
        while process.running():
            process.sleep(1_500)
            state = observer.states[name]
            parts = [part.key for batch in state.batches for part in batch.parts]
            if len(parts) > 3:
                observer.objects.delete(process.random.choice(parts))
                return

    return run
