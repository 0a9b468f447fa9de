"""A checked program: what a pipeline runs. Built by `parse` from text, or by `Program.of`.

hash        of everything that decides what is computed; not of lines, comments or formatting
plan_hash   of one view: its query and, of all it reads, whatever the query can see. Equal
            plan hashes give equal rows, so a view's shard is named by it and two programs
            never write one shard for two meanings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.views.check import checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.views.declared import Sink, Table, View, ViewQuery
    from strandline.views.troubles import Troubles


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
        *,
        found: Troubles | None = None,
        recorded: bool = False,
    ) -> Program:
        """Check what is declared as a whole; `ProgramError` lists all that is wrong with it.

        `found` has what was wrong with the text of other statements; of what is `recorded` secrets
        are not looked for.
        """
        good = checked(tables, views, sinks, found, recorded=recorded)
        return cls(good.tables, good.views, good.sinks, good.hash, dict(settings or {}))

    @property
    def collections(self) -> tuple[str, ...]:
        """Names of all tables and views, in an order of computation."""
        return (*(each.name for each in self.tables), *(each.name for each in self.views))

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
