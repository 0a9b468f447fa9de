"""A checked program: what a pipeline runs. Built by `parse` from text, or by `Program.of`.

    hash        of everything that decides what is computed; not of lines, comments or formatting
    plan_hash   of one view: its query and, of all it reads, whatever the query can see. Equal
                plan hashes give equal rows, so a view's shard is named by it and two programs
                never write one shard for two meanings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.views.declared import (
    Branch as Branch,
    Kind as Kind,
    Sink as Sink,
    Table as Table,
    ViewQuery as ViewQuery,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLAN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class View:
    """A checked view. `sql` is its query as we write it, the only text that an engine is given.

    `reads` names the tables and views it is computed from, sorted. A `linear` view has branches;
    a `full` one is computed anew at each transaction and compared. `uses_now`: the query asks for
    the time, which is `BEGIN`'s (see `rewrite`).
    """

    name: str
    sql: str
    reads: tuple[str, ...]
    kind: Kind
    plan_hash: str
    columns: tuple[str, ...]
    branches: tuple[Branch, ...] = ()
    uses_now: bool = False
    line: int = field(default=0, compare=False)

    def shard(self, pipeline: str) -> str:
        """The name of the shard that holds the rows."""
        return f"{pipeline}.{self.name}.p{self.plan_hash[:PLAN_DIGITS]}"

    def errors_shard(self, pipeline: str) -> str:
        """The name of the shard that says at which times the query raised, and why."""
        return f"{self.shard(pipeline)}_errors"


@dataclass(frozen=True, slots=True)
class Program:
    """Tables, views in an order in which each comes after what it reads, and sinks."""

    tables: tuple[Table, ...]
    views: tuple[View, ...]
    sinks: tuple[Sink, ...]
    hash: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        tables: Sequence[Table] = (),
        views: Sequence[ViewQuery] = (),
        sinks: Sequence[Sink] = (),
        settings: Mapping[str, str] | None = None,
    ) -> Program:
        """Check what is declared as a whole; `ProgramError` lists all that is wrong with it."""
        raise NotImplementedError

    @property
    def collections(self) -> tuple[str, ...]:
        """Names of all tables and views, in an order of computation."""
        return tuple(each.name for each in (*self.tables, *self.views))

    def table(self, name: str) -> Table | None:
        """The table of that name, whatever its case."""
        return next((each for each in self.tables if _same(each.name, name)), None)

    def view(self, name: str) -> View | None:
        """The view of that name, whatever its case."""
        return next((each for each in self.views if _same(each.name, name)), None)

    def readers(self, name: str) -> tuple[str, ...]:
        """Names of the views that are computed from this table or view."""
        return tuple(each.name for each in self.views if name in each.reads)


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()
