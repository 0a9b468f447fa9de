"""Tables with a clock: the public names, and a map of the folder.

errors    pure   every error, grouped by what the caller should do next
exports   shell  public names that are imported when they are first used
system    shell  the real clock, chance and threads
config    shell  settings, and the only reader of the environment
heart     shell  keeps a process's leases alive from a process of its own
assembly  shell  the only place where ports meet their implementations

model/    the nouns that every other package speaks, and the ports of time, chance and tasks
store/    bytes that survive us: the ports Blob and Consensus, and their backends
shard/    a durable collection of updates that many processes write and read at once
cli/      the store seen and tended from a terminal
testing/  what tests need and production must never import: simulator, faults, checkers

A new public name is a row in the table of its home and the same name in the import above it; a
test compares the two. `__all__` follows from the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.exports import lazy as _lazy

if TYPE_CHECKING:
    from strandline.errors import (
        BoundsError as BoundsError,
        CancelledError as CancelledError,
        ConflictError as ConflictError,
        CorruptionError as CorruptionError,
        FencedError as FencedError,
        HandleClosedError as HandleClosedError,
        InvariantError as InvariantError,
        LeaseLostError as LeaseLostError,
        MaybeAppliedError as MaybeAppliedError,
        NameRefusedError as NameRefusedError,
        NewerFormatError as NewerFormatError,
        NotAppliedError as NotAppliedError,
        NotFoundError as NotFoundError,
        ReplicaDivergedError as ReplicaDivergedError,
        SchemaError as SchemaError,
        SinceError as SinceError,
        StalledError as StalledError,
        StoreError as StoreError,
        StrandlineError as StrandlineError,
        UsageError as UsageError,
    )
    from strandline.model.frontier import Frontier as Frontier

_HOMES = {
    "BoundsError": "strandline.errors",
    "CancelledError": "strandline.errors",
    "ConflictError": "strandline.errors",
    "CorruptionError": "strandline.errors",
    "FencedError": "strandline.errors",
    "Frontier": "strandline.model.frontier",
    "HandleClosedError": "strandline.errors",
    "InvariantError": "strandline.errors",
    "LeaseLostError": "strandline.errors",
    "MaybeAppliedError": "strandline.errors",
    "NameRefusedError": "strandline.errors",
    "NewerFormatError": "strandline.errors",
    "NotAppliedError": "strandline.errors",
    "NotFoundError": "strandline.errors",
    "ReplicaDivergedError": "strandline.errors",
    "SchemaError": "strandline.errors",
    "SinceError": "strandline.errors",
    "StalledError": "strandline.errors",
    "StoreError": "strandline.errors",
    "StrandlineError": "strandline.errors",
    "UsageError": "strandline.errors",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy(__name__, _HOMES)
