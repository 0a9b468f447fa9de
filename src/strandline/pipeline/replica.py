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
from strandline.pipeline.retain import cut, keep, release
from strandline.pipeline.rig import under
from strandline.pipeline.upstream import release_removed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.journal.record import Record
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time
    from strandline.pipeline.catalog import Collection
    from strandline.pipeline.presence import Audit
    from strandline.pipeline.rig import Rig


class Replica:
    """Carries out what the journal says is next, one step at a time."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._journal = rig.journal
        self._planner = Planner(rig)
        self._finishing = Finishing(rig, self._planner)
        self._me = n.Me(rig.program.hash, versions=rig.computer.versions)

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

    def want(self, what: n.Want) -> None:
        """Ask for a checkpoint or a promotion; it comes when it may."""
        self._me = replace(self._me, want=what)

    def wants(self) -> bool:
        """Whether what was asked for is still to come."""
        return self._me.want is not n.Want.NOTHING

    def renew(self) -> None:
        """Give up writers whose lease was lost; new ones are opened when they are needed."""
        self._finishing.close()

    def step(self) -> float:
        """Carry out one decision; returns for how many ms there is nothing to do."""
        standing = self._journal.refresh()
        step = n.next_step(standing, self._me)
        match step:
            case n.Found() | n.Promote():
                self._promote(standing)
            case n.Compute():
                self._join(standing)
                self._finishing.finish(standing, step.sealed)
            case n.Plan():
                self._join(standing)
                return self._planner.plan(standing)
            case n.TakeCheckpoint():
                self._join(standing)
                self._checkpoint(standing)
            case _:
                _stop(self._journal.pipeline, step, self._me.versions)
        return 0

    def close(self) -> None:
        self._finishing.close()

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
            self._me = replace(self._me, want=n.Want.NOTHING, epoch=None)

    def _join(self, standing: Standing) -> None:
        """Once per epoch: make sure that all shards are there, and fenced for it."""
        if self._me.epoch is None:
            with under(self._rig, standing) as rig:
                for each in rig.collections:
                    self._open(each, standing)
                    rig.attach(each.shard)
                keep(rig, standing)
                release_removed(rig, standing)
            self._me = replace(self._me, epoch=standing.epoch)

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
        release(rig, after)
        release_removed(rig, after)
        cut(rig, checkpoints, after)

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
