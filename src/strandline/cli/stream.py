"""Updates and frontiers as lines, for people and for programs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from strandline.cli.escape import cell, visible
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from strandline.cli.facts import Document
    from strandline.model.frontier import Frontier

_CELL = 60


def update_documents(rows: pa.Table) -> Iterator[Document]:
    """One document for each update."""
    for batch in rows.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            time, diff = row.pop(TIME_COLUMN), row.pop(DIFF_COLUMN)
            yield {"kind": "update", "time": time, "diff": diff, "row": row}


def progress_document(frontier: Frontier) -> Document:
    return {"kind": "progress", "frontier": frontier.time, "end": frontier.is_closed}


def update_line(update: Mapping[str, object], *, raw: bool = False) -> Text:
    """`time  diff  column=value …`, retractions in red and insertions in green."""
    diff, row = update["diff"], update["row"]
    inserted = isinstance(diff, int) and diff > 0
    line = Text()
    line.append(f"{update['time']!s:>8}  ", style="bold")
    line.append(f"{diff:+}  ", style="green" if inserted else "red")
    for place, (name, value) in enumerate(row.items() if isinstance(row, dict) else ()):
        line.append("  " if place else "")
        line.append(f"{visible(str(name))}=", style="dim")
        line.append(cell(value) if raw else visible(cell(value, _CELL)))
    return line


def progress_line(frontier: Frontier) -> Text:
    said = "the end" if frontier.is_closed else f"settled before {frontier.time}"
    return Text(f"{frontier!s:>8}  {said}", style="cyan")


class InOrder:
    """Puts updates into the order of their times, as far as that costs little.

    They arrive in any order until a frontier has passed them. So they are kept until then; but a
    reader sees the rows of a large snapshot as they come, and memory stays bounded.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._kept: list[Document] = []

    def add(self, updates: Iterable[Document]) -> list[Document]:
        """Take updates; returns those that are to be shown now."""
        self._kept.extend(updates)
        return self.flush() if len(self._kept) > self._limit else []

    def flush(self) -> list[Document]:
        """All that is left, before a frontier is shown or at the end."""
        released, self._kept = self._kept, []
        return sorted(released, key=_when)


def _when(update: Document) -> tuple[int, int]:
    time, diff = update["time"], update["diff"]
    return (time if isinstance(time, int) else 0, diff if isinstance(diff, int) else 0)
