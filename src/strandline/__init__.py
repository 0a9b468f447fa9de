"""Tables with a clock: the public names, and a map of the folder.

errors    pure   every error, grouped by what the caller should do next
exports   shell  public names that are imported when they are first used
system    shell  the real clock, chance and threads
config    shell  settings, and the only reader of the environment
heart     shell  keeps a process's leases alive from a process of its own
assembly  shell  the only place where ports meet their implementations

model/    the nouns that every other package speaks, and the ports of time, chance and tasks
store/    bytes that survive us: the ports Blob and Consensus, and their backends
connectors/  where rows enter: sources, formats, envelopes
parts/    how rows lie in objects: formats, statistics, filters, kernels
views/    SQL as data: programs and queries, checked and planned before an engine sees them
shard/    a durable collection's metadata: decisions, commits, leases, timelines
reading/  from parts back to rows: listing, fetching, snapshots, changes as they come
upkeep/   what keeps a shard small and fast: merging, collecting, checking
journal/  what a pipeline did, as a chain of records, and what follows from it
handles/  what users hold: stores, shards, readers, writers, owners of timelines
ingest/   upserts without a pipeline: commands with times, by any number of replicas
pipeline/  one running program: transactions, replicas, replay
console/  what is served over HTTP: pushes, transactions, status, metrics
spark/    Spark as the data plane; the only package that imports pyspark
cli/      the store seen and tended from a terminal
testing/  what tests need and production must never import: simulator, faults, checkers

A new public name is a row in the table of its home and the same name in the import above it; a
test compares the two. `__all__` follows from the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.exports import lazy as _lazy

if TYPE_CHECKING:
    from strandline.assembly import open as open  # noqa: A004 - the public name
    from strandline.errors import (
        BoundsError as BoundsError,
        CancelledError as CancelledError,
        ConflictError as ConflictError,
        CorruptionError as CorruptionError,
        FencedError as FencedError,
        HandleClosedError as HandleClosedError,
        InvariantError as InvariantError,
        JournalError as JournalError,
        LeaseLostError as LeaseLostError,
        MaybeAppliedError as MaybeAppliedError,
        NameRefusedError as NameRefusedError,
        NewerFormatError as NewerFormatError,
        NotAppliedError as NotAppliedError,
        NotFoundError as NotFoundError,
        NotInstalledError as NotInstalledError,
        ProgramError as ProgramError,
        ReplayDivergedError as ReplayDivergedError,
        ReplicaDivergedError as ReplicaDivergedError,
        SchemaError as SchemaError,
        SinceError as SinceError,
        SinkError as SinkError,
        SinkFencedError as SinkFencedError,
        SinkStoppedError as SinkStoppedError,
        SourceError as SourceError,
        SourceGoneError as SourceGoneError,
        StalledError as StalledError,
        StoreError as StoreError,
        StrandlineError as StrandlineError,
        TooLargeError as TooLargeError,
        UndecodableError as UndecodableError,
        UsageError as UsageError,
        ViewFailedError as ViewFailedError,
    )
    from strandline.handles.ownership import TimelineOwner as TimelineOwner
    from strandline.handles.shard import (
        Reader as Reader,
        Shard as Shard,
    )
    from strandline.handles.store import (
        Store as Store,
        Timeline as Timeline,
    )
    from strandline.handles.write import (
        Appended as Appended,
        Writer as Writer,
    )
    from strandline.model.frontier import Frontier as Frontier
    from strandline.pipeline.engine import PipelineEngine as PipelineEngine
    from strandline.pipeline.pipeline import Pipeline as Pipeline
    from strandline.pipeline.promotion import Promotion as Promotion
    from strandline.pipeline.pushes import Pushed as Pushed
    from strandline.pipeline.read_back import VerifiedSink as VerifiedSink
    from strandline.pipeline.replay import Replayed as Replayed
    from strandline.pipeline.report import (
        PipelineStatus as PipelineStatus,
        TransactionSummary as TransactionSummary,
    )
    from strandline.pipeline.settings import PipelineSettings as PipelineSettings
    from strandline.pipeline.sink_status import SinkReport as SinkReport
    from strandline.pipeline.transaction import Transaction as Transaction
    from strandline.reading.descriptor import PartDescriptor as PartDescriptor
    from strandline.reading.events import (
        Failure as Failure,
        Progress as Progress,
        Updates as Updates,
    )
    from strandline.reading.fetch import fetch_part as fetch_part
    from strandline.reading.relay import RemoteWorker as RemoteWorker
    from strandline.reading.snapshot import Snapshot as Snapshot
    from strandline.reading.subscribe import Subscription as Subscription
    from strandline.shard.cancel import Cancel as Cancel
    from strandline.shard.command import (
        Repeated as Repeated,
        UpperMismatch as UpperMismatch,
    )
    from strandline.shard.settings import Settings as Settings
    from strandline.shard.state import Retention as Retention
    from strandline.shard.term import TermHold as TermHold
    from strandline.shard.txn import Txn as Txn
    from strandline.views.declared import (
        Sink as Sink,
        Table as Table,
        ViewQuery as ViewQuery,
    )
    from strandline.views.program import Program as Program

_HOMES = {
    "Appended": "strandline.handles.write",
    "BoundsError": "strandline.errors",
    "Cancel": "strandline.shard.cancel",
    "CancelledError": "strandline.errors",
    "ConflictError": "strandline.errors",
    "CorruptionError": "strandline.errors",
    "Failure": "strandline.reading.events",
    "FencedError": "strandline.errors",
    "fetch_part": "strandline.reading.fetch",
    "Frontier": "strandline.model.frontier",
    "HandleClosedError": "strandline.errors",
    "InvariantError": "strandline.errors",
    "JournalError": "strandline.errors",
    "LeaseLostError": "strandline.errors",
    "MaybeAppliedError": "strandline.errors",
    "NameRefusedError": "strandline.errors",
    "NewerFormatError": "strandline.errors",
    "NotAppliedError": "strandline.errors",
    "NotFoundError": "strandline.errors",
    "NotInstalledError": "strandline.errors",
    "open": "strandline.assembly",
    "PartDescriptor": "strandline.reading.descriptor",
    "Pipeline": "strandline.pipeline.pipeline",
    "PipelineEngine": "strandline.pipeline.engine",
    "PipelineSettings": "strandline.pipeline.settings",
    "PipelineStatus": "strandline.pipeline.report",
    "Program": "strandline.views.program",
    "ProgramError": "strandline.errors",
    "Progress": "strandline.reading.events",
    "Promotion": "strandline.pipeline.promotion",
    "Pushed": "strandline.pipeline.pushes",
    "Reader": "strandline.handles.shard",
    "RemoteWorker": "strandline.reading.relay",
    "Repeated": "strandline.shard.command",
    "ReplayDivergedError": "strandline.errors",
    "Replayed": "strandline.pipeline.replay",
    "ReplicaDivergedError": "strandline.errors",
    "Retention": "strandline.shard.state",
    "SchemaError": "strandline.errors",
    "Settings": "strandline.shard.settings",
    "Shard": "strandline.handles.shard",
    "SinceError": "strandline.errors",
    "Snapshot": "strandline.reading.snapshot",
    "Sink": "strandline.views.declared",
    "SinkError": "strandline.errors",
    "SinkFencedError": "strandline.errors",
    "SinkReport": "strandline.pipeline.sink_status",
    "SinkStoppedError": "strandline.errors",
    "SourceError": "strandline.errors",
    "SourceGoneError": "strandline.errors",
    "StalledError": "strandline.errors",
    "Store": "strandline.handles.store",
    "StoreError": "strandline.errors",
    "StrandlineError": "strandline.errors",
    "Subscription": "strandline.reading.subscribe",
    "Table": "strandline.views.declared",
    "TermHold": "strandline.shard.term",
    "Timeline": "strandline.handles.store",
    "TimelineOwner": "strandline.handles.ownership",
    "TooLargeError": "strandline.errors",
    "Transaction": "strandline.pipeline.transaction",
    "TransactionSummary": "strandline.pipeline.report",
    "Txn": "strandline.shard.txn",
    "UndecodableError": "strandline.errors",
    "Updates": "strandline.reading.events",
    "UpperMismatch": "strandline.shard.command",
    "UsageError": "strandline.errors",
    "VerifiedSink": "strandline.pipeline.read_back",
    "ViewFailedError": "strandline.errors",
    "ViewQuery": "strandline.views.declared",
    "Writer": "strandline.handles.write",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy(__name__, _HOMES)
