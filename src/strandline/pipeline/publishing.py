"""All sinks of one replica: started and stopped together, and what the loop asks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.connectors.sink import NOTHING_YET
from strandline.pipeline.publish import Publisher
from strandline.pipeline.states import SinkState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.frontier import Frontier
    from strandline.pipeline.rig import Rig
    from strandline.pipeline.said import SinkStatus

_STANDS = (SinkState.STOPPED, SinkState.PAUSED)


class Publishing:
    """A publisher for each sink of a program."""

    def __init__(self, rig: Rig, name: str = "") -> None:
        self._publishers = [
            Publisher(rig.store, rig.journal, target, rig.settings, name, rig.program.hash)
            for target in rig.sinks
        ]

    def start(self) -> None:
        for each in self._publishers:
            each.start()

    def stop(self) -> None:
        """All of them are asked before the first is waited for."""
        for each in self._publishers:
            each.ask_to_stop()
        for each in self._publishers:
            each.stop()

    def status(self) -> Sequence[SinkStatus]:
        return [each.status() for each in self._publishers]

    def settled(self, committed: Frontier) -> bool:
        """Whether every sink has all that is committed, or will not get it: it has stopped for
        good, somebody has paused it, nobody is there who can publish it, or its view can't be read,
        and what may heal that is yet to be committed."""
        last = committed.last()
        return last is None or all(
            max(each.has, each.raises) >= last or each.state in _STANDS or each.left
            for each in self.status()
        )

    def left(self, committed: Frontier) -> str:
        """What is not published, and waits for nothing that comes by itself."""
        last = committed.last()
        left = [
            f"sink {each.name} is published by nobody: {each.cause}"
            for each in self.status()
            if each.left and last is not None and each.has < last
        ]
        return "; ".join(each for each in (self.blocked(), *left) if each)

    def blocked(self) -> str:
        """Which sinks wait for their views to be read again; empty if none does."""
        return "; ".join(
            f"sink {each.name} is blocked: {each.cause or 'its view raises'}"
            for each in self.status()
            if each.raises > NOTHING_YET
        )

    def behind(self, committed: Frontier) -> tuple[int, str]:
        """How many transactions the last of the sinks is behind, and which one that is.

        One that stands counts like any other: its history is held, and nothing grows for ever. One
        whose view can't be read does not: what heals the view may be the next transaction. One that
        was never begun with is not behind: it holds nothing. Of one that has not looked yet nobody
        knows (`unsure`).
        """
        counted = [each for each in self._counted() if each.lineage]
        return _slowest(counted, committed)

    def unsure(self, committed: Frontier) -> tuple[int, str]:
        """The same of those that have not looked at their record yet: they may be so far behind."""
        return _slowest([each for each in self._counted() if not each.lineage], committed)

    def _counted(self) -> list[SinkStatus]:
        """Not those of a program that does not run: they neither look nor publish; nor those whose
        view raises, whoever publishes them."""
        return [
            each
            for each in self.status()
            if not each.replaced
            if each.state is not SinkState.BLOCKED and each.raises == NOTHING_YET
        ]


def _slowest(sinks: Sequence[SinkStatus], committed: Frontier) -> tuple[int, str]:
    last = committed.last()
    if last is None or not sinks:
        return 0, ""
    slowest = min(sinks, key=lambda each: each.freed)
    stands = f", which is {slowest.state}," if slowest.state in _STANDS else ""
    stands = ", which nobody publishes," if slowest.left else stands
    return max(0, last - slowest.freed), f"{slowest.name}{stands}"
