"""A read-only replica: computes every transaction once more, and writes nothing.

It begins where it joins, and holds what it reads under leases of its own. What it finds different
between equal versions is `ReplayDivergedError`; between unequal versions it is noted.

    a lease was lost          it goes on where it was, if what it reads is still there
    the journal was cut, or   everything up to now is skipped, and it goes on from there
    history was merged
    rows are gone             the transaction that took them is skipped

What it skips it says, with the reason (`audit`): it counts as verified only what it computed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import ConflictError, NotFoundError, SinceError, UsageError
from strandline.journal import next as n
from strandline.journal.record import Commit
from strandline.journal.standing import advance
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import Recorded, again
from strandline.pipeline.said import Audit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.handles.shard import Reader
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time
    from strandline.pipeline.replay import Replayed
    from strandline.pipeline.rig import Rig

_TOLD = 5
"""So many of those that were not found equal are told with their reasons; all are counted."""


class Auditor:
    """Computes what others commit, and compares."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._journal = rig.journal
        self._planner = Planner(rig)
        self._me = n.Me(rig.program.hash, read_only=True)
        self._at: Standing | None = None
        """Everything up to it was looked at."""
        self._readers: dict[str, Reader] = {}
        self._audit = Audit()
        self._doing = ""

    @property
    def standing(self) -> Standing:
        return self._journal.standing

    @property
    def idle(self) -> bool:
        return True

    @property
    def audit(self) -> Audit:
        """What it verified since it joined, and what not."""
        return self._audit

    @property
    def doing(self) -> str:
        """What its step is at."""
        return self._doing

    def look(self) -> None:
        """See what others have put on record, without doing anything."""
        self._journal.refresh()

    def want(self, what: n.Want) -> None:
        """A read-only replica takes no checkpoint."""
        if what is n.Want.PROMOTE:
            raise UsageError("a read-only replica can't be promoted: start it without --read-only")

    def due(self) -> None:
        """Others take them."""

    def wants(self) -> bool:
        return False

    def renew(self) -> None:
        """Give up leases that were lost. It stays where it was: others are taken from there on."""
        self.close()

    def step(self) -> float:
        """Verify one transaction; returns for how many ms there is nothing to do."""
        self._doing = "reading the journal"
        standing = self._journal.refresh()
        if self._at is None and not self._join(standing):
            return self._rig.settings.poll_ms
        at = standing.next_t if self._at is None else self._at.next_t
        match n.next_step(standing, replace(self._me, at=at)):
            case n.Wait():
                return self._rig.settings.poll_ms
            case n.Verify(t=t):
                self._verify(standing, t)
                return 0
            case n.Shadow(t=t):
                # A new program that warms up: it must be able to read what the old one read.
                self._verify(standing, t, deltas=False)
                return 0
            case other:
                raise UsageError(
                    f"pipeline {self._journal.pipeline} can't be verified: {type(other).__name__}"
                )

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _join(self, standing: Standing) -> bool:
        """Begin here, and hold what is here; `False` while there is nothing to begin with."""
        if not standing.epoch:
            return False
        try:
            self._hold(standing, standing.next_t)
        except NotFoundError:
            # It was founded this moment, and its shards are about to be created.
            self.close()
            return False
        self._at = standing
        return True

    def _verify(self, standing: Standing, t: Time, *, deltas: bool = True) -> None:
        """Look at the next transaction, or skip all there are if it can't be looked at any more."""
        self._doing = f"verifying transaction {t}"
        at = self._at
        if at is None or self._was_cut(at):
            self._skip_to(standing, t, "the journal was cut before they were looked at")
            return
        try:
            self._hold(at, t)
            for recorded in self._next():
                found = again(self._rig, self._planner, recorded, deltas=deltas)
                self._count(found, whole=deltas)
        except SinceError as error:
            self._skip_to(standing, t, f"their history was merged: {error}")
        except (ConflictError, UsageError):
            if not self._was_cut(at):
                raise
            self._skip_to(standing, t, "the journal was cut while they were looked at")

    def _was_cut(self, at: Standing) -> bool:
        return self._journal.first() > at.lsn + 1

    def _skip_to(self, standing: Standing, t: Time, reason: str) -> None:
        """Go on where the pipeline stands; what lies between was not verified. From exactly there:
        what is committed from now on would be neither verified nor skipped otherwise."""
        stop = standing.next_t
        which = f"{t}" if stop == t + 1 else f"{t} to {stop - 1}"
        self._tell(f"{which}: {reason}", skipped=stop - t)
        self.close()
        self._at = standing
        # Not there yet, or merged already: then the next one is skipped as well, by name.
        with suppress(NotFoundError, SinceError):
            self._hold(standing, stop)

    def _count(self, found: Replayed, *, whole: bool) -> None:
        if found.skipped:
            self._tell(f"{found.t}: {found.skipped}", skipped=1)
        elif found.noted:
            self._tell(f"{found.t}: {'; '.join(found.noted)}", differed=1)
        elif whole:
            self._audit = msgspec.structs.replace(self._audit, verified=self._audit.verified + 1)
        else:
            self._audit = msgspec.structs.replace(self._audit, inputs=self._audit.inputs + 1)

    def _tell(self, text: str, *, skipped: int = 0, differed: int = 0) -> None:
        before = self._audit
        told = (*before.told, text)[-_TOLD:]
        self._audit = msgspec.structs.replace(
            before,
            differed=before.differed + differed,
            skipped=before.skipped + skipped,
            told=told,
        )

    def _next(self) -> Iterator[Recorded]:
        """The next committed transaction; what was looked at moves past it afterwards."""
        before = self._at
        if before is None:
            return
        for _, record in self._journal.records(before.lsn + 1):
            after = advance(before, record)
            if isinstance(record, Commit) and before.sealed is not None:
                yield Recorded(before, before.sealed, record)
                self._at = after
                return
            before = after

    def _hold(self, standing: Standing, t: Time) -> None:
        """Keep what the transaction before `t` left readable, in the shards on record."""
        for bound in standing.bindings.values():
            reader = self._readers.get(bound.shard)
            if reader is None:
                shard = self._rig.store.shard(bound.shard)
                since = max(0, t - 1)
                self._readers[bound.shard] = shard.reader(since=since, purpose="read-only replica")
            elif t > 0:
                reader.downgrade(t - 1)
