"""The verbs of explicit transactions: begin, insert, commit, abort."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.pipelines import pipeline_of
from strandline.cli.render import counted, shown
from strandline.errors import NotFoundError, UsageError
from strandline.pipeline.rows import json_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.cli.output import Output
    from strandline.pipeline.engine import NewEngine

_CHUNK_ROWS = 10_000


def begin_transaction(url: str, name: str | None, out: Output) -> None:
    with pipeline_of(url, name) as pipeline:
        transaction = pipeline.transaction()
    out.answer({"pipeline": pipeline.name, "transaction": transaction.id}, shown(transaction.id))


def insert_rows(
    url: str, name: str | None, to: tuple[str, str, int | None], file: str, out: Output
) -> None:
    """Rows from a file, in chunks; with a number of the caller's they are one chunk."""
    handle, table, chunk = to
    with pipeline_of(url, name) as pipeline:
        declared = pipeline.program.table(table)
        if declared is None:
            known = ", ".join(each.name for each in pipeline.program.tables)
            raise NotFoundError(f"pipeline {pipeline.name} has no table {table}: it has {known}")
        transaction = pipeline.transaction(handle)
        rows = 0
        chunks: list[int] = []
        for lines in _pieces(file):
            if chunk is not None and chunks:
                raise UsageError(f"more than {_CHUNK_ROWS} rows are several chunks: omit --chunk")
            chunks.append(transaction.insert(table, json_rows(lines, declared), chunk=chunk))
            rows += len(lines)
    document: dict[str, object] = {"transaction": handle, "rows": rows, "chunks": chunks}
    out.answer(document, shown(f"{counted(rows, 'row')} for {table} in {handle}"))


def commit_transaction(
    url: str,
    name: str | None,
    handle: str,
    timeout_ms: int,
    out: Output,
    engine: NewEngine | None,
) -> None:
    with pipeline_of(url, name, engine) as pipeline:
        t = pipeline.transaction(handle).commit(timeout_ms=timeout_ms)
    out.answer({"transaction": handle, "time": t}, shown(f"{handle} is committed as {t}"))


def abort_transaction(url: str, name: str | None, handle: str, out: Output) -> None:
    with pipeline_of(url, name) as pipeline:
        pipeline.transaction(handle).abort()
    out.answer({"transaction": handle, "aborted": True}, shown(f"{handle} is aborted"))


def _pieces(file: str) -> Iterator[list[bytes]]:
    if file == "-":
        yield from _cut(line for line in sys.stdin.buffer if line.strip())
        return
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"there is no file {file}")
    with path.open("rb") as lines:
        yield from _cut(line for line in lines if line.strip())


def _cut(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    while piece := list(islice(lines, _CHUNK_ROWS)):
        yield piece
