"""The Computer port: what a sealed transaction makes of the collections of a program.

Two computers given the same work must answer the same, digest for digest: Spark's, and the one of
plain Arrow that the simulator uses. A computer reads shards as of `work.time - 1`, which is
committed, and never appends: who lands its deltas, and whether they count, is the loop's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from strandline.model.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from strandline.connectors.source import Split
    from strandline.handles.write import Writer
    from strandline.journal.record import StagedRef
    from strandline.model.frontier import Time
    from strandline.parts.part import Batch
    from strandline.pipeline.meaning import Undecoded
    from strandline.views.declared import View
    from strandline.views.program import Program


@dataclass(frozen=True, slots=True)
class Intake:
    """What one endpoint brings into a transaction: exact ranges, or rows that were staged."""

    endpoint: str
    table: str
    splits: tuple[Split, ...] = ()
    staged: tuple[StagedRef, ...] = ()
    replace: bool = False
    """Whether the table holds these rows from now on and no others."""


@dataclass(frozen=True, slots=True)
class Work:
    """Everything that decides what a time holds; agreed on before anybody computes it."""

    pipeline: str
    time: Time
    now_ms: int
    """What `now()` is in the program."""
    program: Program
    intakes: tuple[Intake, ...]
    shards: Mapping[str, str]
    """The shard of each collection: tables, views, and their errors."""
    builds: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Views that have their shard since this very time: they are computed in full, whatever came,
    and what their shards hold from an earlier life goes."""
    writers: Mapping[str, Writer] = field(default_factory=dict, kw_only=True)
    """Under whose id a computer may put parts, for each collection; it never appends by them."""

    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    """What views see of tables, which may have got more columns; all, of those left out."""

    @property
    def replaced(self) -> frozenset[str]:
        """The tables whose content is replaced."""
        return frozenset(each.table for each in self.intakes if each.replace)

    def whole(self, view: View) -> bool:
        """Whether a view is computed from all that it reads; before the first time that is what
        changes, anyhow."""
        return view.kind != "linear" or (view.name in self.builds and self.time > 0)


@dataclass(frozen=True, slots=True)
class Delta:
    """The updates of one collection at one time, as rows or as parts that were put."""

    digest: Digest
    updates: pa.Table | None = None
    """With `_diff`; their time is that of the work."""
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class Computed:
    """What came in and what it changed. A collection that is left out has no change."""

    inputs: Mapping[str, Digest]
    deltas: Mapping[str, Delta]
    undecoded: Mapping[str, Undecoded] = field(default_factory=dict)
    """By table, what became error rows of it, or healed at once."""
    fresh: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By table that adds columns, fields without one, with the types that they would have."""

    def digests(self) -> dict[str, Digest]:
        """Of each collection that changes."""
        return {
            name: delta.digest for name, delta in self.deltas.items() if delta.digest != Digest.ZERO
        }


class Computer(Protocol):
    """Computes transactions; holds no state that a restart would lose."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Of everything that an answer may depend on; `BEGIN` records them."""
        ...

    def view_columns(self, program: Program) -> Mapping[str, pa.Schema]:
        """The columns of each view, as this engine types them."""
        ...

    def compute(self, work: Work) -> Computed:
        """The same answer for the same work, whoever asks and however often."""
        ...
