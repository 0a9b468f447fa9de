"""One output of an ingest: a shard, what is held for it, and how far it has come.

    look ─► decide (pure) ─► drop what is LATE ─► settle what is DUE ─► keep what is EARLY

Its upper is read anew in every turn. Whoever moved it, by however much, the answer is the same:
nothing here remembers where the shard was, so there is nothing to start again for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import FencedError, SinceError
from strandline.ingest.decide import decide
from strandline.model.frontier import Frontier

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.handles.shard import Shard
    from strandline.ingest.decide import Plan
    from strandline.ingest.road import Road
    from strandline.ingest.stash import Stash


class Target:
    """A shard that commands are settled in."""

    def __init__(self, shard: Shard, road: Road, stash: Stash, *, limit_bytes: int) -> None:
        self.shard = shard
        self.stash = stash
        self.road = road
        self.done = Frontier(0)
        """Before it, this ingest has nothing left to do: it is settled, and compared if asked."""
        self.upper = Frontier(0)
        """How far the shard was settled when it was last looked at."""
        self._limit_bytes = limit_bytes
        self._metrics = shard.machine.env.metrics

    def look(self, *, audits: bool, epoch: int | None) -> Frontier:
        """See how far the shard is settled; without audits that much is done.

        Who writes, at an epoch that is older than the shard's, learns it here, busy or not.
        """
        self.upper = self._seen()
        newest = self.shard.machine.state.epoch
        if epoch is not None and epoch < newest:
            raise FencedError(
                f"shard {self.shard.name} belongs to epoch {newest}, this ingest is of {epoch}"
            )
        if not audits:
            self.done = self.upper
        return self.done

    def skip(self, since: Frontier) -> None:
        """Times before `since` can't be told apart by our input: there is nothing to compare."""
        if self.done < min(since, self.upper):
            self._metrics.add("ingest_unverified", self.shard.name)
            self.done = min(since, self.upper)

    def add(self, commands: pa.Table | None) -> None:
        if commands is None or not commands.num_rows:
            return
        self._metrics.add("ingest_commands", self.shard.name, by=commands.num_rows)
        self.stash.add(commands)

    def relieve(self) -> None:
        """Spill what is too much for memory."""
        spilled = self.stash.relieve()
        if spilled:
            self._metrics.add("ingest_spilled_bytes", self.shard.name, by=spilled)

    def drop(self) -> None:
        late = self.stash.drop(self.done)
        if late:
            self._metrics.add("ingest_dropped", self.shard.name, by=late)

    def audit(self, frontier: Frontier) -> bool:
        """Compare what others have settled with our own answer; whether there was something."""
        plan = self._plan(self.done, min(self.upper, frontier))
        if not plan.settles:
            return False
        try:
            self.done = self.road.compare(self._due(plan), _start(plan), plan.end)
        except SinceError:
            # It was merged before we came: nothing to compare with, and nothing to write.
            self._metrics.add("ingest_unverified", self.shard.name)
            self.done = self.upper
        return True

    def settle(self, frontier: Frontier) -> bool:
        """Settle what is due; whether the shard has moved."""
        plan = self._plan(self.upper, frontier)
        if not plan.settles:
            return False
        settled = self.road.settle(self._due(plan), _start(plan), plan.end)
        self._metrics.add("ingest_won" if settled.won else "ingest_lost", self.shard.name)
        moved = self.upper < settled.upper
        self.upper = max(self.upper, settled.upper)
        # Further than this attempt went, nothing was computed that could have been compared.
        self.done = min(plan.end, self.upper)
        return moved

    def close(self) -> None:
        self.road.close()
        self.stash.clear()

    def _seen(self) -> Frontier:
        return self.shard.upper

    def _plan(self, upper: Frontier, frontier: Frontier) -> Plan:
        return decide(self.stash.sizes(), upper, frontier, self._limit_bytes)

    def _due(self, plan: Plan) -> pa.Table | None:
        return self.stash.take(_start(plan), plan.end) if plan.due else None


def _start(plan: Plan) -> int:
    """A plan that settles something starts at a time: after all times there is none."""
    return 0 if plan.upper.time is None else plan.upper.time
