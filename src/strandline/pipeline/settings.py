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
    """An explicit transaction that nobody touches for so long is aborted, on the record. What
    became of one can be asked for so long after it, unless a thousand were closed since."""
    retain: int | None = None
    """How many transactions back every collection can be read: put on record when a replica
    starts, and followed by all of them. None says nothing: what is on record stays."""
    stall_ms: int = 45_000
    """A replica whose frontier has not moved for so long although there is work is `stalled`:
    visible to everybody within a minute, with what a beat and a busy machine take."""

    claim_lease_ms: int = 4_000
    """A publisher that was not seen to renew its claim for so long is replaced by another."""
    sink_lag_max: int = 100_000
    """With a sink so many transactions behind, no new one is begun until it has caught up."""
    sink_held_max: int = 1_000
    """A sink that they did not concern lets go of history after so many transactions, or ten
    minutes: to let go of each would be a write for each, and such a transaction costs none."""

    def fingerprint(self) -> str:
        """What a checkpoint says of the numbers it was taken under."""
        return blake2b(repr(sorted(asdict(self).items())).encode(), digest_size=8).hexdigest()
