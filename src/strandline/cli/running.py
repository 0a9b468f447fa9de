"""The verbs that run pipelines: run, replay, checkpoint, pause, resume, stop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from strandline.cli.backfill import shown_backfill
from strandline.cli.opening import opened
from strandline.cli.pipeline_tables import (
    audit_text,
    sink_state_text,
    state_text,
    status_tables,
    summary_table,
)
from strandline.cli.pipelines import because_of_who_writes, pipeline_of
from strandline.cli.render import counted, shown
from strandline.cli.signals import heeding_signals
from strandline.errors import StalledError
from strandline.pipeline.documents import audit_document, status_document
from strandline.pipeline.requests import Requests
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.states import SinkState, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.cli.facts import Document
    from strandline.cli.output import Output
    from strandline.cli.signals import Signals
    from strandline.handles.store import Store
    from strandline.pipeline.engine import NewEngine
    from strandline.pipeline.pipeline import Pipeline
    from strandline.pipeline.runner import Status

_LOOK_MS = 250
_TELL_MS = 1_000
_SOME = 5
_TOLD_SINKS = (SinkState.STOPPED, SinkState.PAUSED, SinkState.RETRYING, SinkState.BLOCKED)
_EQUAL = "every digest is the one on record"


@dataclass(frozen=True, slots=True)
class Running:
    """What is to be run, in the words of the command line."""

    file: Path
    store: str
    name: str | None = None
    replica: str | None = None
    read_only: bool = False
    until_idle: bool = False
    transactions: int | None = None
    settings: PipelineSettings = field(default_factory=PipelineSettings)


def settings_of(**given: int | None) -> PipelineSettings:
    """The numbers of a pipeline; those that were not given are what they are."""
    return replace(
        PipelineSettings(), **{name: value for name, value in given.items() if value is not None}
    )


def run_pipeline(wanted: Running, out: Output, engine: NewEngine | None) -> bool:
    """Run until it ends or is ended; a signal stops it after a checkpoint.

    Returns whether all is well: a sink that has stopped for good is told, and it is not. Nor is it
    if it was to run until idle and sinks left it something to do.
    """
    with opened(wanted.store, listing="status", create=True) as store:
        pipeline = _opened(store, wanted, engine)
        program = pipeline.program
        document: Document = {
            "kind": "starting",
            "pipeline": pipeline.name,
            "store": store.url,
            "program": program.hash,
            "tables": len(program.tables),
            "views": len(program.views),
        }
        made = f"{counted(len(program.tables), 'table')}, {counted(len(program.views), 'view')}"
        out.event(document, shown(f"{pipeline.name}: {made}, in {store.url}"))
        with heeding_signals() as signals:
            pipeline.start(until_idle=wanted.until_idle, transactions=wanted.transactions)
            with shown_backfill(pipeline, out):
                status = follow_run(pipeline, out, signals)
    _tell(pipeline.name, "ended", status, out)
    left = wanted.until_idle and status.cause
    return not left and all(each.state is not SinkState.STOPPED for each in status.sinks)


def _opened(store: Store, wanted: Running, engine: NewEngine | None) -> Pipeline:
    return store.pipeline(
        wanted.name or wanted.file.stem,
        wanted.file.read_text("utf-8"),
        settings=wanted.settings,
        replica=wanted.replica,
        read_only=wanted.read_only,
        engine=engine,
    )


def follow_run(pipeline: Pipeline, out: Output, signals: Signals) -> Status:
    """Say what changes until the replica in this process ends; what ended it is raised."""
    told: tuple[object, ...] = ()
    told_ms = 0.0
    asked = False
    clock = pipeline.store.env.clock
    while (ended := pipeline.wait(_LOOK_MS)) is None:
        if signals.came and not asked:
            asked = True
            stopping: Document = {"kind": "stopping", "pipeline": pipeline.name}
            out.event(stopping, shown("stopping after a checkpoint"))
            pipeline.stop_here()
        now = pipeline.here
        if now is None or asked:
            continue
        new = (now.state, tuple(each.state for each in now.sinks), now.committed.time)
        moved = not told or new[:2] != told[:2]
        if moved or (new != told and clock.monotonic_ms() - told_ms >= _TELL_MS):
            told, told_ms = new, clock.monotonic_ms()
            if now.state is State.STALLED:
                now = replace(now, cause=because_of_who_writes(pipeline.store, now.cause))
            _tell(pipeline.name, "progress", now, out)
    return ended


def _tell(name: str, kind: str, status: Status, out: Output) -> None:
    document: Document = {
        "kind": kind,
        "pipeline": name,
        "state": str(status.state),
        "committed": status.committed.time,
        "transactions": status.transactions,
        "cause": status.cause or None,
        "audit": None if status.audit is None else audit_document(status.audit),
        "sinks": [
            {"sink": each.name, "state": str(each.state), "cause": each.cause or None}
            for each in status.sinks
        ],
    }
    last = status.committed.last()
    said = f"{name}: committed {'nothing yet' if last is None else f'up to {last}'}, "
    line = shown(said) + state_text(status.state)
    if status.cause:
        line += shown(f": {status.cause}")
    if status.audit is not None:
        line += shown(f"; {audit_text(audit_document(status.audit))}")
    for each in status.sinks:
        if each.state in _TOLD_SINKS:
            line += shown(f"; {each.cause or f'sink {each.name}'}, ") + sink_state_text(each.state)
    out.event(document, line)


def replay_pipeline(
    url: str,
    name: str | None,
    between: tuple[int | None, int | None],
    out: Output,
    engine: NewEngine | None,
) -> bool:
    """Compute transactions again; the first one that differs ends it with an error.

    Returns whether all of them could be computed, and there were some, if anything is committed.
    """
    with pipeline_of(url, name, engine) as pipeline, out.progress("replay") as step:
        start, stop = between
        first = pipeline.status().verifiable_from if start is None else start
        committed = pipeline.committed.time or 0
        last = committed if stop is None else stop
        rows, noted, skipped, done = 0, list[str](), list[str](), 0
        for each in pipeline.replay(first, last, skip=True):
            done, rows = done + (not each.skipped), rows + each.rows
            noted += [f"{each.t}: {one}" for one in each.noted]
            skipped += [f"{each.t}: {each.skipped}"] if each.skipped else []
            step(done, last - first, f"transaction {each.t}")
    nothing = committed > 0 and not done and not skipped
    document: Document = {
        "pipeline": pipeline.name,
        "from": first,
        "to": last,
        "transactions": done,
        "rows": rows,
        "equal": not (noted or skipped or nothing),
        "differences": noted,
        "skipped": skipped,
    }
    said = f"{counted(done, 'transaction')} computed again from {counted(rows, 'row')}: "
    said += f"other versions computed something else: {_some(noted)}" if noted else _EQUAL
    if nothing:
        said = f"no transaction was computed again: there is none from {first} up to {last}"
    if skipped:
        said += f". {counted(len(skipped), 'transaction')} not computed: {_some(skipped)}"
    out.answer(document, shown(said, "green" if document["equal"] else "yellow"))
    return not (skipped or nothing)


def _some(lines: Sequence[str]) -> str:
    left = len(lines) - _SOME
    return "; ".join(lines[:_SOME]) + (f"; and {left} more" if left > 0 else "")


def take_checkpoint(
    url: str, name: str | None, timeout_ms: int, out: Output, engine: NewEngine | None
) -> None:
    with pipeline_of(url, name, engine) as pipeline:
        t = pipeline.checkpoint(timeout_ms=timeout_ms)
    document: Document = {"pipeline": pipeline.name, "checkpoint": t}
    where = "at the start" if t is None else f"at {t}"
    out.answer(document, shown(f"{pipeline.name} has a checkpoint {where}"))


def ask_replicas(
    url: str,
    name: str | None,
    what: Literal["pause", "resume", "stop"],
    timeout_ms: int,
    out: Output,
    *,
    replica: str | None = None,
) -> None:
    """Ask through the store, and wait until everybody who is alive has done it."""
    with pipeline_of(url, name) as pipeline:
        if what == "stop":
            pipeline.stop(replica)
        else:
            (pipeline.pause if what == "pause" else pipeline.resume)()
        _wait_for(pipeline, what, timeout_ms, lambda: _not_yet(pipeline, what, replica))
        document = status_document(pipeline.status())
    out.answer(document, summary_table([document]))


def ask_publishers(
    url: str,
    name: str | None,
    sink: str,
    what: Literal["pause", "resume"],
    timeout_ms: int,
    out: Output,
) -> None:
    """The same for one sink: whoever may publish it has heard it."""
    with pipeline_of(url, name) as pipeline:
        (pipeline.pause if what == "pause" else pipeline.resume)(sink=sink)
        _wait_for(pipeline, what, timeout_ms, lambda: _publishing(pipeline, what, sink))
        document = status_document(pipeline.status())
    out.answer(document, *status_tables(document))


def _wait_for(
    pipeline: Pipeline, what: str, timeout_ms: int, missing: Callable[[], list[str]]
) -> None:
    env = pipeline.store.env
    deadline = env.clock.monotonic_ms() + timeout_ms
    while left := missing():
        if env.clock.monotonic_ms() > deadline:
            raise StalledError(
                f"pipeline {pipeline.name}: {', '.join(left)} did not {what} within "
                f"{timeout_ms // 1000} s; it is asked for"
            )
        env.tasks.sleep(_LOOK_MS)


def _not_yet(pipeline: Pipeline, what: str, replica: str | None) -> list[str]:
    """Replicas that are alive and have not done what was asked."""
    done = {
        "pause": {State.PAUSED, State.STOPPING},
        "resume": {State.RUNNING, State.STARTING, State.STALLED, State.STOPPING},
        "stop": set[State](),
    }[what]
    return [
        each.name
        for each in pipeline.status().replicas
        if each.alive and each.state not in done and replica in {None, each.name}
    ]


def _publishing(pipeline: Pipeline, what: str, sink: str) -> list[str]:
    """Replicas that are alive, and whose publisher of a sink has not done what was asked."""
    done = {SinkState.PAUSED, SinkState.STOPPED, SinkState.ENDED}
    asked = Requests(pipeline.store.env, pipeline.name).read().resumes
    return [
        each.name
        for each in pipeline.status().replicas
        for said in each.said.sinks
        if each.alive and said.name.casefold() == sink.casefold()
        if (said.state not in done if what == "pause" else said.resumes < asked.get(said.name, 0))
    ]
