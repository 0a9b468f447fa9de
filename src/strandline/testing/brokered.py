"""Roles around a broker: replicas that publish to it, somebody who reads along, and a judge.

Two replicas run the shop of `pipelines` and publish its view `large` to a broker in memory by the
production sink. Requests get lost, come late or twice; the broker is away, forgets, compacts, gets
more partitions and ends what is open for too long; replicas die, sleep longer than their claim
lasts, and are promoted. All the time somebody reads what is committed. In the end the topic must
hold the view's changes, each transaction once, in order, and that reader must have seen the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.kafka_target import target_of
from strandline.pipeline.place import Target
from strandline.testing import pipelines
from strandline.testing.broker import Broker, Fate, ModelCluster
from strandline.testing.broker_log import Partition
from strandline.testing.checkers import HistoryError
from strandline.testing.publishers import SETTINGS, SOURCE, Play, compared, merger, publisher
from strandline.testing.scripted_sink import Landed, Log
from strandline.testing.topics import Reader, Topic

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from strandline.connectors.sink import Delivered
    from strandline.handles.store import Store
    from strandline.pipeline.rig import Rig
    from strandline.testing.world import Host, World

ENVELOPES = ("changes", "upsert", "debezium")
PROGRESS = "progress"
SINK = "out"
_TICK_MS = 10


class _Rates(NamedTuple):
    death: float
    """Of the process, before a request or after its answer."""
    fate: float


# A handle asks a lot before it publishes anything: with higher chances most never came so far.
_RATES = {
    "begin": _Rates(0.01, 0),
    "init": _Rates(0.01, 0.06),
    "produce": _Rates(0.01, 0.04),
    "commit": _Rates(0.02, 0.3),
    "abort": _Rates(0.01, 0.1),
}
_ASKING = _Rates(0.002, 0.005)
_ENDING = ("commit", "abort")
_PARTITIONS_MAX = 5
_MISHAPS = 30
"""Things happen in peace, too, as long as some are left: most of a view is published then."""


@dataclass(frozen=True)
class Troubles:
    """What a broker has to go through, as chances per tick."""

    compact: float = 0
    retain: float = 0
    grow: float = 0
    outage: float = 0
    expire: float = 0
    forget: float = 0
    """All progress, as no broker should."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Troubles:
        def some(most: float) -> float:
            return chance.uniform(0, most) if chance.random() < 0.5 else 0

        return cls(some(0.02), some(0.02), some(0.01), some(0.005), some(0.01))


@dataclass
class BrokerStage(Play):
    """What outlives every process of a history, the broker among it."""

    broker: Broker = field(default_factory=lambda: Broker(timeout_ms=3_000))
    sinks: dict[str, str] = field(default_factory=lambda: {SINK: "changes"})
    """The envelope of each; its topic has its name."""
    partitions: int = 3
    troubles: Troubles = field(default_factory=Troubles)
    mishaps: int = 0
    """How many things may still happen to requests, and to who sends them."""
    nuisances: int = 0
    """How often somebody may have been shut out by nobody."""
    readers: list[Reader] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.readers = [
            Reader(Topic(self.broker.log, sink, PROGRESS, sink, envelope))
            for sink, envelope in self.sinks.items()
        ]

    def options(self, sink: str) -> dict[str, str]:
        envelope = self.sinks[sink]
        return {
            "kafka.bootstrap.servers": "model:9092",
            "topic": sink,
            "envelope": envelope,
            "partitions": str(self.partitions),
            "progressTopic": PROGRESS,
            **({} if envelope == "changes" else {"key": "id"}),
        }

    def met(self, world: World, what: str) -> None:
        self.mishaps -= 1
        world.sim.sometimes(what)

    def may_repeat(self, step: str) -> bool:
        """A copy of an end would end whatever is open by then, and no client could know of it."""
        return step in _RATES and (self.broker.log.bumps or step not in _ENDING)

    def look(self) -> None:
        for each in self.readers:
            each.look()


def rig_of(
    stage: BrokerStage, process: Host, before: Callable[[str], Fate | None] | None = None
) -> Rig:
    """A replica's pipeline, whose sinks reach the broker by one connection."""

    def wait() -> None:
        process.node.tasks.sleep(5)

    cluster = ModelCluster(stage.broker, before or script(stage, process), wait)

    def opened(sink: str, what: Delivered) -> KafkaSink:
        return KafkaSink(cluster, target_of(stage.options(sink), what), what)

    targets = [
        Target(sink, SOURCE, {"connector": "kafka", "topic": sink}, partial(opened, sink))
        for sink in stage.sinks
    ]
    return replace(pipelines.rig_of(stage.shop, process.store, SETTINGS), sinks=targets)


def script(stage: BrokerStage, process: Host) -> Callable[[str], Fate | None]:
    """What happens at each request: time passes, it gets lost, its process dies."""

    def before(step: str) -> Fate | None:
        process.node.tasks.sleep(process.random.uniform(0, 2))
        if not stage.mishaps:
            return None
        chance, asked = process.random.random(), step.removesuffix(" answered")
        rates = _RATES.get(asked, _ASKING)
        if chance < rates.death:
            stage.met(process.world, f"died before {step}")
            process.node.crash()
        if chance > 0.95:
            stage.broker.arrive()
        fate = _fate(chance - rates.death, rates.fate) if asked == step else None
        if fate is None or (fate is Fate.TWICE and not stage.may_repeat(step)):
            return None
        stage.met(process.world, f"{step} {fate}")
        stage.nuisances += step == "init"
        return fate

    return before


