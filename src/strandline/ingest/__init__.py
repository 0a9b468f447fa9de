"""Upserts without a pipeline: commands with times become updates of a shard, by any number of us.

bindings   shell  the binding shard: which offsets belong to which time, agreed on by all
decide     pure   LATE, DUE or EARLY: what becomes of commands
feed       shell  where commands come from, and the feed that takes its times from bindings
health     pure   how an ingest is, and why
rejects    pure   commands that are no rows, and what the error collection makes of them
road       shell  how commands become updates: the port, and the road of Arrow alone
spill      shell  a temporary folder for what does not fit into memory
stash      shell  commands that wait for their time, bounded in memory, spilled beyond
target     shell  one output: a shard, what is held for it, how far it has come
timetable  pure   which time each offset of a source has
upserter   shell  one replica of an ingest, turn by turn

The names below are public; `__all__` follows from the table, and a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.exports import lazy as _lazy

if TYPE_CHECKING:
    from strandline.ingest.bindings import Bindings as Bindings
    from strandline.ingest.feed import (
        BoundFeed as BoundFeed,
        Feed as Feed,
        Polled as Polled,
        Tap as Tap,
        Want as Want,
    )
    from strandline.ingest.health import (
        Health as Health,
        Status as Status,
    )
    from strandline.ingest.upserter import (
        Options as Options,
        Upserter as Upserter,
    )

_HOMES = {
    "Bindings": "strandline.ingest.bindings",
    "BoundFeed": "strandline.ingest.feed",
    "Feed": "strandline.ingest.feed",
    "Health": "strandline.ingest.health",
    "Options": "strandline.ingest.upserter",
    "Polled": "strandline.ingest.feed",
    "Status": "strandline.ingest.health",
    "Tap": "strandline.ingest.feed",
    "Upserter": "strandline.ingest.upserter",
    "Want": "strandline.ingest.feed",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy(__name__, _HOMES)
