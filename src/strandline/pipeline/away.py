"""A source that was away when its pipeline was opened: asked again by whoever needs it.

Only a source that has fed this pipeline before is waited for, like one that goes away while a
replica runs. Of a new one nobody knows whether it was ever there: its address may be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.connectors.source import Holding
from strandline.errors import HandleClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.connectors.position import Position, Range
    from strandline.connectors.source import Limits, Source, Split


class Away:
    """The source, once it is there; until then whatever needs it raises why it is not."""

    def __init__(self, reopen: Callable[[], Source]) -> None:
        self._reopen = reopen
        self._source: Source | None = None
        self._upto: Position | None = None
        self._closed = False

    @property
    def replayable(self) -> bool:
        return self.back().replayable

    @property
    def initiates(self) -> bool:
        """Nothing is planned of one that is away."""
        return bool(getattr(self._source, "initiates", False))

    def back(self) -> Source:
        """The source, if it is there by now; `SourceError` if it is not."""
        if self._closed:
            raise HandleClosedError("this source was closed: open a new one")
        if self._source is None:
            source = self._reopen()
            if self._upto is not None:
                source.acknowledge(self._upto)
            self._source = source
        return self._source

    def latest(self) -> Position:
        return self.back().latest()

    def plan(self, start: Position, limits: Limits) -> Range | None:
        return self.back().plan(start, limits)

    def secure(self, taken: Range) -> None:
        source = self.back()
        if isinstance(source, Holding):
            source.secure(taken)

    def splits(self, taken: Range) -> list[Split]:
        return self.back().splits(taken)

    def check(self, taken: Range) -> None:
        self.back().check(taken)

    def acknowledge(self, upto: Position) -> None:
        """It is told once it is there: a checkpoint waits for nobody."""
        if self._source is None:
            self._upto = dict(upto)
        else:
            self._source.acknowledge(upto)

    def close(self) -> None:
        self._closed = True
        if self._source is not None:
            self._source.close()


def insist(sources: Iterable[Source]) -> None:
    """Raise if one of them is still away: for who does not wait for what may never come."""
    for each in sources:
        if isinstance(each, Away):
            each.back()
