"""Merges a unit of compaction in a task: the store's objects alone, no Consensus."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from strandline.errors import InvariantError
from strandline.model.frontier import Frontier
from strandline.shard.env import Env
from strandline.shard.metrics import Metrics
from strandline.shard.settings import Settings
from strandline.shard.state import State
from strandline.spark.instruction import Answer
from strandline.system import SystemClock, SystemTasks
from strandline.upkeep.merge import merge
from strandline.upkeep.units import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.ids import SeqNo
    from strandline.model.timeline import Timeline
    from strandline.spark.instruction import Merge
    from strandline.spark.put import Bench
    from strandline.store.consensus import CasResult, Versioned


class NoConsensus:
    """Stands where Consensus would: a task that asks for it is a bug."""

    def head(self, key: str) -> Versioned | None:
        _refuse(key)

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        _refuse(f"{key} {new.seqno}")

    def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        _refuse(f"{key} {start} {limit}")

    def truncate(self, key: str, before: SeqNo) -> None:
        _refuse(f"{key} {before}")

    def keys(self, prefix: str) -> Sequence[str]:
        _refuse(prefix)

    def now_ms(self) -> int:
        _refuse("the clock")

    def close(self) -> None:
        return None


def _refuse(what: str) -> NoReturn:
    raise InvariantError(f"a task asked Consensus for {what}: tasks see objects alone")


def _no_timeline(name: str) -> Timeline:
    raise InvariantError(f"a task asked for timeline {name}: tasks see objects alone")


def merged(bench: Bench, told: Merge) -> Answer:
    """The parts that come of a unit, or of a span of its places."""
    ground = bench.ground
    env = Env(
        blob=bench.blob,
        consensus=NoConsensus(),
        clock=SystemClock(),
        tasks=SystemTasks(),
        random=bench.random,
        metrics=Metrics(),
        settings=Settings(),
        timelines=_no_timeline,
    )
    state = State(
        ground.shard,
        ground.shard_id,
        ground.schema,
        since=Frontier(told.since),
        batches=told.inline,
    )
    unit = Unit(
        told.reason,
        told.parts,
        tuple(batch.lower for batch in told.inline),
        told.base,
        told.halvings,
        told.level,
        told.span,
    )
    outputs = merge(env, state, unit, writer=ground.writer, bytes_max=told.bytes_max)
    return Answer(parts=tuple(outputs.parts))
