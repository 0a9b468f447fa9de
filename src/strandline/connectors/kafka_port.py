"""The Cluster port: what the Kafka sink asks of a cluster, and no more.

Rules that every implementation keeps, `strandline.testing.broker` among them:

1. `Outbox.init` ends whatever an earlier outbox of the same id has open, and shuts it out: from
   then on that one is told `SinkFencedError`, by whatever it calls, and nothing of it appears.
2. What was sent counts at the commit, in all partitions at once, or never.
3. `SinkError` from a commit may mean either: it counts, it does not, or it is decided later, but
   not after another outbox of the same id was initialised.
4. `committed` gives what counted before the call, and waits for what is not yet decided then,
   but not for ever: `SinkError` says so.
5. Timestamps of messages are those of their senders: they order nothing but one key that lies in
   two partitions, as it may once a topic has got more of them.

Errors: `SinkError` (may pass), `SinkFencedError` (another outbox), `SinkStoppedError` (somebody
has to look: no right to write, a message too large), and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A record of a topic as a reader of committed records sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    """When it was sent: of two partitions that hold one key, the later one counts."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records on their way out, column by column: one key, value and headers each."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None = None
    """`None`: no record has any."""


class Outbox(Protocol):
    """A transactional producer. Used by one task at a time."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, batch: Batch) -> None:
        """Hand records over, in order; their partition follows from the key, as Kafka's own
        clients choose it. Waits while too much is on its way, so memory is bounded."""
        ...

    def commit(self) -> None:
        """Wait until all that was sent is there, and make it count."""
        ...

    def abort(self) -> None:
        """Let what was sent never count."""
        ...

    def close(self) -> None:
        """Let go without ending anything. Repeating it is harmless."""
        ...


class Cluster(Protocol):
    """One cluster, as a sink reaches it."""

    def partitions(self, topic: str) -> int:
        """How many it has; 0 if there is no such topic."""
        ...

    def identity(self, topic: str) -> int | None:
        """A number that is another one once the topic was dropped and made anew; 0 if the cluster
        has none, `None` if there is no such topic, or whoever was asked does not know it yet."""
        ...

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Make a topic. Harmless if it is there."""
        ...

    def policy(self, topic: str) -> str:
        """Its `cleanup.policy`; empty if this client has no right to know."""
        ...

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """By partition, the first offset that is kept, and the one after the last of all."""
        ...

    def committed(self, topic: str, start: Mapping[int, int] | None = None) -> Iterator[Message]:
        """Committed records up to the end as of the call, each partition in order of offsets.

        Of partitions that `start` names, from there on; of the others, and without `start`, from
        the first that is kept.
        """
        ...

    def outbox(self, transactional_id: str) -> Outbox: ...

    def close(self) -> None: ...
