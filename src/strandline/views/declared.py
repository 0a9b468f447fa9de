"""What a program declares: tables, queries of views, sinks; and views as they are once checked.

The same values come from SQL text and from Python; `Program.of` checks them and plans the views.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

Kind = Literal["linear", "full"]

CONNECTORS = ("files", "generator", "http", "kafka", "strandline")
SINKS = ("callback", "files", "iceberg", "kafka", "postgresql")
ENVELOPES = ("append", "debezium", "upsert")
ON_ERROR = ("collect", "fail")
PLAN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Table:
    """A collection that is fed from outside, one transaction at a time.

    `envelope` says what a row from outside means: one more row (`append`), the new row of its key
    (`upsert`, no value deletes it), or a change as Debezium writes it. Left out, it is `upsert`
    for a table with a key. `on_error` says where a value that can't be decoded goes: to the
    table's error collection (`collect`), or it stops the pipeline (`fail`).
    `options` are the connector's own, secrets as references only.
    """

    name: str
    columns: pa.Schema
    connector: str
    key: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    envelope: str = ""
    sequence_by: tuple[str, ...] = ()
    on_error: str = "collect"
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not self.envelope:
            object.__setattr__(self, "envelope", "upsert" if self.key else "append")

    def shard(self, pipeline: str) -> str:
        """The name of the shard that holds the rows."""
        return f"{pipeline}.{self.name}"

    def errors_shard(self, pipeline: str) -> str:
        """The name of the shard that holds what could not be decoded."""
        return f"{pipeline}.{self.errors}"

    @property
    def errors(self) -> str:
        """The name of the error collection inside the pipeline."""
        return f"{self.name}_errors"


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """A view as a person writes it: its query, and whether it may be computed anew each time."""

    name: str
    sql: str
    refresh_full: bool = False
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the changes of a table or a view are published, in order of their times."""

    name: str
    source: str
    connector: str
    options: Mapping[str, str] = field(default_factory=dict)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Branch:
    """One `SELECT` of a linear view: rows of `source` that pass `where`, mapped by `projections`.

    A view is the sum of its branches, and so are its changes:

        changes(view) = sum over branches of map(projections, filter(where, changes(source)))

    where every `_diff` stays what it is. Expressions are SQL over the columns of `source` alone;
    each projection is a pair of (name, expression).
    """

    source: str
    where: str | None
    projections: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class View:
    """A checked view. `sql` is its query as we write it, the only text that an engine is given.

    `reads` names the tables and views it is computed from, sorted. A `linear` view has branches;
    a `full` one is computed anew at each transaction and compared. `uses_now`: the query asks for
    the time, which is `BEGIN`'s (see `rewrite`). `sees` has, by table that it reads, the columns
    that `plan_hash` covers: the key's, and those that the query can see.
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
    sees: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def shard(self, pipeline: str) -> str:
        """The name of the shard that holds the rows."""
        return f"{pipeline}.{self.name}.p{self.plan_hash[:PLAN_DIGITS]}"

    def errors_shard(self, pipeline: str) -> str:
        """The name of the shard that says at which times the query raised, and why."""
        return f"{self.shard(pipeline)}_errors"
