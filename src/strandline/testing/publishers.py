"""Roles around a sink: replicas that publish beside their loop, and what must come of it.

Two replicas run the shop of `pipelines` and publish its view `large` to one target in memory,
which fences, fails and loses replies. Somebody merges the view's history as far as it may be. In
the end the target must hold the view's changes: every transaction that has some, once, in order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from strandline.errors import (
    ConflictError,
    FencedError,
    LeaseLostError,
    NotFoundError,
    SinceError,
    SinkError,
    StoreError,
)
from strandline.journal.log import Journal
from strandline.journal.next import Want
from strandline.pipeline.claim import KEY_PREFIX
from strandline.pipeline.claims import Claims
from strandline.pipeline.place import Target
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.settings import PipelineSettings
from strandline.testing import pipelines, verdicts
from strandline.testing.checkers import HistoryError
from strandline.testing.roles import repeat
from strandline.testing.scripted_sink import LATE, Log, ScriptedSink, ScriptedTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.connectors.sink import Delivered
    from strandline.handles.store import Store
    from strandline.pipeline.rig import Rig
    from strandline.testing.roles import Role
    from strandline.testing.world import Host, World

SINK = "out"
SOURCE = "large"
SETTINGS = PipelineSettings(
    rows_max=3, delay_ms=40, poll_ms=20, claim_lease_ms=800, sink_held_max=2
)
_ROUNDS = 5_000


@dataclass
class Play:
    """What outlives every process of a history, whatever the target is."""

    shop: pipelines.Shop = field(default_factory=pipelines.Shop)
    stopped: list[str] = field(default_factory=list)
    """Why sinks have stopped."""
    forgets: bool = False
    """Whether the target loses its progress at times, as retention may (S82)."""


@dataclass
class Stage(Play):
    """A history with a scripted target."""

    target: ScriptedTarget = field(default_factory=ScriptedTarget)
    every_ms: int = 0
    """Of one delivery to the next, if the sink wants fewer."""


def rig_of(stage: Stage, process: Host) -> Rig:
    def opened(what: Delivered) -> ScriptedSink:
        return ScriptedSink(stage.target, what, script(stage, process))

    target = Target(SINK, SOURCE, {"connector": "scripted"}, opened, every_ms=stage.every_ms)
    return replace(pipelines.rig_of(stage.shop, process.store, SETTINGS), sinks=[target])


def script(stage: Stage, process: Host) -> Callable[[str], str | None]:
    """What happens at each step at a target: time passes, it fails, its process dies."""

    def before(step: str) -> str | None:
        chance = process.random.random() if process.running() else 1.0
        process.node.tasks.sleep(process.random.uniform(0, 5))
        if chance < 0.01:
            process.world.sim.sometimes(f"died before {step}")
            process.node.crash()
        if chance < 0.04:
            raise SinkError(f"{step} was not answered")
        if chance < 0.08 and step == "commit":
            return LATE
        if chance > 0.9:
            stage.target.land()
        if stage.forgets and step == "prepare" and chance < 0.4:
            stage.target.forget_all()
        return None

    return before


def publisher(stage: Play, rigged: Callable[[Host], Rig]) -> Role:
    """Runs the pipeline and publishes beside it, in all of its lives."""

    def run(process: Host) -> None:
        rig = rigged(process)
        running, publishing = Replica(rig), Publishing(rig, process.name)
        publishing.start()

        def step() -> float:
            """One step of the loop; whoever is fenced begins again, in the new epoch."""
            nonlocal running
            try:
                return running.step()
            except FencedError:
                running.close()
                running = Replica(rig)
            except Exception:
                running.renew()
                raise
            return 0

        def work() -> None:
            if process.random.random() < 0.01:
                running.want(Want.PROMOTE)
            if step() > 0:
                process.sleep(40)

        repeat(process, work, pause_ms=5)
        _drain(stage, process, step, rig, publishing)
        running.close()
        publishing.stop()

    return run


def _drain(
    stage: Play, process: Host, step: Callable[[], float], rig: Rig, publishing: Publishing
) -> None:
    """When peace has come, go on until all that was sent is committed and published."""
    for _ in range(_ROUNDS):
        try:
            rest_ms = step()
        except (StoreError, LeaseLostError):
            rest_ms = 100
        stage.stopped += [each.cause for each in publishing.status() if each.state == "stopped"]
        standing = rig.journal.standing
        if rest_ms > 0:
            done = stage.shop.fed and standing.sealed is None
            if done and publishing.settled(standing.committed):
                return
            process.sleep(rest_ms)
    raise HistoryError(f"{process.name} still has something to publish: {publishing.status()}")


def merger() -> Role:
    """Merges the view's history as far as it may be."""

    def run(process: Host) -> None:
        def step() -> None:
            try:
                standing = Journal(process.store.env, pipelines.NAME).refresh()
                for name in (SOURCE, f"{SOURCE}_errors"):
                    shard = process.store.shard(standing.bindings[name].shard)
                    shard.retain("1 versions")
                    process.store.upkeep.run_once(shard.machine)
            except (NotFoundError, KeyError, ConflictError, SinceError, LeaseLostError):
                process.sleep(50)

        repeat(process, step, pause_ms=50)

    return run


