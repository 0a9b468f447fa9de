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
    FencedError,
    JournalError,
    SchemaError,
    UsageError,
)
from strandline.journal import next as n
from strandline.journal.checkpoint import Checkpoints, Facts
from strandline.journal.handles import Handles
from strandline.journal.log import Lost
from strandline.journal.record import Promote, refs_of
from strandline.journal.staging import program_record
from strandline.model.digest import Digest
from strandline.pipeline import agree
from strandline.pipeline.catalog import binds
from strandline.pipeline.collected import open_collection
from strandline.pipeline.finish import Finishing
from strandline.pipeline.forgetful import unstage
from strandline.pipeline.planner import Planner
from strandline.pipeline.promotion import endpoints, openable
from strandline.pipeline.retain import cut, keep, release, say
from strandline.pipeline.rig import under
from strandline.pipeline.upstream import release_removed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.journal.record import Record
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time
    from strandline.pipeline.catalog import Collection
    from strandline.pipeline.rig import Rig
    from strandline.pipeline.said import Audit


class Replica:
    """Carries out what the journal says is next, one step at a time."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._journal = rig.journal
        self._planner = Planner(rig)
        self._finishing = Finishing(rig, self._planner)
        self._me = n.Me(rig.program.hash, versions=rig.computer.versions)
        self._said = False
        """Whether what this process was told about retention is on record."""
        self._kept: int | None = None
        self._due_since: int | None = None
        """The record after which any checkpoint will do, whoever's; `None` if it is the last one
        that the next step finds."""
        self._doing = ""

    def look(self) -> None:
        """See what others have put on record, without doing anything."""
        self._journal.refresh()

    @property
    def standing(self) -> Standing:
        """The newest standing this replica has seen."""
        return self._journal.standing

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sealed, as far as this replica has seen."""
        return self._planner.idle

    @property
    def noted(self) -> tuple[str, ...]:
        """Differences between unequal versions that were adopted, newest transaction only."""
        return self._finishing.noted

    @property
    def audit(self) -> Audit | None:
        """It writes, and verifies nothing beside that."""
        return None

    @property
    def doing(self) -> str:
        """What its step is at."""
        return self._doing or self._finishing.doing

    def want(self, what: n.Want) -> None:
        """Ask for a checkpoint or a promotion; it comes when it may. A checkpoint of another that
        comes after this will do: who is slower than a busy one would never get its own."""
        self._me = replace(self._me, want=what)
        self._due_since = None

    def due(self) -> None:
        """A checkpoint is due by what it has seen so far: the next one will do, whoever's."""
        if not self.wants():
            self.want(n.Want.CHECKPOINT)
            self._due_since = self.standing.lsn

    def wants(self) -> bool:
        """Whether what was asked for is still to come."""
        return self._me.want is not n.Want.NOTHING

    def renew(self) -> None:
        """Give up writers whose lease was lost; new ones are opened when they are needed."""
        self._finishing.close()

    def step(self) -> float:
        """Carry out one decision; returns for how many ms there is nothing to do."""
        self._doing = "reading the journal"
        standing = self._journal.refresh()
        if self._me.want is n.Want.CHECKPOINT and self._is_answered(standing):
            # And no more: whoever stops after it begins nothing.
            self.want(n.Want.NOTHING)
            return 0
        step = n.next_step(standing, self._me)
        match step:
            case n.Found() | n.Promote():
                self._doing = "promoting its program"
                self._promote(standing)
            case n.Compute() | n.Plan() | n.TakeCheckpoint() if self._must_say(standing):
                # And no more: what was decided is of an older standing then.
                self._said = say(self._journal, standing, self._rig.settings.retain)
            case n.Compute():
                self._join(standing)
                self._doing = ""
                self._finishing.finish(standing, step.sealed)
            case n.Plan():
                self._join(standing)
                self._doing = f"asking the sources for transaction {standing.next_t}"
                return self._planner.plan(standing)
            case n.TakeCheckpoint():
                self._join(standing)
                self._doing = "taking a checkpoint"
                self._checkpoint(standing)
            case _:
                _stop(self._journal.pipeline, step, self._me.versions)
        return 0

    def close(self) -> None:
        self._finishing.close()

    def _is_answered(self, standing: Standing) -> bool:
        """Whether a checkpoint came since one was wanted. One that came before somebody asked is
        none, though this replica may not have seen it then: so it counts from the next look on."""
        if self._due_since is None:
            self._due_since = standing.lsn
        kept = standing.checkpoints
        return bool(kept) and kept[-1].lsn > self._due_since

    def _promote(self, standing: Standing) -> None:
        """Program, names and epoch in one entry: who comes second finds them, and joins."""
        rig = self._rig
        if not openable(rig, standing):
            return
        versions = dict(rig.computer.versions)
        records: list[Record] = []
        env = rig.store.env
        if rig.program.hash not in standing.programs:
            records.append(program_record(env, standing.pipeline, rig.program.hash, rig.text))
        records += binds(list(rig.collections), standing.bindings)
        records += endpoints(rig, standing)
        records.append(Promote(standing.epoch + 1, rig.program.hash, versions))
        if isinstance(self._journal.propose(standing, records), Lost):
            unstage(env, [ref for each in records for ref in refs_of(each)])
        else:
            # It joins its own epoch like everybody else: only then are all shards there for sure.
            want = n.Want.NOTHING if self._me.want is n.Want.PROMOTE else self._me.want
            self._me = replace(self._me, want=want, epoch=None)

    def _must_say(self, standing: Standing) -> bool:
        """Whether what this process was told about retention is not on record there."""
        told = self._rig.settings.retain
        self._said = self._said or told is None or told == standing.retain
        return not self._said

    def _join(self, standing: Standing) -> None:
        """Once per epoch: make sure that all shards are there, and fenced for it. What was said
        about retention since then, by anybody, is told to them, too."""
        if self._me.epoch is None:
            self._doing = "opening its shards"
            with under(self._rig, standing) as rig:
                for each in rig.collections:
                    self._open(each, standing)
                    rig.attach(each.shard)
                keep(rig, standing)
                release_removed(rig, standing)
            self._me = replace(self._me, epoch=standing.epoch)
        elif standing.retain != self._kept:
            keep(self._rig, standing)
        self._kept = standing.retain

    def _open(self, collection: Collection, standing: Standing) -> None:
        """A table may have got more columns since we looked."""
        while True:
            try:
                open_collection(self._rig.store, collection, standing.added)
            except SchemaError:
                before, standing = standing, self._journal.refresh()
                if standing.added == before.added:
                    raise
            else:
                return

    def _checkpoint(self, standing: Standing) -> None:
        """Publish one, let sources forget what is before it, and cut what nobody needs. Another's
        will do that says the same, and who took it may have died before it did the rest."""
        rig = self._rig
        checkpoints = Checkpoints(self._journal)
        after = standing if checkpoints.stands(standing) else self._published(standing)
        if isinstance(after, Lost):
            return
        # It stays wanted until all of the rest is done: after trouble the next step finds that it
        # stands, and does the rest again. So this one is not yet the answer.
        self._due_since = None
        for endpoint, source in rig.sources.items():
            source.acknowledge(after.acknowledged.get(endpoint, {}))
        keep(rig, after)
        release(rig, after)
        release_removed(rig, after)
        cut(rig, checkpoints, after)
        self.want(n.Want.NOTHING)

    def _published(self, standing: Standing) -> Standing | Lost:
        settings = self._rig.settings
        facts = Facts(settings.fingerprint(), *self._content(standing))
        handles = Handles(self._rig.store.env, self._journal.pipeline)
        settled = handles.settled(standing, settings.handle_ttl_ms)
        return Checkpoints(self._journal).publish(standing, facts, forget=settled)

    def _content(self, standing: Standing) -> tuple[dict[str, Time], bytes]:
        """How far each shard has rows, and what all of them hold together."""
        uppers, total = {}, Digest.ZERO
        for name, bound in standing.bindings.items():
            state = self._rig.store.machine(bound.shard).refresh()
            uppers[name] = state.upper.time or 0
            total += state.total
        return uppers, total.pack()


def _stop(pipeline: str, step: n.Step, ours: Mapping[str, str]) -> None:
    """The steps that end a replica, each with what to do about it."""
    match step:
        case n.Fenced(epoch=epoch):
            raise FencedError(
                f"pipeline {pipeline}: e{epoch} was promoted, and this replica is older; stop it"
            )
        case n.WrongProgram(theirs=theirs):
            raise UsageError(
                f"pipeline {pipeline} runs program {theirs[:12]}, and this is another one: run "
                "that one, or promote this one: strandline promote"
            )
        case n.WrongVersions(theirs=versions):
            raise UsageError(
                f"pipeline {pipeline} is run by {agree.versions_text(dict(versions))} in this "
                f"epoch, and this is {agree.versions_text(ours)}: run those versions, look on with "
                "--read-only, or promote"
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
