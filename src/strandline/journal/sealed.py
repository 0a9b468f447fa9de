"""A transaction that is sealed: what it reads, and what it was found to be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.journal.record import Amend, Answer, Begin, Input

if TYPE_CHECKING:
    from strandline.model.frontier import Time

_replace = msgspec.structs.replace


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that will be computed, by somebody, from exactly this."""

    begin: Begin
    inputs: tuple[Input, ...]
    """As they were sealed: positions move past all of it."""
    amends: tuple[Amend, ...] = ()
    """In the order of the record; the last one of an endpoint counts."""
    answer: Answer | None = None
    """What it is; until it is there, nobody lands anything."""

    @property
    def reads(self) -> tuple[Input, ...]:
        """What is read: the inputs as they are amended."""
        last = {each.endpoint: each for each in self.amends}
        return tuple(
            _replace(each, taken=last[each.endpoint].taken, staged=last[each.endpoint].staged)
            if each.endpoint in last
            else each
            for each in self.inputs
        )

    @property
    def t(self) -> Time:
        return self.begin.t

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(each.endpoint for each in self.inputs)
