"""All sinks of one replica: started and stopped together, and what the loop asks of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.pipeline.publish import Publisher, SinkState, SinkStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.frontier import Frontier
    from strandline.pipeline.rig import Rig


class Publishing:
    """A publisher for each sink of a program."""

    def __init__(self, rig: Rig, name: str = "") -> None:
        self._publishers = [
            Publisher(rig.store, rig.journal, target, rig.settings, name) for target in rig.sinks
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
        """Whether every sink has all that is committed, or has stopped for good."""
        last = committed.last()
        return last is None or all(
            each.reached >= last or each.state is SinkState.STOPPED for each in self.status()
        )

    def behind(self, committed: Frontier) -> tuple[int, str]:
        """How many transactions the last of the sinks is behind, and which one that is."""
        last = committed.last()
        if last is None or not self._publishers:
            return 0, ""
        slowest = min(self.status(), key=lambda each: each.reached)
        return last - slowest.reached, slowest.name
