"""One process that runs a pipeline, beside any number of others.

    journal.refresh ─► next_step (pure) ─► carried out here ─► journal.propose
         ▲                                                          │
         └──────────────── lost the race, or went on ◄──────────────┘

There is no other road: the first run, a restart, a replica that lags and one that lost a race all
look where the pipeline stands and do what the table in `journal.next` says. What a replica keeps
in memory is only what saves it from asking again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.errors import (
    ConflictError,
    FencedError,
    JournalError,
    ReplayDivergedError,
    StrandlineError,
    UndecodableError,
    UsageError,
)
from strandline.journal import next as n
from strandline.journal.checkpoint import Checkpoints, Facts
from strandline.journal.handles import Handles
from strandline.journal.log import Lost
from strandline.journal.record import Commit, Endpoint, Evolve, Promote
from strandline.journal.staging import program_record
from strandline.model.digest import Digest
from strandline.model.ids import printable
from strandline.pipeline import agree
from strandline.pipeline.catalog import binds, shards
from strandline.pipeline.collected import open_collection
from strandline.pipeline.evolve import addable, evolved
from strandline.pipeline.land import Landing
from strandline.pipeline.planner import Planner
from strandline.pipeline.retain import cut, keep
from strandline.pipeline.rig import under
from strandline.pipeline.upstream import release_removed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.connectors.source import Source
    from strandline.journal.record import Record
    from strandline.journal.standing import Sealed, Standing
    from strandline.model.frontier import Time
    from strandline.pipeline.compute import Computed
    from strandline.pipeline.rig import Rig


class Replica:
    """Carries out what the journal says is next, one step at a time."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._journal = rig.journal
        self._landing = Landing(rig.store, rig.timeline)
        self._planner = Planner(rig)
        self._me = n.Me(rig.program.hash)
        self.noted: tuple[str, ...] = ()
        """Differences between unequal versions that were adopted, newest transaction only."""

    @property
    def standing(self) -> Standing:
        """The newest standing this replica has seen."""
        return self._journal.standing

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sealed, as far as this replica has seen."""
        return self._planner.idle

    def want(self, what: n.Want) -> None:
        """Ask for a checkpoint or a promotion; it comes when it may."""
        self._me = replace(self._me, want=what)

    def wants(self) -> bool:
        """Whether what was asked for is still to come."""
        return self._me.want is not n.Want.NOTHING

    def renew(self) -> None:
        """Give up writers whose lease was lost; new ones are opened when they are needed."""
        self._landing.close()

    def step(self) -> float:
        """Carry out one decision; returns for how many ms there is nothing to do."""
        standing = self._journal.refresh()
        step = n.next_step(standing, self._me)
        match step:
            case n.Found() | n.Promote():
                self._promote(standing)
            case n.Compute():
                self._join(standing)
                self._finish(standing, step.sealed)
            case n.Plan():
                self._join(standing)
                return self._planner.plan(standing)
            case n.TakeCheckpoint():
                self._join(standing)
                self._checkpoint(standing)
            case _:
                _stop(self._journal.pipeline, step)
        return 0

    def close(self) -> None:
        self._landing.close()

    def _promote(self, standing: Standing) -> None:
        """Program, names and epoch in one entry: who comes second finds them, and joins."""
        rig = self._rig
        records: list[Record] = []
        if rig.program.hash not in standing.programs:
            env = rig.store.env
            records.append(program_record(env, standing.pipeline, rig.program.hash, rig.text))
        records += binds(list(rig.collections), standing.bindings)
        records += _endpoints(standing, rig.sources)
        records.append(Promote(standing.epoch + 1, rig.program.hash))
        if not isinstance(self._journal.propose(standing, records), Lost):
            # It joins its own epoch like everybody else: only then are all shards there for sure.
            self._me = replace(self._me, want=n.Want.NOTHING, epoch=None)

    def _join(self, standing: Standing) -> None:
        """Once per epoch: make sure that all shards are there, and fenced for it."""
        if self._me.epoch is None:
            with under(self._rig, standing) as rig:
                for each in rig.collections:
                    open_collection(rig.store, each, standing.added)
                    rig.attach(each.shard)
                keep(rig, standing)
                release_removed(rig.store, standing)
            self._me = replace(self._me, epoch=standing.epoch)

    def _finish(self, standing: Standing, sealed: Sealed) -> None:
        """Compute what is sealed, land it, commit it: whoever began it, under its own program."""
        try:
            with under(self._rig, standing) as rig:
                bound = shards(standing, list(rig.collections))
                for each in rig.collections:
                    if each.name in standing.added:
                        open_collection(rig.store, each, standing.added)
                computed = self._compute(rig, standing, sealed, bound)
                if self._evolve(rig, standing, sealed, computed):
                    return
        except StrandlineError:
            if not self._overtaken(sealed):
                raise
            # What it needs may be merged, forgotten or released by now: nobody needs it any more.
            return
        if self._overtaken(sealed):
            # Nothing may be landed at a time that is committed: a shard that had no change at it
            # would take one.
            self._compare_with_record(standing, sealed, computed)
            return
        self._land_and_commit(standing, sealed, computed, bound)

    def _compute(
        self, rig: Rig, standing: Standing, sealed: Sealed, bound: Mapping[str, str]
    ) -> Computed:
        planner = self._planner if rig is self._rig else Planner(rig)
        writers = self._landing.writers(bound)
        computed = rig.computer.compute(planner.work(standing, sealed, bound, writers))
        self._refuse_undecoded(sealed, computed)
        return computed

    def _evolve(self, rig: Rig, standing: Standing, sealed: Sealed, computed: Computed) -> bool:
        """Put new columns on record, before anything is landed; then it is computed anew."""
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
        """What is sealed stays sealed: whoever may go on with it finds all of it."""
        for table in sorted(computed.undecoded.keys() & self._rig.strict):
            bad = computed.undecoded[table]
            raise UndecodableError(
                f"pipeline {self._journal.pipeline}: transaction {sealed.t} is not committed, as "
                f"table {table} says onError 'fail' and {bad.rows} of its values can't be decoded, "
                f"first offset {bad.offset} of partition {printable(bad.partition)}: {bad.reason}. "
                f"Amend the transaction, or run the program with onError 'collect', which keeps "
                f"them in {table}_errors"
            )

    def _overtaken(self, sealed: Sealed) -> bool:
        return self._journal.refresh().committed.settled(sealed.t)

    def _land_and_commit(
        self, standing: Standing, sealed: Sealed, computed: Computed, bound: Mapping[str, str]
    ) -> None:
        self._landing.land(computed, bound, sealed.t, standing.epoch)
        settled = self._landing.settled(bound, sealed.t)
        if self._overtaken(sealed):
            self._compare_with_record(standing, sealed, computed)
            return
        found = agree.differences("collection", settled, computed.digests())
        self._judge(sealed, found)
        env = self._rig.store.env
        instant_ms = standing.not_before(env.patient(env.consensus.now_ms))
        record = Commit(
            sealed.t,
            standing.epoch,
            instant_ms,
            agree.packed(computed.inputs),
            agree.packed(settled),
        )
        if isinstance(self._journal.propose(standing, [record]), Lost):
            self._compare_with_record(standing, sealed, computed)

    def _compare_with_record(self, standing: Standing, sealed: Sealed, computed: Computed) -> None:
        """A peer committed it first; its answer is the answer, and must be ours."""
        commit = self._committed(standing, sealed)
        if commit is None:
            return
        inputs = agree.unpacked(commit.inputs)
        deltas = agree.unpacked(commit.deltas)
        found = agree.differences("endpoint", inputs, computed.inputs)
        found += agree.differences("collection", deltas, computed.digests())
        self._judge(sealed, found)

    def _committed(self, standing: Standing, sealed: Sealed) -> Commit | None:
        """The COMMIT of a time that was sealed in `standing`; `None` if it is cut, or not there."""
        try:
            for _, record in self._journal.records(standing.lsn + 1):
                if isinstance(record, Commit) and record.t == sealed.t:
                    return record
        except (ConflictError, UsageError):
            # It was cut, before or while it was read.
            return None
        return None

    def _judge(self, sealed: Sealed, found: list[str]) -> None:
        """Unequal versions may differ: that is noted. Equal ones may not: this replica stops."""
        self.noted = tuple(found)
        if found and agree.same_versions(self._rig.computer.versions, sealed.begin.versions):
            raise ReplayDivergedError(agree.divergence(self._journal.pipeline, sealed.t, found))

    def _checkpoint(self, standing: Standing) -> None:
        """Publish one, let sources forget what is before it, and cut what nobody needs."""
        rig = self._rig
        checkpoints = Checkpoints(self._journal)
        facts = Facts(rig.settings.fingerprint(), *self._content(standing))
        settled = Handles(rig.store.env, self._journal.pipeline).settled(standing)
        after = checkpoints.publish(standing, facts, forget=settled)
        if isinstance(after, Lost):
            return
        self.want(n.Want.NOTHING)
        for endpoint, source in rig.sources.items():
            source.acknowledge(after.acknowledged.get(endpoint, {}))
        keep(rig, after)
        cut(rig, checkpoints, after)

    def _content(self, standing: Standing) -> tuple[dict[str, Time], bytes]:
        """How far each shard has rows, and what all of them hold together."""
        uppers, total = {}, Digest.ZERO
        for name, bound in standing.bindings.items():
            state = self._rig.store.machine(bound.shard).refresh()
            uppers[name] = state.upper.time or 0
            total += state.total
        return uppers, total.pack()


def _endpoints(standing: Standing, sources: Mapping[str, Source]) -> list[Endpoint]:
    live = {name for name, state in standing.endpoints.items() if state != "removed"}
    return [Endpoint(name, "removed") for name in sorted(live - set(sources))] + [
        Endpoint(name, "added") for name in sorted(set(sources) - live)
    ]


def _stop(pipeline: str, step: n.Step) -> None:
    """The steps that end a replica, each with what to do about it."""
    match step:
        case n.Fenced(epoch=epoch):
            raise FencedError(
                f"pipeline {pipeline}: e{epoch} was promoted, and this replica is older; stop it"
            )
        case n.WrongProgram(theirs=theirs):
            raise UsageError(
                f"pipeline {pipeline} runs program {theirs[:12]}, and this is another one: run "
                "that one, or promote this one"
            )
        case n.Regressed(epoch=epoch):
            raise JournalError(
                f"pipeline {pipeline}: its journal is at e{epoch} and older than what this replica "
                "has seen of it: was the store restored from a copy?"
            )
        case _:
            raise JournalError(
                f"pipeline {pipeline}: the last entry begins a transaction and does not seal it; "
                "run fsck"
            )
