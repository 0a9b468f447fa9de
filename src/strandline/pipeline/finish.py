"""Finishes what is sealed: computes it, answers it, lands it, commits it; whoever began it.

    compute ─► ANSWER(t) ─► land what the answer says ─► look what the shards hold ─► COMMIT(t)

Many may do this at once. The first answer on record is the answer, and nothing but it is ever
landed at t, so it does not matter when an append arrives: what is late finds itself there already,
and what was computed otherwise is never sent.

    the answer on record      versions      then
    ----------------------    ----------    ----------------------------------------------------
    what we computed          any           land what is not there yet, and commit
    something else            the same      `ReplayDivergedError`; nothing of ours is landed
    something else            others        adopt it: land what is the same in ours; commit if all
                                            the rest is there, else name who can finish it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import (
    ConflictError,
    CorruptionError,
    ReplayDivergedError,
    SourceGoneError,
    StrandlineError,
    UndecodableError,
    UsageError,
)
from strandline.journal.log import Lost
from strandline.journal.record import Amend, Answer, Commit, Evolve
from strandline.model.ids import printable
from strandline.pipeline import agree
from strandline.pipeline.catalog import shards
from strandline.pipeline.collected import open_collection
from strandline.pipeline.evolve import addable, evolved
from strandline.pipeline.land import Landing
from strandline.pipeline.planner import Planner
from strandline.pipeline.rig import under

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.journal.sealed import Sealed
    from strandline.journal.standing import Standing
    from strandline.pipeline.compute import Computed
    from strandline.pipeline.rig import Rig


class Finishing:
    """One replica's part in what is sealed."""

    def __init__(self, rig: Rig, planner: Planner) -> None:
        self._rig = rig
        self._journal = rig.journal
        self._planner = planner
        self._landing = Landing(rig.store, rig.timeline)
        self.doing = ""
        """What it is at, for those who look on."""
        self.noted: tuple[str, ...] = ()
        """Differences between unequal versions that were adopted, newest transaction only."""

    def close(self) -> None:
        """Give up writers; new ones are opened when they are needed."""
        self._landing.close()

    def finish(self, standing: Standing, sealed: Sealed) -> None:
        """Compute what is sealed, under its own program, and see that it is committed."""
        self.doing = f"computing transaction {sealed.t}"
        try:
            with under(self._rig, standing) as rig:
                bound = shards(standing, list(rig.collections))
                for each in rig.collections:
                    if each.name in standing.added:
                        open_collection(rig.store, each, standing.added)
                computed = self._compute(rig, standing, sealed, bound)
                if self._evolve(rig, standing, sealed, computed):
                    return
        except StrandlineError as error:
            if self._overtaken(sealed):
                # What it needs may be merged, forgotten or released by now: nobody needs it.
                return
            if isinstance(error, (SourceGoneError, CorruptionError)):
                self._without_rows(sealed, error)
                return
            raise
        answered = self._answered(standing, sealed, computed)
        if answered is not None and answered.sealed is not None:
            self._land_and_commit(answered, answered.sealed, computed, bound)

    def _compute(
        self, rig: Rig, standing: Standing, sealed: Sealed, bound: Mapping[str, str]
    ) -> Computed:
        planner = self._planner if rig is self._rig else Planner(rig)
        writers = self._landing.writers(bound)
        computed = rig.computer.compute(planner.work(standing, sealed, bound, writers))
        self._refuse_undecoded(sealed, computed)
        return computed

    def _evolve(self, rig: Rig, standing: Standing, sealed: Sealed, computed: Computed) -> bool:
        """Put new columns on record, before there is an answer; then it is computed anew."""
        if sealed.answer is not None:
            return False
        program = evolved(rig.program, standing.added)
        records = []
        for table in program.tables:
            columns = addable(computed.fresh.get(table.name, {}), table.columns)
            if columns:
                records.append(Evolve(sealed.t, table.name, columns))
        if records:
            # Whoever else was faster: what it recorded is what counts.
            self._journal.propose(standing, records)
        return bool(records)

    def _refuse_undecoded(self, sealed: Sealed, computed: Computed) -> None:
        """What is sealed stays sealed: whoever may go on with it finds all of it. What has an
        answer goes on: rows of it may have landed, by whoever was told to collect errors."""
        if sealed.answer is not None:
            return
        for table in sorted(computed.undecoded.keys() & self._rig.strict):
            bad = computed.undecoded[table]
            if not bad.strict:
                continue
            raise UndecodableError(
                f"pipeline {self._journal.pipeline}: transaction {sealed.t} is not committed, as "
                f"table {table} says onError 'fail' and {bad.rows} of its values can't be decoded, "
                f"first offset {bad.offset} of partition {printable(bad.partition)}: {bad.reason}. "
                f"Amend the transaction, or run the program with onError 'collect', which keeps "
                f"them in {table}_errors"
            )

    def _overtaken(self, sealed: Sealed) -> bool:
        return self._journal.refresh().committed.settled(sealed.t)

    def _answered(self, base: Standing, sealed: Sealed, computed: Computed) -> Standing | None:
        """The standing in which what we computed has an answer, ours or another's.

        `None` if it is committed by now, which is compared, or amended, or its tables have more
        columns, so that it is to be computed anew.
        """
        standing = base
        while (still := _still(standing, sealed)) is not None:
            if standing.added != base.added:
                return None
            if still.answer is not None:
                return standing
            outcome = self._journal.propose(standing, [self._answer(standing, sealed, computed)])
            standing = outcome.standing if isinstance(outcome, Lost) else outcome
        answer = self._on_record(base, sealed)
        if answer is not None:
            self._compare(answer, computed)
        return None

    def _answer(self, standing: Standing, sealed: Sealed, computed: Computed) -> Answer:
        return Answer(
            sealed.t,
            standing.epoch,
            agree.packed(computed.inputs),
            agree.packed(computed.digests()),
            dict(self._rig.computer.versions),
        )

    def _on_record(self, base: Standing, sealed: Sealed) -> Answer | None:
        """The ANSWER to what was sealed in `base`; `None` if it is cut, or to something else."""
        if sealed.answer is not None:
            return sealed.answer
        try:
            for _, record in self._journal.records(base.lsn + 1):
                if isinstance(record, (Amend, Evolve)) and record.t == sealed.t:
                    return None
                if isinstance(record, Answer) and record.t == sealed.t:
                    return record
        except (ConflictError, UsageError):
            # It was cut, before or while it was read.
            return None
        return None

    def _compare(self, answer: Answer, computed: Computed) -> None:
        """Unequal versions may differ: that is noted. Equal ones may not: this replica stops."""
        found = agree.differences("endpoint", agree.unpacked(answer.inputs), computed.inputs)
        deltas = agree.unpacked(answer.deltas)
        found += agree.differences("collection", deltas, computed.digests())
        self.noted = tuple(found)
        if found and agree.same_versions(self._rig.computer.versions, answer.versions):
            raise ReplayDivergedError(agree.divergence(self._journal.pipeline, answer.t, found))

    def _land_and_commit(
        self, standing: Standing, sealed: Sealed, computed: Computed, bound: Mapping[str, str]
    ) -> None:
        answer = sealed.answer
        if answer is None:
            return
        self._compare(answer, computed)
        deltas = agree.unpacked(answer.deltas)
        self.doing = f"landing transaction {sealed.t}"
        try:
            self._landing.land(computed, bound, sealed.t, standing.epoch, deltas)
            missing = self._missing(answer, bound)
        except StrandlineError:
            if self._overtaken(sealed):
                # Whoever went on may have widened a shard, or given it up.
                return
            raise
        if self._overtaken(sealed):
            return
        if missing:
            raise ReplayDivergedError(self._stuck(answer, missing))
        self._commit(standing, sealed, answer)

    def _missing(self, answer: Answer, bound: Mapping[str, str]) -> list[str]:
        """What the shards hold at the time that the answer does not say, or the other way."""
        settled = self._landing.settled(bound, answer.t)
        return agree.differences("collection", agree.unpacked(answer.deltas), settled)

    def _commit(self, standing: Standing, sealed: Sealed, answer: Answer) -> None:
        """Whoever is first; other records may come between, and then it is tried again."""
        self.doing = f"committing transaction {sealed.t}"
        env = self._rig.store.env
        now_ms = env.patient(env.consensus.now_ms)
        while _still(standing, sealed) is not None:
            instant_ms = standing.not_before(now_ms)
            record = Commit(answer.t, standing.epoch, instant_ms, answer.inputs, answer.deltas)
            outcome = self._journal.propose(standing, [record])
            standing = outcome.standing if isinstance(outcome, Lost) else outcome

    def _stuck(self, answer: Answer, missing: list[str]) -> str:
        ours = self._rig.computer.versions
        if agree.same_versions(ours, answer.versions):
            return agree.divergence(self._journal.pipeline, answer.t, missing)
        return agree.unfinished(self._journal.pipeline, answer.t, (answer.versions, ours), missing)

    def _without_rows(self, before: Sealed, error: StrandlineError) -> None:
        """Rows that were sealed are gone. What has landed whole needs them no more."""
        standing = self._journal.refresh()
        sealed = _still(standing, before)
        if sealed is None:
            # Amended since: it reads something else now.
            return
        if sealed.answer is not None:
            bound = {name: each.shard for name, each in standing.bindings.items()}
            if not self._missing(sealed.answer, bound):
                self._commit(standing, sealed, sealed.answer)
                return
        pipeline, endpoint = self._journal.pipeline, self._planner.lost(sealed)
        if isinstance(error, CorruptionError) and not endpoint:
            # It is something else that is damaged.
            raise error
        raise SourceGoneError(agree.unreadable(pipeline, sealed, endpoint, str(error))) from error


def _still(standing: Standing, sealed: Sealed) -> Sealed | None:
    """What is sealed, if it is this and takes what it took; whatever came of it since."""
    found = standing.sealed
    if found is None or found.begin != sealed.begin:
        return None
    same = (found.inputs, found.amends) == (sealed.inputs, sealed.amends)
    return found if same else None
