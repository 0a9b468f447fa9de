"""The Timeline port: what settles several shards together, with one record.

A shard that is *attached* to a timeline has the timeline's frontier for its upper, for every
reader. The order of reads is part of the contract: whoever reads at `t` sees the timeline past
`t` first, and only then loads the shard's newest state. An append that the timeline has not
committed is invisible. A pipeline's journal is a timeline; `shard.timeline` is a plain one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier, Time

PIPELINE = "pipeline."
"""The timeline of pipeline `shop` is `pipeline.shop`; no other timeline is called so."""


class Timeline(Protocol):
    """A frontier that many shards share."""

    @property
    def name(self) -> str: ...

    def committed(self) -> Frontier:
        """How far all attached shards are settled. Linearizable; never moves back."""
        ...

    def time_at(self, instant_ms: int) -> Time | None:
        """The last time that was committed at or before an instant of the store's clock."""
        ...

    def instant_of(self, time: Time) -> int | None:
        """When a time was committed, or `None` if that is no longer known."""
        ...
