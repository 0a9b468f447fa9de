"""The Consensus port: one agreed sequence of versions per key."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.ids import SeqNo


@dataclass(frozen=True, slots=True)
class Versioned:
    """One version of a key: its position and its bytes."""

    seqno: SeqNo
    data: bytes


class CasResult(Enum):
    """What came of a compare-and-set."""

    COMMITTED = "the new version is durable, and is now the head"
    MISMATCH = "another version was the head; nothing changed"


class Consensus(Protocol):
    """Per key, a contiguous sequence of versions; its end is the head.

    Linearizable: a read that starts after a compare-and-set returned sees it, from any
    process. Every method may raise `NotAppliedError` (it did not happen) or
    `MaybeAppliedError` (only a read can tell), `NameRefusedError` for a bad key,
    `CorruptionError` if what it keeps is damaged or newer than it, `HandleClosedError` after
    `close`, and no other error. All methods may be called from any task at once.
    `strandline.testing.check_consensus` checks what a caller can observe.
    """

    def head(self, key: str) -> Versioned | None:
        """Return the latest version, or `None` before the first."""
        ...

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        """Append `new` if its seqno is one after the head's (0 when there is none).

        A key whose early versions were truncated still has a head, so a second
        initialisation at 0 never succeeds.
        """
        ...

    def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        """Up to `limit` versions from `start` on that have not been truncated, in order."""
        ...

    def truncate(self, key: str, before: SeqNo) -> None:
        """Forget versions below `before`. The head always stays. Repeating it is harmless."""
        ...

    def keys(self, prefix: str) -> Sequence[str]:
        """All keys with a head that start with `prefix`, sorted."""
        ...

    def now_ms(self) -> int:
        """The store's clock, in milliseconds since 1970. It may jump, like any clock."""
        ...

    def close(self) -> None:
        """Give back what the client holds; the versions stay."""
        ...