def publishers(world: World) -> None:
    """Two replicas that publish, a feeder, and one who merges history."""
    _start(world, Stage())


def forgotten(world: World) -> None:
    """The same with a target that loses its progress: a sink in doubt stops, and may not guess."""
    _start(world, Stage(forgets=True))


def unfenced(world: World) -> None:
    """The same with a target whose handles shut out nobody, and a sink that wants few deliveries:
    what was not answered may land after a shorter one was begun."""
    _start(world, Stage(target=ScriptedTarget(fences=False), every_ms=60))


def _start(world: World, stage: Stage) -> None:
    world.batches[SINK] = stage  # type: ignore[assignment]  # what a history keeps, whatever it is
    world.start("f1", pipelines.feeder(stage.shop))
    world.start("a", publisher(stage, partial(rig_of, stage)))
    world.start("b", publisher(stage, partial(rig_of, stage)))
    world.start("m1", merger())


def judge(world: World) -> None:
    """Compare what was published with the whole history, computed again from what was sent."""
    stage: Stage = world.batches[SINK]  # type: ignore[assignment]
    wrong = [] if stage.forgets else list(stage.stopped)

    def look(process: Host) -> None:
        process.heal()
        wrong.extend(differences(stage, process.store))

    world.start("judge", look)
    world.sim.run_until(world.all_done)
    if wrong:
        raise HistoryError("\n".join(f"sink: {what}" for what in wrong[:10]))


def differences(stage: Stage, store: Store) -> list[str]:
    """What is wrong with what was published, as sentences."""
    logs = list(stage.target.logs.values())
    if len(logs) > 1:
        return [f"there are {len(logs)} lineages, and nothing was changed"]
    return compared(stage, store, SINK, logs[0] if logs else Log(), each=not stage.every_ms)


def compared(play: Play, store: Store, sink: str, log: Log, *, each: bool = True) -> list[str]:
    """What is wrong with what one sink has published, its claim and its marks; `each`: every
    transaction by itself."""
    journal = Journal(store.env, pipelines.NAME)
    shard = journal.refresh().bindings[SOURCE].shard
    held = [_content(rows[shard]) for rows in verdicts.expected_rows(play.shop, journal)]
    if play.stopped:
        # What a stopped sink has is right as far as it came.
        held = held[: log.landed[-1].t + 1] if log.landed else []
    wrong = _published(log, held, each=each) + _marked(log, store, sink)
    terms = Claims(store.env, pipelines.NAME, sink, name="judge", lease_ms=1).read().term
    if log.fenced > 4 * terms + 8:
        wrong.append(f"publishers fenced each other {log.fenced} times in {terms} terms")
    return wrong


def _published(log: Log, held: list[Counter[str]], *, each: bool) -> list[str]:
    """A new sink begins with all that there is at one time; from then on nothing is left out.

    That may have been the last time, and nothing may have been there. What comes together with
    what came later is not left out.
    """
    times = [each.t for each in log.landed]
    if times != sorted(set(times)):
        return [f"transactions were published as {times}"]
    changed = [t for t, now in enumerate(held) if now != (held[t - 1] if t else Counter())]
    first = (times[0] if each else times[-1]) if times else len(held)
    missing = [t for t in changed if t > first and t not in times]
    if missing or (held and held[-1] and not times):
        return [f"{missing or changed} have changes and were not published, {times} were"]
    wrong = []
    total: Counter[str] = Counter()
    for landed in log.landed:
        before = Counter(total)
        for row in landed.rows:
            total[_text(row)] += int(str(row["_diff"]))
        total = +total if all(count >= 0 for count in total.values()) else total
        if total != held[landed.t]:
            wrong.append(f"at {landed.t} {total} is published and {held[landed.t]} is right")
        if total == before:
            wrong.append(f"{landed.t} was published and has no changes")
    epochs = [each.epoch for each in log.landed]
    return wrong if epochs == sorted(epochs) else [*wrong, f"epochs fall: {epochs}"]


def _marked(log: Log, store: Store, sink: str) -> list[str]:
    """What is on record in the end is what the target has."""
    claim = Claims(store.env, pipelines.NAME, sink, name="judge", lease_ms=1).read()
    last = log.landed[-1].t if log.landed else -1
    return [
        f"{KEY_PREFIX}: {mark} is on record and the target is at {last}"
        for mark in claim.marks.values()
        if mark.done > last or mark.intent < last
    ]


def _content(rows: list[pipelines.Row]) -> Counter[str]:
    return Counter(_text(row) for row in rows)


def _text(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items() if name != "_diff")
