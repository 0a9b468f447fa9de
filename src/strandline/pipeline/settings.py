"""The numbers of a pipeline, in one place, each with its unit. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """When transactions close, how often there is a checkpoint, how long history is kept."""

    rows_max: int = 100_000
    """A transaction takes at most so many rows of each source, and closes when it has them."""
    bytes_max: int = 64 * 1024 * 1024
    delay_ms: int = 1_000
    """A transaction closes so long after its first row was seen, however few came."""
    poll_ms: int = 100
    """How long a replica with nothing to do rests before it looks again."""
    checkpoint_every: int = 1_000
    """Transactions between two checkpoints."""
    handle_ttl_ms: int = 3_600_000
    """An explicit transaction that nobody touches for so long is aborted, on the record."""
    retain: int | None = None
    """How many transactions back every collection can be read; none means all."""
    stall_ms: int = 60_000
    """A replica whose frontier has not moved for so long although there is work says so."""

    claim_lease_ms: int = 4_000
    """A publisher that was not seen to renew its claim for so long is replaced by another."""
    sink_lag_max: int = 100_000
    """With a sink so many transactions behind, no new one is begun until it has caught up."""

    def fingerprint(self) -> str:
        """What a checkpoint says of the numbers it was taken under."""
        return blake2b(repr(sorted(asdict(self).items())).encode(), digest_size=8).hexdigest()
