"""What is seen of a pipeline and of its sinks, from any process: nothing of it disturbs anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import NotFoundError, StrandlineError
from strandline.model.ids import printable
from strandline.pipeline.place import placed
from strandline.pipeline.read_back import Reading, compared, quiet
from strandline.pipeline.report import history_of, sink_sights, status_of
from strandline.pipeline.sinks import targets
from strandline.pipeline.sources import close_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.connectors.sink import SinkPorts
    from strandline.connectors.source import Source
    from strandline.handles.store import Store
    from strandline.journal.log import Journal
    from strandline.pipeline.read_back import Told, VerifiedSink
    from strandline.pipeline.report import PipelineStatus, TransactionSummary
    from strandline.shard.state import State as ShardState
    from strandline.views.program import Program

_AGAIN_MS = 30_000
"""For so long a source that could not be opened is not asked again: each try may take its time."""


class Looking:
    """Looks at one pipeline. Close it."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        sources: Callable[[Program, frozenset[str]], Mapping[str, Source]],
        ports: Callable[[], SinkPorts],
    ) -> None:
        self._store = store
        self._journal = journal
        self._sources = sources
        self._ports = ports
        self._opening = store.env.tasks.condition()
        self._gauges: dict[str, dict[str, Source]] = {}
        """By program, and by table."""
        self._away: dict[tuple[str, str], float] = {}
        """When a source of a program could not be opened."""

    def status(self, program: Program, *, sources: bool = True) -> PipelineStatus:
        """Where it stands and who runs it, wherever that is.

        How far its sources are ahead takes asking them, who may be away or gone, or need what this
        process has not: of those it is not told.
        """
        gauges = self._opened(program) if sources else {}
        return status_of(self._journal, gauges, self._state, program)

    def history(self, program: Program, count: int) -> list[TransactionSummary]:
        """The last committed transactions, the newest first."""
        sights = sink_sights(self._journal, self._state, program)
        return history_of(self._journal, count, sights)

    def sink(self, program: Program, name: str) -> str:
        """The name of a sink, as the program writes it."""
        for each in program.sinks:
            if each.name.casefold() == name.casefold():
                return each.name
        known = ", ".join(each.name for each in program.sinks)
        raise NotFoundError(
            f"pipeline {self._journal.pipeline} has no sink {printable(name)}: "
            f"it has {known or 'none'}"
        )

    def verify_sink(self, program: Program, name: str, told: Told = quiet) -> VerifiedSink:
        """Whether the target of a sink holds what its collection held at the delivered time."""
        which = self.sink(program, name)
        target = next(each for each in targets(program, self._ports()) if each.name == which)
        standing = self._journal.refresh()
        place = placed(self._store, standing, target)
        if place is None:
            raise NotFoundError(
                f"pipeline {self._journal.pipeline} has no {target.source} yet: run it first"
            )
        return compared(Reading(self._store, standing.pipeline, target, place), told)

    def _opened(self, program: Program) -> Mapping[str, Source]:
        """Sources of its own: those that a replica uses belong to the task that runs it."""
        with self._opening:
            gauges = self._gauges.setdefault(program.hash, {})
            for table in program.tables:
                if table.name not in gauges:
                    gauges |= self._tried(program, table.name)
            return dict(gauges)

    def _tried(self, program: Program, name: str) -> Mapping[str, Source]:
        now_ms, which = self._store.env.clock.monotonic_ms(), (program.hash, name)
        if now_ms - self._away.get(which, -_AGAIN_MS) < _AGAIN_MS:
            return {}
        try:
            return self._sources(program, frozenset({name}))
        except StrandlineError:
            self._away[which] = self._store.env.clock.monotonic_ms()
            return {}

    def close(self) -> None:
        for gauges in self._gauges.values():
            close_sources(gauges)

    def _state(self, name: str) -> ShardState:
        return self._store.machine(name).refresh()
