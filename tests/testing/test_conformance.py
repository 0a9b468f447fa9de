"""The conformance checks must fail for stores that break the contract."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest

from strandline.model.ids import SeqNo
from strandline.store.blob import BlobEntry
from strandline.store.consensus import CasResult, Versioned
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.conformance import check_blob, check_consensus


class Anonymous(MemoryBlob):
    """A base for wrong stores: every handle is of the same wrong kind."""

    def client(self) -> MemoryBlob:
        return type(self)(self._objects)


class TrustsKeys(Anonymous):
    def put(self, key: str, value: bytes) -> None:
        self._objects[key] = value


class KeepsDeleted(Anonymous):
    def delete(self, key: str) -> bool:
        return super().get(key) is not None


class AlwaysSaysDeleted(Anonymous):
    def delete(self, key: str) -> bool:
        super().delete(key)
        return True


class WholeFoldersOnly(Anonymous):
    def list(self, prefix: str) -> Iterator[BlobEntry]:
        folder = prefix.rstrip("/") + "/"
        return (e for e in super().list(prefix) if e.key.startswith(folder) or e.key == prefix)


class ListsTwice(Anonymous):
    def list(self, prefix: str) -> Iterator[BlobEntry]:
        return iter([*super().list(prefix), *super().list(prefix)])


class IgnoresTheSign(Anonymous):
    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return super().get_range(key, abs(start), length)


class EmptyIsAbsent(Anonymous):
    def get(self, key: str) -> bytes | None:
        return super().get(key) or None


class SharesNothing(Anonymous):
    def client(self) -> MemoryBlob:
        return SharesNothing()


class ForgetsAtClose(Anonymous):
    def close(self) -> None:
        self._objects.clear()


@pytest.mark.parametrize(
    "wrong",
    [
        TrustsKeys, KeepsDeleted, AlwaysSaysDeleted, WholeFoldersOnly, ListsTwice,
        IgnoresTheSign, EmptyIsAbsent, SharesNothing, ForgetsAtClose,
    ],
)  # fmt: skip
def test_a_wrong_blob_is_caught(wrong: Callable[[], MemoryBlob]):
    with pytest.raises(AssertionError):
        check_blob(wrong().client)


class Wrong(MemoryConsensus):
    """A base for wrong stores: every handle is of the same wrong kind."""

    def client(self) -> MemoryConsensus:
        return type(self)(self._now_ms, self._logs)


class SetsBlindly(Wrong):
    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        super().compare_and_set(key, new)
        return CasResult.COMMITTED


class AcceptsTheSameAgain(Wrong):
    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        if self.head(key) == new:
            return CasResult.COMMITTED
        return super().compare_and_set(key, new)


class ForgetsTheHead(Wrong):
    def truncate(self, key: str, before: SeqNo) -> None:
        super().truncate(key, before)
        head = self.head(key)
        if head is not None and head.seqno < before:
            del self._logs[key]


class NeverTruncates(Wrong):
    def truncate(self, key: str, before: SeqNo) -> None:
        super().truncate(key, SeqNo(0))


class IgnoresTheLimit(Wrong):
    def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        return super().scan(key, start, 1000 if limit > 0 else 0)


class IgnoresTheStart(Wrong):
    def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
        return super().scan(key, SeqNo(0), limit)


class ShowsLosers(Wrong):
    def keys(self, prefix: str) -> Sequence[str]:
        super().keys(prefix)
        return sorted(key for key in self._logs if key.startswith(prefix))


class UnsortedKeys(Wrong):
    def keys(self, prefix: str) -> Sequence[str]:
        return [*reversed(super().keys(prefix))]


class CountsSeconds(Wrong):
    def now_ms(self) -> int:
        return super().now_ms() * 1_000_000


class LooksThenSets(Wrong):
    """Looks at the head, lets another thread do the same, then sets: threads alone show it."""

    meeting = threading.Barrier(2)

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        before = self.head(key)
        if new.seqno != (SeqNo(0) if before is None else before.seqno.next()):
            return CasResult.MISMATCH
        if key.startswith("race/"):
            with suppress(threading.BrokenBarrierError):
                self.meeting.wait(timeout=1)
        super().compare_and_set(key, new)
        return CasResult.COMMITTED


@pytest.mark.parametrize(
    "wrong",
    [
        SetsBlindly, AcceptsTheSameAgain, ForgetsTheHead, NeverTruncates, IgnoresTheLimit,
        IgnoresTheStart, ShowsLosers, UnsortedKeys, CountsSeconds,
    ],
)  # fmt: skip
def test_a_wrong_consensus_is_caught(wrong: type[MemoryConsensus]):
    with pytest.raises(AssertionError):
        check_consensus(wrong(lambda: 1_700_000_000_000).client)


def test_a_consensus_that_looks_and_then_sets_is_caught_by_threads():
    check_consensus(LooksThenSets(lambda: 0).client)
    with pytest.raises(AssertionError):
        check_consensus(LooksThenSets(lambda: 0).client, threads=4)
