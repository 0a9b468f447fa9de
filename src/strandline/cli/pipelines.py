"""The verbs that look at pipelines: status, top, history, query, subscribe."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich.live import Live

from strandline.cli.conditions import parse_as_of
from strandline.cli.opening import opened
from strandline.cli.pipeline_tables import (
    history_table,
    listed,
    sinks_table,
    status_tables,
    summary_table,
)
from strandline.cli.tables import rows_table
from strandline.errors import NotFoundError, UsageError
from strandline.pipeline.documents import status_document, summary_document, unreadable_document
from strandline.pipeline.report import Unreadable, each_for_itself
from strandline.pipeline.said import SILENT
from strandline.pipeline.states import SinkState, State
from strandline.store.locate import who_writes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.cli.facts import Document
    from strandline.cli.output import Output
    from strandline.handles.store import Store
    from strandline.pipeline.engine import NewEngine
    from strandline.pipeline.pipeline import Pipeline
    from strandline.pipeline.report import PipelineStatus

_CELL = 60


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, in the words of the command line."""

    sql: str
    as_of: str | None = None
    rows: int = 100


@contextmanager
def pipeline_of(url: str, name: str | None, engine: NewEngine | None = None) -> Iterator[Pipeline]:
    """The pipeline on record that a verb is about."""
    with opened(url, listing="status") as store:
        yield store.pipeline(chosen(store, name), engine=engine)


def chosen(store: Store, name: str | None) -> str:
    """The pipeline of that name, or the only one that there is."""
    known = store.pipelines()
    if name is not None:
        if name not in known:
            raise NotFoundError(f"there is no pipeline {name} in store {store.url}")
        return name
    if len(known) == 1:
        return known[0]
    if not known:
        raise NotFoundError(f"store {store.url} has no pipeline: strandline run makes one")
    raise UsageError(f"store {store.url} has several pipelines: name one of {', '.join(known)}")


def is_pipeline(url: str, name: str) -> bool:
    """Whether a name is that of a pipeline."""
    with opened(url) as store:
        return name in store.pipelines()


def show_status(url: str, name: str | None, out: Output) -> bool:
    """Where pipelines stand; `True` if one of them, or a sink of one, is in trouble."""
    with opened(url, listing="status") as store:
        documents = _documents(store, name)
    document: Document = {"store": store.url, "pipelines": documents}
    if name is None and len(documents) != 1:
        out.answer(document, summary_table(documents))
    else:
        out.answer(document, *status_tables(documents[0]))
    return any(each["state"] in {State.FAILED, State.STALLED} for each in documents) or any(
        sink["state"] == SinkState.STOPPED for each in documents for sink in listed(each, "sinks")
    )


def watch(url: str, name: str | None, out: Output, *, every_ms: int, count: int | None) -> None:
    """Show the same again and again; on a terminal, in its place."""
    with opened(url, listing="status") as store:
        pipelines: dict[str, Pipeline] = {}
        live = Live(console=out.console, auto_refresh=False, screen=False, transient=True)
        seen = 0
        try:
            if out.console.is_terminal and not out.as_json:
                live.start()
            while count is None or seen < count:
                if seen:
                    store.env.tasks.sleep(every_ms)
                documents = _documents(store, name, pipelines)
                seen += 1
                if live.is_started:
                    live.update(summary_table(documents), refresh=True)
                else:
                    out.event({"kind": "status", "pipelines": documents}, summary_table(documents))
        except KeyboardInterrupt:
            return
        finally:
            live.stop()


def _documents(
    store: Store, name: str | None, known: dict[str, Pipeline] | None = None
) -> list[Document]:
    opened_before = {} if known is None else known

    def status(each: str) -> PipelineStatus:
        if each not in opened_before:
            opened_before[each] = store.pipeline(each)
        return opened_before[each].status()

    names = store.pipelines() if name is None else [chosen(store, name)]
    found = [each_for_itself(each, partial(status, each)) for each in names]
    return [
        unreadable_document(each.name, each.cause)
        if isinstance(each, Unreadable)
        else _explained(store, status_document(each))
        for each in found
    ]


def _explained(store: Store, document: Document) -> Document:
    if document["state"] in {SILENT, State.STALLED}:
        document["cause"] = because_of_who_writes(store, str(document["cause"]))
    return document


def because_of_who_writes(store: Store, cause: str) -> str:
    """Why nobody says or does anything, if it is that nobody can: a stopped process holds the
    store. Whoever waits for it finds out only when it gives up."""
    held = who_writes(store.url)
    if held is None or not held.stopped or str(held) in cause:
        return cause
    return f"{cause}: nobody can write to the store, because {held}"


def show_transactions(url: str, name: str, limit: int, out: Output) -> None:
    """The last transactions of a pipeline, and how its sinks are."""
    with pipeline_of(url, name) as pipeline:
        found = [summary_document(each) for each in pipeline.history(limit)]
        sinks = status_document(pipeline.status(sources=False))["sinks"]
    document: Document = {"pipeline": name, "transactions": found, "sinks": sinks}
    out.answer(document, history_table(found), *sinks_table(document))


def answer_query(
    url: str, name: str | None, asked: Asked, out: Output, engine: NewEngine | None
) -> None:
    """The rows of a query."""
    with pipeline_of(url, name, engine) as pipeline:
        as_of = pipeline.committed.last() if asked.as_of is None else parse_as_of(asked.as_of)
        table = pipeline.query(asked.sql, as_of)
        first = table.slice(0, asked.rows)
        # Columns may have the same name twice, which a dict would lose.
        columns = [column.to_pylist() for column in first.columns]
        document: Document = {
            "as_of": as_of,
            "matching": table.num_rows,
            "columns": first.column_names,
            "rows": [list(row) for row in zip(*columns, strict=True)],
        }
    out.answer(document, rows_table(document, raw=out.raw, cell_limit=_CELL))


def shard_of(url: str, name: str | None, collection: str) -> str:
    """The shard that a collection of a pipeline is."""
    with pipeline_of(url, name) as pipeline:
        return pipeline.collection(collection).name
