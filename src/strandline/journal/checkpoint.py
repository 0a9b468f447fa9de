"""Checkpoints: where a pipeline can go on from, and below which its journal may be cut.

The order in which things happen; every crash point is safe (S85):

    1  snapshot  the standing, whole, as an object    crash: nobody refers to it; swept later
    2  publish   CHECKPOINT refers to it              crash: it counts; the cut comes later
    3  check     both checkpoints that are kept are   crash: nothing changed
                 read back and intact, or no cut
    4  release   staged input below the oldest kept   crash: released again by the next cut
    5  cut       the journal, below the oldest kept   crash: the next cut goes on
    6  sweep     snapshots, large entries, below it   crash: swept by the next cut

Staged input goes before the records that refer to it: after a crash in between, the records are
still there to tell the next cut what to release. Sources may forget what is before the newest
checkpoint (`Standing.acknowledged`), and nothing after it (S86).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import (
    ConflictError,
    CorruptionError,
    NewerFormatError,
    SinceError,
    invariant,
)
from strandline.journal.record import Begin, Checkpoint, Program, Promote, Record, refs_of
from strandline.journal.staging import load_snapshot, numbered, put_snapshot
from strandline.journal.standing import KEPT, Standing, advance

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from strandline.journal.log import Journal, Lost
    from strandline.model.frontier import Time


@dataclass(frozen=True, slots=True)
class Facts:
    """What a checkpoint says beyond the journal's own standing."""

    config: str = ""
    uppers: Mapping[str, Time] | None = None
    state_digest: bytes = b""


_NO_FACTS = Facts()


@dataclass(frozen=True, slots=True)
class Cut:
    """What came of a cut."""

    first: int
    """The oldest record that is left."""
    released: int
    """How many objects were let go."""
    findings: tuple[str, ...] = ()
    """Why nothing was cut, where a checkpoint that is kept is damaged."""


def may_checkpoint(standing: Standing) -> bool:
    """Only between transactions, and only of a pipeline that was founded (S64)."""
    return standing.epoch > 0 and standing.begun is None and standing.sealed is None


class Checkpoints:
    """Writes, checks and drops the checkpoints of a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._env = journal.env

    def publish(
        self, standing: Standing, facts: Facts = _NO_FACTS, *, forget: Collection[str] = ()
    ) -> Standing | Lost:
        """A checkpoint of this standing; `Lost` if the pipeline went on meanwhile.

        `forget` names closed handles that say so themselves, durably: the journal need not
        remember them any longer.
        """
        invariant(may_checkpoint(standing), "a checkpoint is taken only between transactions")
        record = Checkpoint(
            t=standing.committed.last(),
            epoch=standing.epoch,
            program=standing.program,
            config=facts.config,
            uppers=dict(facts.uppers or {}),
            state_digest=facts.state_digest,
            snapshot=put_snapshot(self._env, standing),
            forgotten=tuple(sorted(forget)),
        )
        return self._journal.propose(standing, [record])

    def cut(self, keep: int | None = None) -> Cut:
        """Cut the journal below the oldest checkpoint that is kept, or below record `keep`.

        Nothing is cut before two checkpoints are there and intact: the one that is to be lost
        may be the last good one.
        """
        standing = self._journal.refresh()
        before = self._journal.first()
        if len(standing.checkpoints) < KEPT:
            return Cut(before, 0)
        findings = self.findings(standing)
        if findings:
            # Those that are kept no longer went with somebody else's cut, and are no finding.
            moved = self._journal.refresh().checkpoints != standing.checkpoints
            return Cut(before, 0, () if moved else findings)
        target = standing.checkpoints[0].lsn
        target = target if keep is None else min(target, keep)
        released = 0
        if target > before:
            released = self._release(standing, target)
            self._journal.cut(target)
        first = self._journal.first()
        return Cut(first, released + self._sweep(first))

    def findings(self, standing: Standing) -> tuple[str, ...]:
        """What is wrong with the checkpoints that are kept, as sentences."""
        found = []
        for kept in standing.checkpoints:
            try:
                load_snapshot(self._env, standing.pipeline, kept.lsn, kept.snapshot)
            except NewerFormatError:
                raise
            except CorruptionError as error:
                found.append(str(error))
        return tuple(found)

    def stands(self, standing: Standing) -> bool:
        """Whether the last one says all there is: nothing is on record since, and all that are
        kept can be read. Another one would only take the place of one of an earlier time."""
        kept = standing.checkpoints
        return bool(kept) and kept[-1].lsn == standing.lsn and not self.findings(standing)

    def verifiable_from(self) -> Time:
        """The oldest time whose transaction can be computed again from what is left."""
        first = self._journal.entries.first()
        if first is None or first[1].first == 0:
            return 0
        for lsn, record in self._journal.records():
            if isinstance(record, Checkpoint) and self._intact(lsn, record) is not None:
                return 0 if record.t is None else record.t + 1
        return self._journal.refresh().next_t

    def before(self, t: Time) -> Standing:
        """The standing just before transaction `t` began, for computing it again.

        `SinceError` if the journal does not go back so far, `ConflictError` if it is cut while
        it is read.
        """
        standing: Standing | None = None
        for lsn, record in self._journal.records():
            if lsn == 0:
                standing = Standing.empty(self._journal.pipeline)
            if isinstance(record, Begin) and record.t == t and standing is not None:
                return standing
            if standing is None and isinstance(record, Checkpoint):
                standing = self._intact(lsn, record)
            if standing is not None:
                standing = advance(standing, record)
        oldest = self.verifiable_from()
        raise SinceError(
            f"pipeline {self._journal.pipeline}: transaction {t} can't be computed again: "
            f"its journal goes back to {oldest}",
            oldest=oldest,
        )

    def _intact(self, lsn: int, record: Checkpoint) -> Standing | None:
        try:
            return load_snapshot(self._env, self._journal.pipeline, lsn, record.snapshot)
        except NewerFormatError:
            raise
        except CorruptionError:
            return None

    def _release(self, standing: Standing, target: int) -> int:
        """Let go of what only records below `target` refer to."""
        programs = set(standing.programs)
        held: dict[str, Program] = {}
        count = 0
        try:
            for lsn, record in self._journal.records():
                if lsn >= target:
                    break
                if isinstance(record, Checkpoint):
                    known = self._intact(lsn, record) if not held else None
                    held.update({} if known is None else known.programs)
                elif isinstance(record, Program):
                    held[record.hash] = record
                elif isinstance(record, Promote):
                    over = [held[name] for name in held if name not in {record.program, *programs}]
                    count += sum(self._let_go(each) for each in over)
                    held = {name: held[name] for name in held if name == record.program}
                else:
                    count += self._let_go(record)
        except ConflictError:
            # Somebody else cuts, and released what is gone by now before that.
            return count
        return count

    def _let_go(self, record: Record) -> int:
        return sum(self._delete(ref.key) for ref in refs_of(record))

    def _sweep(self, first: int) -> int:
        found = numbered(self._env, self._journal.pipeline)
        return sum(self._delete(key) for key, lsn in sorted(found.items()) if lsn < first)

    def _delete(self, key: str) -> int:
        return int(self._env.patient(lambda: self._env.blob.delete(key)))
