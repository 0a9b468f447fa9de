"""The entries of a journal in Consensus: read, searched, written and forgotten, unjudged.

What an entry says is checked here to be whole and its own; whether entries follow each other is
`log`'s to judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import ConflictError, CorruptionError, JournalError
from strandline.journal.chain import Entry, decode_entry, journal_key, with_links
from strandline.journal.staging import fetch
from strandline.model.ids import SeqNo, valid_name
from strandline.model.timeline import PIPELINE
from strandline.store.consensus import CasResult, Versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.shard.env import Env

Placed = tuple[SeqNo, Entry]
_FIRST = SeqNo(0)


def valid_pipeline(name: object) -> str:
    """Return `name` if it may name a pipeline: its timeline and its shards need room for more."""
    valid_name(name, "pipeline")
    return valid_name(f"{PIPELINE}{name}", "timeline").removeprefix(PIPELINE)


class Entries:
    """The entries of one pipeline."""

    def __init__(self, env: Env, pipeline: str) -> None:
        self.env = env
        self.pipeline = valid_pipeline(pipeline)
        self._key = journal_key(self.pipeline)

    def head(self) -> Placed | None:
        """The newest entry; `None` before the first."""
        found = self._head()
        return None if found is None else self._decode(found)

    def newest(self) -> Entry | None:
        """The newest entry in one read, perhaps without its records; `None` before the first."""
        found = self._head()
        return None if found is None else decode_entry(self.pipeline, found.seqno, found.data)

    def at(self, seqno: SeqNo) -> Placed | None:
        """The first entry from `seqno` on that was not cut, if there is one."""
        found = self._page(seqno, 1)
        return self._decode(found[0]) if found else None

    def first(self) -> Placed | None:
        """The oldest entry that was not cut."""
        return self.at(_FIRST)

    def scan(self, start: SeqNo = _FIRST, after: int | None = None) -> Iterator[Placed]:
        """All entries from `start` on. One that is missing in between is refused (S84).

        `after` is the record before `start`, for messages. `ConflictError`: what was to come
        next was cut meanwhile; begin again.
        """
        limit = self.env.settings.scan_page
        expected: SeqNo | None = None
        while True:
            page = self._page(start, limit)
            for version in page:
                self._check_next(expected, version.seqno, after)
                entry = self._decode(version, after)[1]
                yield version.seqno, entry
                expected, after = version.seqno.next(), entry.links[-1].lsn
            if len(page) < limit:
                return
            start = page[-1].seqno.next()

    def earliest(self, holds: Callable[[Entry], bool]) -> Placed | None:
        """The first entry for which something holds that then holds for all later ones."""
        best = self.head()
        if best is None or not holds(best[1]):
            return None
        low, high = 0, best[0].number
        while low < high:
            middle = (low + high) // 2
            # The head is not below, so there is one; it may lie above what was cut.
            seqno, entry = self.at(SeqNo(middle)) or best
            if holds(entry):
                best, high = (seqno, entry), middle
            else:
                low = seqno.number + 1
        return best

    def write(self, seqno: SeqNo, data: bytes) -> CasResult:
        """Compare-and-set, tried again while it is known not to have happened."""
        version = Versioned(seqno, data)
        return self.env.insistent(lambda: self.env.consensus.compare_and_set(self._key, version))

    def truncate(self, before: SeqNo) -> None:
        self.env.patient(lambda: self.env.consensus.truncate(self._key, before))

    def _page(self, start: SeqNo, limit: int) -> Sequence[Versioned]:
        return self.env.patient(lambda: self.env.consensus.scan(self._key, start, limit))

    def _head(self) -> Versioned | None:
        return self.env.patient(lambda: self.env.consensus.head(self._key))

    def _decode(self, version: Versioned, after: int | None = None) -> Placed:
        seqno = version.seqno
        entry = decode_entry(self.pipeline, seqno, version.data, after)
        if entry.spilled is None:
            return seqno, entry
        try:
            packed = fetch(self.env, self.pipeline, entry.spilled)
        except CorruptionError:
            self._check_there(seqno)
            raise
        return seqno, with_links(self.pipeline, seqno, entry, packed)

    def _check_there(self, seqno: SeqNo) -> None:
        """The records of an entry that was cut meanwhile went with it, and are not damaged."""
        left = self._page(_FIRST, 1)
        if left and left[0].seqno > seqno:
            raise ConflictError(
                f"the journal of pipeline {self.pipeline} was cut to {left[0].seqno} while it was "
                "read"
            )

    def _check_next(self, expected: SeqNo | None, found: SeqNo, after: int | None) -> None:
        if expected is None or found == expected:
            return
        first = self.first()
        if first is not None and first[0] >= found:
            raise ConflictError(
                f"the journal of pipeline {self.pipeline} was cut to {first[0]} while it was read"
            )
        raise JournalError(
            f"record #{(after or 0) + 1} of pipeline {self.pipeline} is missing: entry {expected} "
            f"is not there, {found} is; restore the journal from a copy"
        )