def _fate(drawn: float, most: float) -> Fate | None:
    """One of the four, each as likely, of a number below `most`."""
    return list(Fate)[int(drawn / most * len(Fate))] if drawn < most else None


def brokered(world: World) -> None:
    """Two replicas that publish, a feeder, one who merges history, and one who reads along."""
    chance = world.sim.stream("broker")
    sinks = {SINK: chance.choice(ENVELOPES)}
    if chance.random() < 0.4:
        sinks["also"] = chance.choice(ENVELOPES)
    stage = BrokerStage(
        sinks=sinks,
        partitions=chance.choice((1, 3)),
        troubles=Troubles.drawn(chance),
        mishaps=_MISHAPS,
    )
    stage.broker.lazy = chance.random() < 0.5
    stage.broker.log.bumps = chance.random() < 0.5
    stage.broker.log.timeout_ms = chance.choice((100, 3_000))
    start(world, stage)


def forgetful(world: World) -> None:
    """The same with a broker that loses all progress: a sink in doubt stops, and never guesses."""
    chance = world.sim.stream("broker")
    troubles = replace(Troubles.drawn(chance), forget=0.01)
    start(world, BrokerStage(forgets=True, troubles=troubles, mishaps=_MISHAPS))


def start(world: World, stage: BrokerStage) -> None:
    world.batches[SINK] = stage  # type: ignore[assignment]  # what a history keeps, whatever it is
    world.start("f1", pipelines.feeder(stage.shop))
    world.start("a", publisher(stage, partial(rig_of, stage)))
    world.start("b", publisher(stage, partial(rig_of, stage)))
    world.start("m1", merger())
    tick(world, stage)


def tick(world: World, stage: BrokerStage) -> None:
    """What the broker does by itself, and what happens to it."""
    broker, chance = stage.broker, world.sim.stream("broker")
    broker.now_ms = world.sim.elapsed_ms()
    broker.work()
    stage.look()
    trouble(world, stage, chance)
    if not world.all_done():
        world.sim.after(_TICK_MS, partial(tick, world, stage))


def trouble(world: World, stage: BrokerStage, chance: random.Random) -> None:
    """One tick of what a broker has to go through."""
    for name, happens in _TROUBLES.items():
        if stage.mishaps and chance.random() < getattr(stage.troubles, name):
            stage.met(world, f"a broker: {name}")
            happens(world, stage, chance)


def _compact(world: World, stage: BrokerStage, chance: random.Random) -> None:  # noqa: ARG001
    for each in stage.broker.log.topics.get(PROGRESS, ()):
        each.compact()


def _retain(world: World, stage: BrokerStage, chance: random.Random) -> None:  # noqa: ARG001
    """A prefix of one partition goes, or all that is decided: what was last among it.

    What is open stays: if it went and counted then, no reader could have seen it.
    """
    each = chance.choice(stage.broker.log.topics.get(SINK, [Partition()]))
    last = max(each.first, each.stable)
    each.cut(chance.choice((last, chance.randint(each.first, last))))


def _grow(world: World, stage: BrokerStage, chance: random.Random) -> None:  # noqa: ARG001
    name = chance.choice((SINK, PROGRESS))
    count = len(stage.broker.log.topics.get(name, ()))
    if 0 < count < _PARTITIONS_MAX:
        stage.broker.log.grow(name, count + 1)


def _outage(world: World, stage: BrokerStage, chance: random.Random) -> None:
    stage.broker.down = True
    world.sim.after(chance.uniform(20, 400), lambda: setattr(stage.broker, "down", False))


def _expire(world: World, stage: BrokerStage, chance: random.Random) -> None:  # noqa: ARG001
    """Ids that have nothing open are forgotten: who had one is out."""
    owners = stage.broker.log.owners
    idle = [name for name, each in owners.items() if each.transaction is None]
    for name in idle:
        del owners[name]
        stage.nuisances += 1


def _forget(world: World, stage: BrokerStage, chance: random.Random) -> None:  # noqa: ARG001
    for each in stage.broker.log.topics.get(PROGRESS, ()):
        each.cut(each.end)


_TROUBLES = {
    "compact": _compact,
    "retain": _retain,
    "grow": _grow,
    "outage": _outage,
    "expire": _expire,
    "forget": _forget,
}


def judge(world: World) -> None:
    """Compare the topics with the whole history, and with what was read all along."""
    stage: BrokerStage = world.batches[SINK]  # type: ignore[assignment]
    stage.broker.lazy = False
    stage.broker.arrive()
    stage.broker.settle()
    stage.look()
    wrong = [] if stage.forgets else list(stage.stopped)
    wrong += shared(stage)

    def look(process: Host) -> None:
        process.heal()
        for reader in stage.readers:
            wrong.extend(differences(stage, reader, process.store))

    world.start("judge", look)
    world.sim.run_until(world.all_done)
    if wrong:
        raise HistoryError("\n".join(f"sink: {what}" for what in wrong[:10]))


def shared(stage: BrokerStage) -> list[str]:
    """Transactional ids of several sinks, which would shut each other out without end."""
    found = Counter(name for each in stage.readers for name in each.topic.writers())
    return [f"{count} sinks publish as {name}" for name, count in found.items() if count > 1]


def differences(stage: BrokerStage, reader: Reader, store: Store) -> list[str]:
    """What is wrong with one sink's topic, as sentences."""
    topic = reader.topic
    landed = [Landed(*each) for each in topic.arrived()]
    nobodys = stage.nuisances + stage.broker.log.overdue
    fenced = max(stage.broker.fenced.values(), default=0)
    log = Log(landed, fenced=max(0, fenced - nobodys))
    return [*topic.wrong, *compared(stage, store, topic.sink, log), *reader.wrong()]
