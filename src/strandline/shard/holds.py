"""What one reader holds back, and what it could let go of. Pure bookkeeping.

    R9   a pin is taken at the newest version seen, before the state is listed
    R10  the durable hold never passes a pin that is out
    R11  what is held without a pin is only the newest version seen, and `since`
    R12  holds only move forward

Two parts pinned at one version are two pins: giving one back releases nothing (S41).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from strandline.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Iterable


class ReadHolds:
    """The holds of one reader: what is wanted, what is durable, which pins are out."""

    def __init__(self, *, since: int | None, seqno: int) -> None:
        self.wanted_since = since
        self.applied_since = since
        self.applied_seqno = seqno
        self.seen_seqno = seqno
        self._pins: Counter[int] = Counter()
        self._forgotten: list[int] = []

    @property
    def pins(self) -> int:
        return self._pins.total()

    def observe(self, seqno: int) -> None:
        """A newer version was seen; whoever pins from now on pins at least this one."""
        self.seen_seqno = max(self.seen_seqno, seqno)

    def pin(self) -> int:
        self._pins[self.seen_seqno] += 1
        return self.seen_seqno

    def pin_again(self, seqno: int) -> None:
        """One more pin beside one that is out at the same version."""
        invariant(self._pins[seqno] > 0, "R10: a pin copied after it was given back")
        self._pins[seqno] += 1

    def unpin(self, seqno: int) -> None:
        invariant(self._pins[seqno] > 0, "R10: a pin given back twice")
        self._pins[seqno] -= 1
        if self._pins[seqno] == 0:
            del self._pins[seqno]

    def forget(self, seqno: int) -> None:
        """A pin was dropped without being given back; needs no lock, so a finaliser may call."""
        self._forgotten.append(seqno)

    def settle_forgotten(self) -> None:
        """Give back the pins that were dropped."""
        while self._forgotten:
            self.unpin(self._forgotten.pop())

    def downgrade(self, since: int) -> None:
        self.wanted_since = since if self.wanted_since is None else max(self.wanted_since, since)

    def seqno_target(self) -> int:
        """The newest version that the durable hold may move to."""
        return min(self._pins, default=self.seen_seqno)

    def due(self, garbage: Iterable[int]) -> tuple[int | None, int] | None:
        """What to commit, or `None` if it would release nothing; `garbage` by its versions.

        Moving a hold makes a version; doing so only because of other versions would keep
        idle readers busy with each other for ever. So the hold moves when there is garbage
        it stands in the way of, or times to give up.
        """
        target = self.seqno_target()
        invariant(target >= self.applied_seqno, "R10: the durable hold passed a pin")
        frees = any(self.applied_seqno < removed_at <= target for removed_at in garbage)
        moves = self.wanted_since != self.applied_since
        return (self.wanted_since, target) if frees or moves else None

    def applied(self, since: int | None, seqno: int) -> None:
        invariant(seqno >= self.applied_seqno, "R12: a hold moved back")
        self.applied_since = since
        self.applied_seqno = seqno
