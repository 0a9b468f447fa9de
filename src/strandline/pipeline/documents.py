"""What is told of a pipeline, as documents with stable names, for terminals and over HTTP. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from strandline.journal.handles import Handle
    from strandline.pipeline.read_back import VerifiedSink
    from strandline.pipeline.report import EndpointStatus, PipelineStatus, TransactionSummary
    from strandline.pipeline.said import Audit, Seen
    from strandline.pipeline.sink_status import SinkReport

Document: TypeAlias = dict[str, object]


def unreadable_document(name: str, cause: str) -> Document:
    """A pipeline of which nothing can be read: the same names, and nothing to say."""
    lists = ("sources", "sinks", "replicas", "transactions", "findings")
    known = ("epoch", "program", "committed", "lag_seconds", "still_seconds", "sealed")
    unknown = (*known, "checkpoint", "verifiable_from", "retain")
    said: Document = {"pipeline": name, "readable": False, "state": "failed", "cause": cause}
    return said | {"paused": False} | dict.fromkeys(unknown) | {each: [] for each in lists}


def status_document(status: PipelineStatus) -> Document:
    return {
        "pipeline": status.name,
        "readable": True,
        "state": str(status.state),
        "cause": status.cause or None,
        "paused": status.paused,
        "epoch": status.epoch,
        "program": status.program,
        "committed": status.committed.time,
        "lag_seconds": status.lag_seconds,
        "still_seconds": status.still_seconds,
        "sealed": status.sealed,
        "checkpoint": status.checkpoint,
        "verifiable_from": status.verifiable_from,
        "retain": status.retain,
        "sources": [_source(each) for each in status.endpoints],
        "sinks": [_sink(each) for each in status.sinks],
        "replicas": [_replica(each) for each in status.replicas],
        "transactions": [open_document(each) for each in status.transactions],
        "findings": list(status.findings),
    }


def open_document(handle: Handle) -> Document:
    """An explicit transaction."""
    state = "open"
    if handle.closed is not None:
        state = "aborted" if handle.closed.t is None else "committed"
    elif handle.frozen is not None:
        state = "committing" if handle.frozen.commit else "aborting"
    return {
        "transaction": handle.id,
        "state": state,
        "time": None if handle.closed is None else handle.closed.t,
        "opened": instant(handle.opened_ms),
        "touched": instant(handle.touched_ms),
        "chunks": len(handle.chunks),
        "rows": sum(each.ref.rows for each in handle.chunks),
        "reason": "" if handle.closed is None else handle.closed.reason,
    }


def summary_document(summary: TransactionSummary) -> Document:
    """One committed transaction."""
    return {
        "time": summary.t,
        "instant": instant(summary.instant_ms),
        "took_ms": summary.instant_ms - summary.began_ms,
        "epoch": summary.epoch,
        "rows": summary.rows,
        "inputs": summary.inputs,
        "changes": summary.changes,
        "transaction": summary.handle,
        "amended": summary.amended,
        "sinks": summary.sinks,
    }


def verified_document(found: VerifiedSink) -> Document:
    """What came of comparing a sink's target with its collection."""
    return {
        "sink": found.sink,
        "source": found.source,
        "time": found.at,
        "equal": found.equal,
        "reason": found.reason or None,
        "target": {"rows": found.target.count, "digest": str(found.target)},
        "view": {"rows": found.view.count, "digest": str(found.view)},
        "differences": [{"more": each.more, "row": dict(each.row)} for each in found.samples],
    }


def instant(ms: int) -> str:
    """An instant of the store's clock, in UTC.

    >>> instant(0)
    '1970-01-01T00:00:00.000Z'
    """
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _source(each: EndpointStatus) -> Document:
    return {
        "source": each.name,
        "state": each.state,
        "position": dict(each.position),
        "behind": each.behind,
    }


def _sink(each: SinkReport) -> Document:
    return {
        "sink": each.name,
        "source": each.source,
        "connector": each.connector,
        "state": str(each.state),
        "cause": each.cause or None,
        "paused": each.paused,
        "publisher": each.publisher,
        "delivered": each.delivered,
        "reached": each.reached,
        "behind": each.behind,
        "lag_seconds": each.lag_seconds,
        "retries": each.retries,
        "still_seconds": each.still_seconds,
    }


def _replica(each: Seen) -> Document:
    said = each.said
    return {
        "replica": each.name,
        "state": str(each.state),
        "cause": said.cause or None,
        "read_only": said.read_only,
        "committed": said.committed,
        "transactions": said.transactions,
        "host": said.host,
        "pid": said.pid,
        "started": instant(said.started_ms),
        "seen_seconds_ago": each.silent_ms / 1000,
        "audit": None if said.audit is None else audit_document(said.audit),
    }


def audit_document(audit: Audit) -> Document:
    """What a read-only replica verified, and what not."""
    return {
        "verified": audit.verified,
        "differed": audit.differed,
        "skipped": audit.skipped,
        "inputs": audit.inputs,
        "told": list(audit.told),
    }
