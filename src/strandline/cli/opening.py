"""Opens stores and shards for one verb, and says what to try next when that fails.

Only `run` and `serve` create a store and run upkeep in the background: looking at a store leaves it
as it was, but for the lease of a verb that reads rows.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from strandline.assembly import open_store
from strandline.cli.advice import next_step
from strandline.cli.escape import visible
from strandline.cli.facts import Sight
from strandline.errors import NotFoundError, StrandlineError
from strandline.shard.frontiers import aged_of, visible as visible_upper
from strandline.store.locate import Kind, locate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.handles.store import Store
    from strandline.shard.machine import Machine


@contextmanager
def opened(
    url: str, shard: str | None = None, *, listing: str = "shards", create: bool = False
) -> Iterator[Store]:
    """The store for one verb. An error on the way is given a note: the next command."""
    found = False
    try:
        # A verb that opens memory would look at a store of its own, which is always empty.
        if locate(url).kind is Kind.MEMORY:
            raise NotFoundError("memory:// is a store of one process: give the folder of a store")
        with open_store(url, create=create, upkeep=create) as store:
            found = True
            yield store
    except StrandlineError as error:
        error.add_note(next_step(error, visible(url), shard, found=found, listing=listing))
        raise


def sight_of(machine: Machine) -> Sight:
    """What is to be seen of a shard now: the frontier first, then a state that has its rows."""
    upper, state = visible_upper(machine)
    env = machine.env
    settled_ms: int | None = None
    last = upper.last()
    if state.timeline is not None and last is not None:
        settled_ms = env.timelines(state.timeline).instant_of(last)
    elif state.moments:
        settled_ms = state.moments[-1].instant_ms
    elif state.moment_chunks:
        settled_ms = state.moment_chunks[-1].last_instant_ms
    now_ms = env.patient(env.consensus.now_ms)
    return Sight(state, upper, now_ms, settled_ms, aged_of(env, state, now_ms))
