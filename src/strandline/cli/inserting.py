"""The verbs of transactions: begin, insert, commit and abort explicit ones; amend a sealed one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.pipelines import pipeline_of
from strandline.cli.render import counted, shown
from strandline.errors import UsageError
from strandline.model.ids import printable
from strandline.pipeline.rows import json_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.cli.output import Output
    from strandline.pipeline.engine import NewEngine

_CHUNK_ROWS = 10_000
"""Part of what a repeated command relies on: it cuts its file as it did before."""


def begin_transaction(url: str, name: str | None, out: Output) -> None:
    with pipeline_of(url, name) as pipeline:
        transaction = pipeline.transaction()
    out.answer({"pipeline": pipeline.name, "transaction": transaction.id}, shown(transaction.id))


def insert_rows(
    url: str, name: str | None, to: tuple[str, str, int | None], file: str, out: Output
) -> None:
    """Rows from a file, in chunks; a number of the caller's is that of the first, and the others
    count up: the same file under the same number counts once, wherever a try ended."""
    handle, table, first = to
    with pipeline_of(url, name) as pipeline:
        declared = pipeline.declared(table)
        transaction = pipeline.transaction(handle)
        rows = 0
        chunks: list[int] = []
        for lines in _pieces(file):
            chunk = None if first is None else first + len(chunks)
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


@dataclass(frozen=True, slots=True)
class Amending:
    """What is amended, in the words of the command line."""

    t: int
    endpoint: str
    reason: str
    take: tuple[str, ...] = ()
    file: str | None = None
    empty: bool = False

    def ranges(self) -> dict[str, tuple[int, int]] | None:
        return dict(_range(each) for each in self.take) or None


def amend_transaction(url: str, name: str | None, wanted: Amending, out: Output) -> None:
    with pipeline_of(url, name) as pipeline:
        rows = None
        if wanted.file is not None:
            table = pipeline.fed_by(wanted.endpoint)
            rows = json_rows([line for piece in _pieces(wanted.file) for line in piece], table)
        ranges = wanted.ranges()
        pipeline.amend(
            wanted.t,
            wanted.endpoint,
            reason=wanted.reason,
            take=ranges,
            rows=rows,
            empty=wanted.empty,
        )
    document: dict[str, object] = {
        "pipeline": pipeline.name,
        "time": wanted.t,
        "endpoint": wanted.endpoint,
        "take": ranges,
        "rows": None if rows is None else rows.num_rows,
    }
    told = "nothing" if rows is None else counted(rows.num_rows, "row")
    told = told if ranges is None else f"a part of it, {', '.join(wanted.take)},"
    said = f"{wanted.t} reads {told} in place of what was sealed from {wanted.endpoint}"
    out.answer(document, shown(said))


def _range(text: str) -> tuple[str, tuple[int, int]]:
    """`PARTITION:START:STOP`; a partition's name may have colons of its own."""
    partition, _, rest = text.rpartition(":")
    partition, _, first = partition.rpartition(":")
    if not (partition and first.isdecimal() and rest.isdecimal()):
        raise UsageError(f"{printable(text)} is no range: write PARTITION:START:STOP")
    return partition, (int(first), int(rest))


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
