"""What every replica of one program works with."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from strandline.connectors.push import PushSource
from strandline.connectors.registry import fetch as fetch_split
from strandline.errors import JournalError
from strandline.journal.log import Journal
from strandline.journal.staging import program_text
from strandline.journal.timeline import JournalTimeline, timeline_name
from strandline.pipeline.catalog import collections
from strandline.pipeline.pushes import PushDesk
from strandline.pipeline.sources import close_sources, reached_as, same_rows
from strandline.views.parse import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.connectors.source import Source, Split
    from strandline.handles.store import Store
    from strandline.journal.standing import Standing
    from strandline.pipeline.catalog import Collection
    from strandline.pipeline.compute import Computer
    from strandline.pipeline.place import Target
    from strandline.pipeline.settings import PipelineSettings
    from strandline.views.declared import Table
    from strandline.views.program import Program


def _fetch(split: Split) -> Iterator[pa.RecordBatch]:
    return fetch_split(split, str)


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
    desks: Mapping[str, PushDesk] = field(default_factory=dict)
    """By endpoint, where this process takes pushed rows."""
    reopen: Callable[[Program, frozenset[str]], Mapping[str, Source]] | None = None
    """Opens sources of an earlier program, which this one has not, or reads otherwise; they are
    closed after use."""

    sinks: Sequence[Target] = ()
    """What is published, and where."""
    fetch: Callable[[Split], Iterable[pa.RecordBatch]] = _fetch
    """Reads what is staged before it is sealed, in this process."""
    strict: frozenset[str] = frozenset()
    """Tables that nothing is committed of while a value can't be decoded (`onError 'fail'`). It
    does not change what is computed, so it is what the user says now, not what is on record."""


@contextmanager
def under(rig: Rig, standing: Standing) -> Iterator[Rig]:
    """The rig for what was sealed under the journal's program, which may be another one (S74).

    That program is taken from the record. Sources that both have are this rig's own, as long as
    they read the same rows; others that the transaction reads are opened as that program says, and
    reached as the user says now: how is no part of what was sealed.
    """
    if standing.program == rig.program.hash:
        yield rig
        return
    pipeline = rig.journal.pipeline
    text = program_text(rig.store.env, pipeline, standing.programs[standing.program])
    program = parse(text, recorded=True)
    if program.hash != standing.program:
        raise JournalError(
            f"pipeline {pipeline}: the program on record reads as {program.hash[:12]}, and is "
            f"{standing.program[:12]}: finish with the version of Strandline that began it"
        )
    now = {each.name: each for each in rig.program.tables if each.name in rig.sources}
    own = {
        each.name: rig.sources[each.name]
        for each in program.tables
        if each.name in now and same_rows(each, now[each.name])
    }
    opened = _reopened(rig, program, now, _read_by(standing) - own.keys())
    try:
        yield replace(
            rig,
            program=program,
            text=text,
            collections=collections(pipeline, program, rig.computer.view_columns(program)),
            sources={**opened, **own},
        )
    finally:
        close_sources(opened)


def _read_by(standing: Standing) -> frozenset[str]:
    """The endpoints whose sources what is sealed is read from; a source that nothing is read from
    may be gone, and nobody misses it."""
    reads = () if standing.sealed is None else standing.sealed.reads
    return frozenset(each.endpoint for each in reads if each.taken is not None and not each.staged)


def _reopened(
    rig: Rig, program: Program, now: Mapping[str, Table], names: frozenset[str]
) -> dict[str, Source]:
    if rig.reopen is None or not names:
        return {}
    tables = tuple(
        reached_as(each, now[each.name]) if each.name in now else each for each in program.tables
    )
    return dict(rig.reopen(replace(program, tables=tables), names))


def rigged(  # noqa: PLR0913 - each comes from another place, and assembly brings them together
    store: Store,
    name: str,
    program: Program,
    text: str,
    *,
    sources: Mapping[str, Source],
    computer: Computer,
    settings: PipelineSettings,
    reopen: Callable[[Program, frozenset[str]], Mapping[str, Source]] | None = None,
    sinks: Sequence[Target] = (),
    fetch: Callable[[Split], Iterable[pa.RecordBatch]] = _fetch,
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
        desks={
            endpoint: PushDesk(store.env, source)
            for endpoint, source in sources.items()
            if isinstance(source, PushSource)
        },
        reopen=reopen,
        sinks=sinks,
        fetch=fetch,
        strict=frozenset(each.name for each in program.tables if each.on_error == "fail"),
    )
