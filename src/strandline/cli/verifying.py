"""The verb that compares a sink's target with its view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cli.pipelines import pipeline_of
from strandline.cli.render import Column, counted, shown, signed, table
from strandline.pipeline.documents import verified_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.cli.output import Output
    from strandline.cli.render import Grid
    from strandline.pipeline.read_back import VerifiedSink


def verify_target(url: str, name: str | None, sink: str, out: Output) -> bool:
    """Whether the target holds what its view held; what differs is told."""
    with pipeline_of(url, name) as pipeline, out.progress(f"verifying {sink}") as step:

        def told(rows: int, what: str) -> None:
            step(rows, None, what)

        found = pipeline.verify_sink(sink, told)
    document = {"pipeline": pipeline.name, **verified_document(found)}
    said = shown(_said(found), "green" if found.equal else "bold red")
    if found.samples:
        out.answer(document, said, _samples([each.row for each in found.samples], found))
    else:
        out.answer(document, said)
    return found.equal


def _said(found: VerifiedSink) -> str:
    if not found.equal and not (found.target or found.view):
        return f"sink {found.sink}: {found.reason}"
    if not found.equal:
        return (
            f"sink {found.sink}: {found.reason}: {counted(found.target.count, 'row')} in the "
            f"target ({found.target}), {counted(found.view.count, 'row')} in {found.source} "
            f"({found.view})"
        )
    if found.at is None:
        return f"sink {found.sink} has delivered nothing yet"
    rows = counted(found.target.count, "row")
    return f"sink {found.sink} holds what {found.source} held as of {found.at}: {rows}"


def _samples(rows: Sequence[Mapping[str, object]], found: VerifiedSink) -> Grid:
    names = list(rows[0])
    columns = [Column("in the target", right=True), *(Column(name, fold=True) for name in names)]
    lines = [
        (signed(each.more), *(str(each.row[name]) for name in names)) for each in found.samples
    ]
    return table(columns, lines)
