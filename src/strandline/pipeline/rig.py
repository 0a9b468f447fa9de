"""What every replica of one program works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.journal.log import Journal
from strandline.journal.timeline import JournalTimeline, timeline_name
from strandline.pipeline.catalog import collections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.connectors.source import Source
    from strandline.handles.store import Store
    from strandline.pipeline.catalog import Collection
    from strandline.pipeline.compute import Computer
    from strandline.pipeline.place import Target
    from strandline.pipeline.settings import PipelineSettings
    from strandline.views.program import Program


@dataclass(frozen=True, slots=True)
class Rig:
    """What a replica works with; the same for all replicas of one program."""

    store: Store
    journal: Journal
    attach: Callable[[str], None]
    """Puts a shard on the pipeline's timeline, and fences it; repeating it is harmless."""
    timeline: str
    program: Program
    text: str
    """The program as its user wrote it, for the record."""
    collections: Sequence[Collection]
    sources: Mapping[str, Source]
    """By endpoint: the name of the table that it feeds."""
    computer: Computer
    settings: PipelineSettings
    sinks: Sequence[Target] = ()
    """What is published, and where."""


def rigged(  # noqa: PLR0913 - each comes from another place, and assembly brings them together
    store: Store,
    name: str,
    program: Program,
    text: str,
    *,
    sources: Mapping[str, Source],
    computer: Computer,
    settings: PipelineSettings,
    sinks: Sequence[Target] = (),
) -> Rig:
    """The rig of a program on a store."""
    journal = Journal(store.env, name)
    timeline = timeline_name(name)
    line = JournalTimeline(store.env, timeline)
    return Rig(
        store=store,
        journal=journal,
        attach=lambda shard: line.attach(store.machine(shard)),
        timeline=timeline,
        program=program,
        text=text,
        collections=collections(name, program, computer.view_columns(program)),
        sources=sources,
        computer=computer,
        settings=settings,
        sinks=sinks,
    )
