"""A journal as one process sees it: read on, propose the next entry, cut what is old.

    newest standing seen ─► the caller decides (next, pipeline) ─► records
        ▲                                                            │ advance: legal?
        │                                                            ▼
        └── Lost: somebody was faster ◄── mismatch ── compare-and-set ─► the new standing
                                                          │ no answer
                                                          ▼
                                  the entry in that place has our token: it is ours

Replicas race for each entry and nobody leads. An entry without an answer is looked up by its
token, and tried again with the same token while its place is empty, so it counts once.

Loading reads every record that is left and checks the whole chain; then it starts from the
newest checkpoint that is intact. A record that does not fit is never skipped: S84.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import (
    ConflictError,
    CorruptionError,
    InvariantError,
    JournalError,
    MaybeAppliedError,
    NewerFormatError,
    NotAppliedError,
    StoreError,
    UsageError,
    invariant,
)
from strandline.journal.chain import (
    ORIGIN,
    Entry,
    check_links,
    encode_entry,
    link,
    pack_links,
    records_of,
)
from strandline.journal.entries import Entries
from strandline.journal.record import (
    FORM,
    Begin,
    Checkpoint,
    Record,
    StagedRef,
    lsn_text,
    refs_of,
)
from strandline.journal.staging import (
    INLINE_MAX,
    is_stale,
    load_snapshot,
    stage_entry,
    staged_ms,
)
from strandline.journal.standing import Standing, advance_all, settle
from strandline.model.ids import SeqNo
from strandline.shard.env import PATIENCE
from strandline.store.consensus import CasResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.journal.entries import Placed
    from strandline.shard.env import Env

_LOADS = 20
"""How often a journal that is cut while it is read is read again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another entry came first; this is where the pipeline stands now."""

    standing: Standing


class Journal:
    """The journal of one pipeline. May be shared by all tasks of a process."""

    def __init__(self, env: Env, pipeline: str) -> None:
        self.env = env
        self.entries = Entries(env, pipeline)
        self.pipeline = self.entries.pipeline
        self.findings: tuple[str, ...] = ()
        """Checkpoints that were found damaged when the journal was loaded, as sentences."""
        self._seen = Standing.empty(self.pipeline)
        self._turn = env.tasks.condition()

    @property
    def standing(self) -> Standing:
        """The newest standing that this process has seen; possibly not the newest there is."""
        return self._seen

    def refresh(self) -> Standing:
        """Where the pipeline stands now. Reads what is new; everything at the first call."""
        seen = self._seen
        standing = self._catch_up(seen) if seen.entry >= 0 else None
        return self._publish(self._load() if standing is None else standing)

    def propose(self, standing: Standing, records: Sequence[Record]) -> Standing | Lost:
        """Write one entry after `standing`: all of its records, or none.

        Returns the standing that has them, or `Lost` if any other entry came first. What may
        not follow is a bug of the caller's and never written. `MaybeAppliedError`: the store
        did not say; refresh, and look. `Lost`, too, if what was staged for the records is so old
        that fsck may sweep it: then nobody was faster, and it has to be staged again.
        """
        fresh = _unreferred(records)
        after, entry = self._entry(standing, records)
        seqno = SeqNo(after.entry)
        data = self._encode(seqno, entry)
        doubt: MaybeAppliedError | None = None
        for _ in self._rounds():
            if self._may_be_swept(fresh, doubt):
                return self._too_late(doubt)
            try:
                result = self.entries.write(seqno, data)
                if result is CasResult.COMMITTED:
                    return self._publish(after)
                won = self._is_mine(seqno, entry.token, doubt)
                if won is None:
                    raise self._unreadable(seqno)
            except MaybeAppliedError as error:
                doubt = error
                won = self._look(seqno, entry.token, error)
            except NotAppliedError as error:
                raise doubt or error from error
            if won is not None:
                return self._publish(after) if won else Lost(self.refresh())
        raise doubt or self._silent()

    def records(self, start: int | None = None) -> Iterator[tuple[int, Record]]:
        """Every record from number `start` on, checked; from the oldest that is left if `None`.

        One that was cut is refused. `ConflictError`: the journal was cut while it was read.
        """
        found = self._holding(start)
        if found is None:
            return
        expected = found[0]
        for seqno, entry in self._chained(self.entries.scan(expected)):
            if seqno != expected:
                raise self._was_cut()
            expected = seqno.next()
            for each, record in zip(entry.links, records_of(self.pipeline, entry), strict=True):
                if start is None or each.lsn >= start:
                    yield each.lsn, record

    def first(self) -> int:
        """The number of the oldest record that is left; 0 if there was never one."""
        found = self.entries.first()
        return 0 if found is None else found[1].first

    def cut(self, before: int) -> None:
        """Forget whole entries below record `before`, which no kept checkpoint may need."""
        kept = self._seen.checkpoints
        invariant(
            kept and before <= kept[0].lsn,
            "the journal is cut only below the oldest checkpoint that is kept",
        )
        found = self.entries.earliest(lambda entry: entry.links[-1].lsn >= before)
        if found is not None:
            self.entries.truncate(found[0])

    # Writing.

    def _entry(self, standing: Standing, records: Sequence[Record]) -> tuple[Standing, Entry]:
        invariant(standing.pipeline == self.pipeline, "a standing of another pipeline")
        alone = len(records) == 1 or not any(isinstance(each, Checkpoint) for each in records)
        invariant(records and alone, "an entry has records, and a checkpoint one of its own")
        try:
            after = advance_all(standing, records)
        except JournalError as error:
            raise InvariantError(str(error)) from error
        links = link(records, standing.lsn, standing.digest)
        token = self.env.random.token()
        entry = Entry(FORM, token, after.next_t, after.committed_ms, after.epoch, links, None)
        return settle(after, standing.entry + 1, entry.digest), entry

    def _encode(self, seqno: SeqNo, entry: Entry) -> bytes:
        """The entry as bytes; a large one refers to its records."""
        data = encode_entry(self.pipeline, seqno, entry)
        if len(data) <= INLINE_MAX:
            return data
        spilled = stage_entry(self.env, self.pipeline, entry.first, pack_links(entry))
        slim = msgspec.structs.replace(entry, links=(), spilled=spilled)
        return encode_entry(self.pipeline, seqno, slim)

    def _may_be_swept(self, fresh: Sequence[StagedRef], doubt: MaybeAppliedError | None) -> bool:
        """Asked before each attempt: this process may have stood still since the one before."""
        try:
            now_ms = self.env.patient(self.env.consensus.now_ms) if fresh else 0
        except StoreError as error:
            # That the clock can't be read does not undo an attempt whose fate is unknown.
            raise doubt or error from error
        return any(is_stale(ref, now_ms) for ref in fresh)

    def _too_late(self, doubt: MaybeAppliedError | None) -> Lost:
        if doubt is not None:
            raise doubt
        return Lost(self.refresh())

    def _is_mine(self, seqno: SeqNo, token: str, doubt: MaybeAppliedError | None) -> bool | None:
        """Whose entry is in this place; `None` while it is empty."""
        found = self.entries.at(seqno)
        if found is None:
            return None
        if found[0] != seqno and doubt is not None:
            raise doubt
        return found[0] == seqno and found[1].token == token

    def _look(self, seqno: SeqNo, token: str, doubt: MaybeAppliedError) -> bool | None:
        try:
            return self._is_mine(seqno, token, doubt)
        except StoreError as error:
            raise doubt from error

    def _unreadable(self, seqno: SeqNo) -> JournalError:
        return JournalError(
            f"entry {seqno} of the journal of pipeline {self.pipeline} can neither be written nor "
            "read: the journal is older than what was seen of it"
        )

    def _rounds(self) -> Iterator[None]:
        """The rounds of a loop: paused from the second on, and ended at the deadline."""
        deadline = self.env.clock.monotonic_ms() + self.env.settings.commit_deadline_ms
        yield
        for pause_ms in PATIENCE.delays(self.env.random):
            if self.env.clock.monotonic_ms() >= deadline:
                return
            self.env.tasks.sleep(pause_ms)
            yield

    def _silent(self) -> MaybeAppliedError:
        return MaybeAppliedError(f"pipeline {self.pipeline}: the store did not answer in time")

    # Reading.

    def _holding(self, start: int | None) -> Placed | None:
        """The entry that has record `start`, or the oldest one; `None` if it is still to come."""
        oldest = self.entries.first()
        if oldest is None or start is None or start == oldest[1].first:
            return oldest
        if start < oldest[1].first:
            raise UsageError(
                f"record {lsn_text(start)} of pipeline {self.pipeline} was cut: its journal "
                f"begins with {lsn_text(oldest[1].first)}"
            )
        return self.entries.earliest(lambda entry: entry.links[-1].lsn >= start)

    def _publish(self, standing: Standing) -> Standing:
        """Never go back: of two that raced, the newer one stays."""
        with self._turn:
            if standing.entry > self._seen.entry:
                self._seen = standing
            return self._seen

    def _catch_up(self, standing: Standing) -> Standing | None:
        """What is new, added; `None` if it was cut before it was read."""
        start = SeqNo(standing.entry + 1)
        try:
            for seqno, entry in self.entries.scan(start, standing.lsn):
                if seqno.number != standing.entry + 1:
                    return None
                check_links(self.pipeline, entry, standing.lsn, standing.digest)
                standing = self._apply(standing, seqno, entry)
        except ConflictError:
            return None
        return standing

    def _load(self) -> Standing:
        for _ in range(_LOADS - 1):
            try:
                return self._whole()
            except ConflictError:
                continue
        return self._whole()

    def _whole(self) -> Standing:
        placed = list(self._chained(self.entries.scan()))
        if not placed:
            return Standing.empty(self.pipeline)
        begun, standing = self._base(placed)
        for seqno, entry in placed[begun:]:
            standing = self._apply(standing, seqno, entry)
        oldest = standing.checkpoints[0].entry if standing.checkpoints else 0
        if placed[0][0].number > oldest:
            raise JournalError(
                f"pipeline {self.pipeline}: records before {lsn_text(placed[0][1].first)} are "
                "missing, and a checkpoint that is kept is among them"
            )
        return standing

    def _chained(self, placed: Iterator[Placed]) -> Iterator[Placed]:
        """Entries, each checked to follow the one before."""
        lsn, prev = -1, ORIGIN
        for number, (seqno, entry) in enumerate(placed):
            if number == 0 and seqno.number > 0:
                # What was before is cut; the chain hangs on what its first record says of it.
                lsn, prev = entry.first - 1, entry.links[0].prev
            check_links(self.pipeline, entry, lsn, prev)
            yield seqno, entry
            lsn, prev = entry.links[-1].lsn, entry.digest

    def _base(self, placed: Sequence[Placed]) -> tuple[int, Standing]:
        """The newest intact checkpoint: the place of its entry, and the standing before it."""
        findings: list[str] = []
        found: tuple[int, Standing] | None = None
        for number in range(len(placed) - 1, -1, -1):
            _, entry = placed[number]
            records = records_of(self.pipeline, entry)
            if found is None and isinstance(records[0], Checkpoint):
                try:
                    found = number, self._snapshot(placed[number], records[0])
                except NewerFormatError:
                    raise
                except CorruptionError as error:
                    findings.append(str(error))
        first = self.entries.first() if findings else None
        if first is not None and first[0] != placed[0][0]:
            # Not damaged, but no longer kept: the journal was cut, and they went with it.
            raise self._was_cut()
        self.findings = tuple(findings)
        if found is None and placed[0][0].number == 0:
            found = 0, Standing.empty(self.pipeline)
        if found is None:
            reasons = "; ".join(findings) or "there is none"
            raise JournalError(
                f"pipeline {self.pipeline}: records before {lsn_text(placed[0][1].first)} are "
                f"gone, and no checkpoint after them is intact: {reasons}"
            )
        return found

    def _was_cut(self) -> ConflictError:
        return ConflictError(f"the journal of pipeline {self.pipeline} was cut while it was read")

    def _snapshot(self, placed: Placed, record: Checkpoint) -> Standing:
        seqno, entry = placed
        standing = load_snapshot(self.env, self.pipeline, entry.first, record.snapshot)
        if (standing.entry, standing.digest) != (seqno.number - 1, entry.links[0].prev):
            raise CorruptionError(
                f"checkpoint {lsn_text(entry.first)} of pipeline {self.pipeline} is damaged: it "
                "belongs to another journal"
            )
        return standing

    def _apply(self, standing: Standing, seqno: SeqNo, entry: Entry) -> Standing:
        after = advance_all(standing, records_of(self.pipeline, entry))
        told = entry.committed, entry.instant_ms, entry.epoch
        if told != (after.next_t, after.committed_ms, after.epoch):
            raise JournalError(
                f"pipeline {self.pipeline}: the head of the entry that ends with record "
                f"{lsn_text(after.lsn)} says {told}, its records add up to something else"
            )
        return settle(after, seqno.number, entry.digest)


def _unreferred(records: Sequence[Record]) -> list[StagedRef]:
    """Payloads that nothing refers to before these records do; an explicit transaction's chunks
    are kept by its handle."""
    if any(isinstance(each, Begin) and each.handle is not None for each in records):
        return []
    found = [ref for each in records for ref in refs_of(each)]
    return [ref for ref in found if staged_ms(ref.key) is not None]
