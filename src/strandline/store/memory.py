"""Both ports in memory: for tests, and for the simulator.

Nothing here locks. Every decision is one operation on a dict whose keys hash and compare in C,
which the interpreter never interrupts, so tasks may be threads or greenlets alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.model.ids import SeqNo, valid_key, valid_prefix
from strandline.store.blob import BlobEntry
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class MemoryBlob:
    """A Blob in a dict. `client()` gives another handle on the same objects."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self._objects: dict[str, bytes] = {} if objects is None else objects

    def client(self) -> MemoryBlob:
        return MemoryBlob(self._objects)

    def get(self, key: str) -> bytes | None:
        return self._objects.get(valid_key(key))

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        value = self._objects.get(valid_key(key))
        if value is None:
            return None
        first = start if start >= 0 else max(0, len(value) + start)
        return value[first : first + max(0, length)]

    def put(self, key: str, value: bytes) -> None:
        self._objects[valid_key(key)] = bytes(value)

    def delete(self, key: str) -> bool:
        return self._objects.pop(valid_key(key), None) is not None

    def list(self, prefix: str) -> Iterator[BlobEntry]:
        valid_prefix(prefix)
        entries = self._objects.copy().items()
        return iter([BlobEntry(key, len(v)) for key, v in entries if key.startswith(prefix)])

    def close(self) -> None:
        """There is nothing to give back."""


class _Log:
    """The versions of one key, by number; a truncated one leaves `None` in its place.

    No number ever leaves the dict, so its length is the number of the next version, and
    `setdefault` alone decides a race for it.
    """

    __slots__ = ("first", "versions")

    def __init__(self) -> None:
        self.versions: dict[int, Versioned | None] = {}
        self.first = 0  # No version below it is left; it may lag behind, never lead.

    def head(self) -> Versioned | None:
        while self.versions:
            found = self.versions[len(self.versions) - 1]
            if found is not None:  # Else it was truncated just now, so there is a newer one.
                return found
        return None


class MemoryConsensus:
    """A Consensus in a dict. `client()` gives another handle on the same versions."""

    def __init__(self, now_ms: Callable[[], int], logs: dict[str, _Log] | None = None) -> None:
        self._now_ms = now_ms
        self._logs: dict[str, _Log] = {} if logs is None else logs

    def client(self) -> MemoryConsensus:
        return MemoryConsensus(self._now_ms, self._logs)

    def head(self, key: str) -> Versioned | None:
        log = self._logs.get(valid_key(key))
        return None if log is None else log.head()

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        log = self._logs.setdefault(valid_key(key), _Log())
        number = new.seqno.number
        if number != len(log.versions):
            return CasResult.MISMATCH
        # A copy, so that two calls with one and the same object can be told apart.
        mine = Versioned(new.seqno, bytes(new.data))
        won = log.versions.setdefault(number, mine) is mine
        return CasResult.COMMITTED if won else CasResult.MISMATCH

    def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        log = self._logs.get(valid_key(key))
        found: list[Versioned] = []
        if log is None or limit <= 0:
            return found
        for number in range(max(start.number, log.first), len(log.versions)):
            version = log.versions[number]
            if version is None:
                found.clear()  # Truncated while we looked: what remains is contiguous.
                continue
            found.append(version)
            if len(found) == limit:
                break
        return found

    def truncate(self, key: str, before: SeqNo) -> None:
        log = self._logs.get(valid_key(key))
        if log is None:
            return
        end = min(before.number, len(log.versions) - 1)
        for number in range(log.first, end):
            log.versions[number] = None
        log.first = max(log.first, end)

    def keys(self, prefix: str) -> Sequence[str]:
        valid_prefix(prefix)
        logs = self._logs.copy().items()
        return sorted(key for key, log in logs if log.versions and key.startswith(prefix))

    def now_ms(self) -> int:
        return self._now_ms()

    def close(self) -> None:
        """There is nothing to give back."""
