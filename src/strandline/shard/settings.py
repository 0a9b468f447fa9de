"""The numbers of a shard, in one place, each with its unit. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults that were measured or reasoned; tests and `strandline.open` may change them."""

    inline_max_bytes: int = 32 * 1024
    """An append up to this size stays in the metadata: one commit, no object."""
    inline_total_bytes: int = 8 * 1024 * 1024
    """Beyond this much inline data appends write objects, until upkeep has caught up."""
    inline_flush_bytes: int = 1024 * 1024
    inline_flush_batches: int = 128
    """Upkeep moves inline rows into a part at either of the two."""

    listed_parts: int = 256
    """Longer lists of parts are stored as chunks, and not in the metadata itself."""

    manifest_every: int = 128
    """Versions between two manifests, at most; so many records an open has to read."""
    scan_page: int = 256

    moments_loose: int = 2048
    """Moments listed in the state before upkeep moves the older half into an object."""

    lease_ms: int = 60_000
    commit_deadline_ms: int = 60_000
    """How long a commit whose fate is unknown is pursued before the caller is told so."""
    read_deadline_ms: int = 60_000
    turn_ms: int = 1_000
    """How long a commit waits for its neighbours in the same process before it goes ahead."""

    poll_first_ms: int = 5
    poll_cap_ms: int = 200

    fetch_concurrency: int = 4
    fetch_bytes_max: int = 256 * 1024 * 1024
    fetch_timeout_ms: int = 300_000
    stall_ms: int = 60_000
    """After so long without progress a reader says that it is stalled, and why."""
    diagnose_ms: int = 10_000
    audit_share: float = 0.01
    """Of the parts that statistics rule out, so many are read to prove that this was right."""
    catch_up_bytes: int = 0
    """Until a subscription has caught up, it reports a frontier every so many bytes."""

    part_target_bytes: int = 128 * 1024 * 1024
    part_target_rows: int = 4_000_000
    place_bytes: int = 512 * 1024 * 1024
    """An append by Spark of at least so many bytes is put by place before it is committed."""
    unit_max_bytes: int = 1024 * 1024 * 1024
    fanout: int = 8
    upkeep_ms: int = 1_000
    """The pause between two rounds of background upkeep."""
