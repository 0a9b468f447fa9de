"""A read-only replica: computes every transaction once more, and writes nothing.

It begins where it joins, and holds what it reads under leases of its own. What it finds different
between equal versions is `ReplayDivergedError`; between unequal versions it is noted. A stretch of
the journal that was cut before it looked is skipped, and that is noted, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.errors import NotFoundError, UsageError
from strandline.journal import next as n
from strandline.journal.record import Commit
from strandline.journal.standing import advance
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import Recorded, again

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.handles.shard import Reader
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time
    from strandline.pipeline.rig import Rig


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
        self.noted: tuple[str, ...] = ()
        self.verified = 0

    @property
    def standing(self) -> Standing:
        return self._journal.standing

    @property
    def idle(self) -> bool:
        return True

    def want(self, what: n.Want) -> None:
        """A read-only replica takes no checkpoint."""
        if what is n.Want.PROMOTE:
            raise UsageError("a read-only replica can't be promoted: start it without --read-only")

    def wants(self) -> bool:
        return False

    def renew(self) -> None:
        """Give up leases that were lost; what comes next is verified again from there."""
        self.close()
        self._at = None

    def step(self) -> float:
        """Verify one transaction; returns for how many ms there is nothing to do."""
        standing = self._journal.refresh()
        if self._at is None and not self._join(standing):
            return self._rig.settings.poll_ms
        at = standing.next_t if self._at is None else self._at.next_t
        match n.next_step(standing, replace(self._me, at=at)):
            case n.Wait():
                return self._rig.settings.poll_ms
            case n.Verify(t=t):
                self._verify(t)
                return 0
            case n.Shadow(t=t):
                # A new program that warms up: it must be able to read what the old one read.
                self._verify(t, deltas=False)
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

    def _verify(self, t: Time, *, deltas: bool = True) -> None:
        """Look at the next transaction, or skip to the newest one if it was cut meanwhile."""
        if self._at is None or self._journal.first() > self._at.lsn + 1:
            self.noted = (f"the journal was cut before {t} was verified",)
            self.renew()
            return
        self._hold(self._at, t)
        for recorded in self._next():
            self.noted = again(self._rig, self._planner, recorded, deltas=deltas).noted
            self.verified += 1

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
