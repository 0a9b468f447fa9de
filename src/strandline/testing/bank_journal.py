"""Mutants of the journal: its law, its chain, its table, its checkpoints and its timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.errors import MaybeAppliedError
from strandline.journal import (
    chain,
    checkpoint,
    log,
    needs,
    next as step,
    record,
    staging,
    standing as law,
    timeline,
)
from strandline.journal.entries import Entries
from strandline.journal.standing import Standing
from strandline.model.frontier import Frontier
from strandline.store.consensus import CasResult
from strandline.testing.mutants import Mutant, Planting, mutant

if TYPE_CHECKING:
    from strandline.journal.chain import Entry
    from strandline.journal.record import Amend, Answer, Commit, Record, StagedRef
    from strandline.journal.sealed import Sealed
    from strandline.model.ids import SeqNo
    from strandline.shard.env import Env

BANK: list[Mutant] = []
_load_snapshot = staging.load_snapshot
_replace = msgspec.structs.replace


@mutant("transaction numbers go on after a checkpoint (S66)", "journal", BANK)
def counter_restarts(planting: Planting) -> None:
    def load(env: Env, pipeline: str, lsn: int, ref: StagedRef) -> Standing:
        return _replace(_load_snapshot(env, pipeline, lsn, ref), committed=Frontier(0))

    planting.swap(log, "load_snapshot", load)


@mutant("a checkpoint remembers which handles were closed", "journal", BANK)
def checkpoint_forgets_handles(planting: Planting) -> None:
    def load(env: Env, pipeline: str, lsn: int, ref: StagedRef) -> Standing:
        return _replace(_load_snapshot(env, pipeline, lsn, ref), closed={})

    planting.swap(log, "load_snapshot", load)


@mutant("a checkpoint remembers the positions of the sources (S65)", "journal", BANK)
def checkpoint_forgets_positions(planting: Planting) -> None:
    def load(env: Env, pipeline: str, lsn: int, ref: StagedRef) -> Standing:
        return _replace(_load_snapshot(env, pipeline, lsn, ref), positions={})

    planting.swap(log, "load_snapshot", load)


@mutant("a checkpoint is taken only between transactions (S64)", "journal", BANK)
def checkpoint_mid_transaction(planting: Planting) -> None:
    table = dict(step.TABLE)
    for relation in (step.Relation.UNJOINED, step.Relation.SAME):
        table[step.Phase.SEALED, relation, step.Mode.CHECKPOINT] = step.TakeCheckpoint
    planting.swap(step, "TABLE", table)
    planting.swap(checkpoint, "may_checkpoint", lambda _standing: True)
    planting.swap(law, "nothing_sealed", lambda _standing, _record: None)


@mutant("a missing record is refused (S84)", "journal", BANK)
def gap_is_accepted(planting: Planting) -> None:
    def check(pipeline: str, entry: Entry, _lsn: int, _prev: bytes) -> None:
        chain.check_links(pipeline, entry, entry.first - 1, entry.links[0].prev)

    planting.swap(log, "check_links", check)


@mutant("a changed record is refused (S84)", "journal", BANK)
def hash_is_not_checked(planting: Planting) -> None:
    def check(pipeline: str, entry: Entry, lsn: int, prev: bytes) -> None:
        first = entry.links[0]
        fitting = chain.chain_hash(first.prev, first.lsn, first.body)
        # The place of the entry is looked at, what its records say is not.
        links = (_replace(first, hash=fitting),)
        chain.check_links(pipeline, _replace(entry, links=links), lsn, prev)

    planting.swap(log, "check_links", check)


@mutant("a replica of an old epoch writes nothing any more", "journal", BANK)
def epoch_is_not_compared(planting: Planting) -> None:
    def relation(_standing: Standing, me: step.Me) -> step.Relation:
        return step.Relation.UNJOINED if me.epoch is None else step.Relation.SAME

    planting.swap(step, "relation_of", relation)
    planting.swap(law, "of_this_epoch", lambda _standing, _record: None)


@mutant("only what is sealed is committed", "journal", BANK)
def commit_of_another_time(planting: Planting) -> None:
    original = needs.of_sealed

    def of_sealed(standing: Standing, record: Amend | Answer | Commit) -> Sealed:
        known = standing.sealed
        return original(standing, record if known is None else _replace(record, t=known.t))

    planting.swap(law, "of_sealed", of_sealed)


@mutant("what is answered is not amended any more", "journal", BANK)
def amended_after_its_answer(planting: Planting) -> None:
    original = law._amend  # noqa: SLF001

    def amend(standing: Standing, record: Amend) -> Standing:
        known = standing.sealed
        bare = None if known is None else _replace(known, answer=None)
        after = original(_replace(standing, sealed=bare), record)
        answer = None if known is None else known.answer
        left = after.sealed
        return after if left is None else _replace(after, sealed=_replace(left, answer=answer))

    planting.swap(law, "_RULES", {**law._RULES, record.Amend: amend})  # noqa: SLF001


@mutant("only what is answered is committed", "journal", BANK)
def committed_without_an_answer(planting: Planting) -> None:
    original = law._commit  # noqa: SLF001

    def commit(standing: Standing, found: Commit) -> Standing:
        known = standing.sealed
        if known is not None:
            said = record.Answer(found.t, found.epoch, found.inputs, found.deltas, {})
            standing = _replace(standing, sealed=_replace(known, answer=said))
        return original(standing, found)

    planting.swap(law, "_RULES", {**law._RULES, record.Commit: commit})  # noqa: SLF001


@mutant("at most one transaction is sealed (S62)", "journal", BANK)
def two_times_are_sealed(planting: Planting) -> None:
    table = dict(step.TABLE)
    table[step.Phase.SEALED, step.Relation.UNJOINED, step.Mode.SAME] = step.Plan
    planting.swap(step, "TABLE", table)
    planting.swap(law, "nothing_sealed", lambda _standing, _record: None)


@mutant("the journal is cut only below the oldest checkpoint that is kept", "journal", BANK)
def cut_above_the_oldest_kept(planting: Planting) -> None:
    def cut(self: log.Journal, _before: int) -> None:
        newest = self.standing.checkpoints[-1].lsn
        found = self.entries.earliest(lambda entry: entry.links[-1].lsn >= newest)
        if found is not None:
            self.entries.truncate(found[0])

    planting.swap(log.Journal, "cut", cut)


@mutant("what is committed is read, and never remembered", "journal", BANK)
def committed_from_a_cached_head(planting: Planting) -> None:
    known: dict[int, Frontier] = {}

    def committed(self: timeline.JournalTimeline) -> Frontier:
        place = id(self._entries.env)
        newest = None if place in known else self._entries.newest()
        return known.setdefault(
            place, Frontier(0) if newest is None else Frontier(newest.committed)
        )

    planting.swap(timeline.JournalTimeline, "committed", committed)


@mutant("an instant is that of the commit itself", "journal", BANK)
def instant_is_guessed(planting: Planting) -> None:
    def instant_of(self: timeline.JournalTimeline, _time: int) -> int | None:
        first = self._entries.first()
        return None if first is None else first[1].instant_ms + 1

    planting.swap(timeline.JournalTimeline, "instant_of", instant_of)


@mutant("an entry of unknown fate is found again by its token", "journal", BANK)
def token_is_not_looked_up(planting: Planting) -> None:
    planting.swap(log.Journal, "_is_mine", lambda *_: False)


@mutant("what may have happened is not reported as what did", "journal", BANK)
def doubt_is_taken_for_success(planting: Planting) -> None:
    original = Entries.write

    def write(self: Entries, seqno: SeqNo, data: bytes) -> CasResult:
        try:
            return original(self, seqno, data)
        except MaybeAppliedError:
            return CasResult.COMMITTED

    planting.swap(Entries, "write", write)


@mutant("instants never go back, whatever the store's clock does", "journal", BANK)
def clock_goes_back(planting: Planting) -> None:
    planting.swap(Standing, "not_before", lambda _standing, now_ms: now_ms)
    planting.swap(law, "clock_forward", lambda _standing, _record, _instant_ms: None)


@mutant("a loser adopts the winner's entry", "journal", BANK)
def loser_writes_after_the_winner(planting: Planting) -> None:
    original = log.Journal.propose

    def propose(self: log.Journal, base: Standing, records: list[Record]) -> Standing | log.Lost:
        outcome = original(self, base, records)
        if isinstance(outcome, log.Lost):
            on = _replace(base, entry=outcome.standing.entry)
            return original(self, on, records)
        return outcome

    planting.swap(log.Journal, "propose", propose)
