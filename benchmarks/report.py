"""How every benchmark reports: a table for people, then one line of JSON for machines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Point:
    """One measured point. `ratio` is what `goal` is about; `met` says whether it was reached."""

    name: str
    ours: float
    peer: float
    ratio: float
    goal: str
    met: bool


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)


def finish(points: list[Point]) -> None:
    """Print the points; the last line of a benchmark is always JSON."""
    show(
        "goals",
        ["point", "ours", "beside", "ratio", "goal", "met"],
        [
            [p.name, f"{p.ours:.4g}", f"{p.peer:.4g}", f"{p.ratio:.3g}", p.goal, _word(p.met)]
            for p in points
        ],
    )
    facts = [asdict(point) for point in points]
    print(json.dumps(facts[0] if len(facts) == 1 else facts))


def _word(met: bool) -> str:  # noqa: FBT001 - a value to print
    return "yes" if met else "NO"
