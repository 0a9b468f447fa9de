"""Roles around a journal: replicas without anything to compute, and people who look on.

A clerk follows the table of next steps like a real replica: it seals, waits as if it computed,
commits, takes checkpoints, promotes, aborts handles, dies and comes back. What it was told is
kept, with every entry that was ever written, and judged in the end (`audit`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.errors import (
    CorruptionError,
    InvariantError,
    MaybeAppliedError,
    StrandlineError,
)
from strandline.journal import next as step, record as r
from strandline.journal.chain import Entry, encode_entry
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.log import Journal
from strandline.journal.standing import Standing
from strandline.journal.timeline import timeline_name, timeline_of
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned
from strandline.store.memory import MemoryConsensus
from strandline.testing.audit import audit, audit_cuts, audit_told, committed_by
from strandline.testing.checkers import HistoryError
from strandline.testing.journals import (
    PROGRAM,
    VERSIONS,
    amending,
    answering,
    committing,
    founding,
    sealing,
)
from strandline.testing.lab import Lab
from strandline.testing.observer import ObservedConsensus
from strandline.testing.roles import repeat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.journal.log import Lost
    from strandline.testing.audit import Truth
    from strandline.testing.roles import Role
    from strandline.testing.world import Host, World

SHOP = "shop"
_KEY = f"journal/{SHOP}"


class Witness(ObservedConsensus):
    """The shared consensus store, which keeps every entry of the journal that was written."""

    def __init__(self, world: World) -> None:
        super().__init__(world.observer, world.sim.now_ms)
        self.versions: list[Versioned] = []
        self.cuts: list[tuple[int, int]] = []
        self.told: list[tuple[str, bool]] = []
        self.handles: dict[str, str] = {}
        """The handle that each role is about to commit; it outlives its processes."""
        self.wrong: list[str] = []
        self.committed = 0
        self.instants: dict[int, int] = {}

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        result = super().compare_and_set(key, new)
        if result is CasResult.COMMITTED and key == _KEY:
            self.versions.append(new)
            self.committed, instant_ms = committed_by(SHOP, new)
            self.instants.setdefault(self.committed - 1, instant_ms)
        return result

    def truncate(self, key: str, before: SeqNo) -> None:
        super().truncate(key, before)
        if key == _KEY:
            self.cuts.append((before.number, len(self.versions)))


def witness_of(world: World) -> Witness:
    witness = world.consensus
    assert isinstance(witness, Witness)
    return witness


def clerk(*, pause_ms: float = 20.0) -> Role:
    """A replica; fenced, it joins the new epoch."""

    def run(process: Host) -> None:
        repeat(process, Clerk(process).turn, pause_ms=pause_ms)

    return run


class Clerk:
    """One life of a replica."""

    def __init__(self, process: Host) -> None:
        self.process = process
        self.witness = witness_of(process.world)
        self.journal = Journal(process.store.env, SHOP)
        self.checkpoints = Checkpoints(self.journal)
        self.epoch: int | None = None

    def turn(self) -> None:
        standing = self.journal.refresh()
        me = step.Me(PROGRAM, self.epoch, want=self._want(), versions=VERSIONS)
        decided = step.next_step(standing, me)
        match decided:
            case step.Found():
                self.journal.propose(standing, founding())
            case step.Plan(epoch=epoch):
                self.epoch = self.epoch or epoch
                self._plan(standing)
            case step.Compute(epoch=epoch):
                self.epoch = self.epoch or epoch
                self._compute(standing)
            case step.Promote(epoch=epoch):
                done = self.journal.propose(standing, [r.Promote(epoch, PROGRAM, VERSIONS)])
                self.epoch = epoch if isinstance(done, Standing) else self.epoch
            case step.TakeCheckpoint():
                self.checkpoints.publish(standing)
                self.checkpoints.cut()
                self.process.world.sim.sometimes("a journal was cut")
            case step.Fenced():
                self.process.world.sim.sometimes("a clerk was fenced")
                self.epoch = None
            case _:
                raise HistoryError(f"{self.process.name} was told {decided}")

    def _want(self) -> step.Want:
        drawn = self.process.random.random()
        if drawn < 0.04:
            return step.Want.PROMOTE
        return step.Want.CHECKPOINT if drawn < 0.2 else step.Want.NOTHING

    def _now_ms(self) -> int:
        return self.process.store.env.patient(self.process.store.env.consensus.now_ms)

    def _plan(self, standing: Standing) -> None:
        drawn = self.process.random.random()
        token = self.process.node.random.token()
        if drawn < 0.2:
            self.journal.propose(standing, [r.Abort(token, "idle")])
            return
        handle = self._open_handle(standing, token) if drawn < 0.5 else None
        records = sealing(
            standing,
            rows=self.process.random.randrange(4),
            now_ms=self._now_ms(),
            handle=handle,
            attempt=token,
        )
        records[0] = msgspec.structs.replace(records[0], epoch=self.epoch or standing.epoch)
        counted = isinstance(self._told(token, standing, records), Standing)
        # Some are not sure whether they were told, and try the same handle again.
        if counted and handle is not None and self.process.random.random() < 0.3:
            self.witness.handles.pop(self.process.role, None)

    def _open_handle(self, standing: Standing, token: str) -> str:
        """The handle that this role has to commit, whatever became of its earlier attempts."""
        handle = self.witness.handles.get(self.process.role)
        if handle is None or handle in standing.closed:
            handle = self.witness.handles[self.process.role] = f"h{token}"
        return handle

    def _told(
        self, attempt: str, standing: Standing, records: Sequence[r.Record]
    ) -> Standing | Lost:
        outcome = self.journal.propose(standing, records)
        self.witness.told.append((attempt, isinstance(outcome, Standing)))
        return outcome

    def _compute(self, standing: Standing) -> None:
        """Answer what was sealed, and commit it, unless it is not what is sealed by then.

        Some amend it when it is too late for that, and some forget to answer: both are refused.
        """
        commit = committing(standing, now_ms=self._now_ms(), epoch=self.epoch)
        try:
            self.process.sleep(self.process.random.choice((0, 5, 200)))
            fresh = self.journal.refresh()
            drawn = self.process.random.random()
            if drawn < 0.15:
                self.journal.propose(fresh, [amending(standing)])
                fresh = self.journal.refresh()
            if (fresh.sealed is None or fresh.sealed.answer is None) and drawn < 0.95:
                answer = answering(standing, epoch=self.epoch)
                self.journal.propose(fresh, [answer])
                self.process.sleep(self.process.random.choice((0, 0, 5)))
                fresh = self.journal.refresh()
            instant_ms = fresh.not_before(commit.instant_ms)
            commit = msgspec.structs.replace(commit, instant_ms=instant_ms)
            self.journal.propose(fresh, [commit])
        except InvariantError:
            self.process.world.sim.sometimes("a commit came late")


def onlooker(*, pause_ms: float = 15.0) -> Role:
    """Asks how far the pipeline is committed, and since when."""

    def run(process: Host) -> None:
        witness = witness_of(process.world)

        def look() -> None:
            timeline = timeline_of(process.store.env, timeline_name(SHOP))
            before = witness.committed
            found = timeline.committed().time or 0
            after = witness.committed
            if not before <= found <= after:
                witness.wrong.append(f"{found} was read while {before} to {after} was committed")
            _check_instant(witness, found - 1, timeline.instant_of(found - 1) if found else None)

        repeat(process, look, pause_ms=pause_ms)

    return run


def _check_instant(witness: Witness, t: int, instant_ms: int | None) -> None:
    if instant_ms is not None:
        known = witness.instants[t]
        if known != instant_ms:
            witness.wrong.append(f"{t} was committed at {known}, not at {instant_ms}")


def clerks(world: World) -> None:
    """Three replicas and somebody who looks on, on a store that remembers everything."""
    world.consensus = Witness(world)
    for number in range(3):
        world.start(f"c{number}", clerk())
    world.start("o1", onlooker())


def judge(world: World) -> None:
    """Raise if the journal, or what anybody was told of it, is not as it should be."""
    witness = witness_of(world)
    truth = audit(SHOP, witness.versions)
    audit_cuts(witness.versions, truth, witness.cuts)
    audit_told(truth, witness.told)
    wrong = [*witness.wrong, *truth.wrong]
    if truth.next_t == 0:
        wrong.append("nothing was ever committed")
    wrong += _recovery(world, witness, truth)
    if not wrong:
        wrong += _damage(world, witness)
    if wrong:
        raise HistoryError("\n".join(f"journal: {what}" for what in wrong[:10]))


def shown(world: World, versions: Sequence[Versioned]) -> Journal:
    """The journal on a store that has exactly these versions, contiguous from the first."""

    class Shown(MemoryConsensus):
        def head(self, key: str) -> Versioned | None:
            return versions[-1] if key == _KEY and versions else None

        def scan(self, key: str, start: SeqNo, limit: int) -> Sequence[Versioned]:
            found = [each for each in versions if key == _KEY and each.seqno >= start]
            return found[:limit]

    lab = Lab(blob=world.observer.objects)
    env = lab.env()
    object.__setattr__(env, "consensus", Shown(lab.clock))
    return Journal(env, SHOP)


def _recovery(world: World, witness: Witness, truth: Truth) -> list[str]:
    """Whoever loads what is left finds what was written."""
    try:
        standing = shown(world, witness.scan(_KEY, SeqNo(0), 10**6)).refresh()
    except StrandlineError as error:
        return [f"what is left can't be loaded: {error}"]
    found = (standing.lsn, standing.next_t, standing.epoch, standing.digest)
    closed = {handle for handle in standing.closed if handle not in truth.handles}
    if found != (truth.lsn, truth.next_t, truth.epoch, truth.digest) or closed:
        return [f"what was loaded, {found}, is not what was written"]
    return []


def _damage(world: World, witness: Witness) -> list[str]:
    """Whatever happens to the entries that are left, it is refused."""
    chance = world.sim.stream("damage")
    entries = list(shown(world, witness.scan(_KEY, SeqNo(0), 10**6)).entries.scan())
    wrong = []
    lonely = [at for at, (_, entry) in enumerate(entries[:-1]) if at and b"ABORT" in _body(entry)]
    for at in chance.sample(lonely, min(3, len(lonely))):
        (first, _), bare = entries[0], [entry for _, entry in entries]
        changed = _changed(bare[at])
        harmed = {
            "missing": [*bare[:at], *bare[at + 1 :]],
            "repeated": [*bare[:at], bare[at], *bare[at:]],
            "changed": [*bare[:at], changed, *bare[at + 1 :]],
        }
        for how, left in harmed.items():
            versions = [
                Versioned(seqno, encode_entry(SHOP, seqno, entry))
                for seqno, entry in zip(_numbers(first), left, strict=False)
            ]
            if _is_accepted(world, versions):
                wrong.append(f"entry {first.number + at} is {how}, and nobody objects")
    return wrong


def _numbers(first: SeqNo) -> Sequence[SeqNo]:
    return [SeqNo(number) for number in range(first.number, first.number + 100_000)]


def _body(entry: Entry) -> bytes:
    return entry.links[0].body


def _changed(entry: Entry) -> Entry:
    """The same entry with one record changed by somebody who can seal an envelope."""
    link = entry.links[0]
    body = link.body.replace(b"idle", b"busy")
    return msgspec.structs.replace(entry, links=(msgspec.structs.replace(link, body=body),))


def _is_accepted(world: World, versions: Sequence[Versioned]) -> bool:
    try:
        shown(world, versions).refresh()
    except (CorruptionError, MaybeAppliedError):
        return False
    return True
