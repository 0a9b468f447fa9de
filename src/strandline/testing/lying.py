"""A replica that computes something else whenever its peers were faster: it must be told.

Who is first may not be contradicted by anybody, so it lies only about what is answered:
another input, another change, or rows in a shard that nobody touched. Rows of the last kind are
sent, if ever, while peers commit: nothing in the shard would stop them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import ReplayDivergedError
from strandline.journal.log import Journal
from strandline.journal.record import Amend
from strandline.model.digest import Digest
from strandline.parts.consolidate import as_updates
from strandline.pipeline.compute import Computed, Delta
from strandline.pipeline.meaning import updates_digest
from strandline.pipeline.replica import Replica
from strandline.testing.pipelines import SETTINGS, SWITCHED, rig_of, switched
from strandline.testing.roles import TOLERATED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.pipeline.compute import Computer, Work
    from strandline.testing.pipelines import Shop
    from strandline.testing.roles import Role
    from strandline.testing.world import Host
    from strandline.views.program import Program


def liar(shop: Shop) -> Role:
    """Runs a replica that lies, while faults last."""

    def run(process: Host) -> None:
        lying = _Lying(shop, process)
        while process.running():
            try:
                lying.step()
            except TOLERATED as error:
                process.world.sim.sometimes(type(error).__name__)
            process.sleep(20)
        lying.replica.close()

    return run


class _Lying:
    """One replica that lies, and whether it was told."""

    def __init__(self, shop: Shop, process: Host) -> None:
        self._shop = shop
        self._process = process
        self._start()

    def _start(self) -> None:
        rig = rig_of(self._shop, self._process.store, SETTINGS)
        self._computer = LyingComputer(self._process, rig.computer, rig.journal.pipeline)
        self.replica = Replica(replace(rig, computer=self._computer))
        self._program = rig.program.hash

    def step(self) -> None:
        self._computer.lie = ""
        try:
            self.replica.step()
        except ReplayDivergedError:
            self._process.world.sim.sometimes(f"a liar was told: {self._computer.lie}")
        except SWITCHED as error:
            if not switched(error, self.replica, self._program):
                raise
            self.replica.close()
            self._process.sleep(100)
            self._start()
        except Exception:
            self.replica.renew()
            raise
        else:
            if self._computer.lie and not self._amended():
                self._shop.wrong.append(
                    f"a replica computed {self._computer.lie}, and was not told"
                )

    def _amended(self) -> bool:
        """Whether it computed what nobody asks for any more: then nobody compares it, either."""
        return any(
            isinstance(record, Amend) and record.t == self._computer.at
            for _, record in self._computer.journal.records()
        )


class LyingComputer:
    """Waits for its peers, and then says something that they did not."""

    def __init__(self, process: Host, truth: Computer, pipeline: str) -> None:
        self._process = process
        self._truth = truth
        self.journal = Journal(process.store.env, pipeline)
        self.versions = truth.versions
        self.lie = ""
        self.at = -1

    def view_columns(self, program: Program) -> Mapping[str, pa.Schema]:
        return self._truth.view_columns(program)

    def compute(self, work: Work) -> Computed:
        self.at = work.time
        found = self._truth.compute(work)
        wrong, chance = Digest(1, 2, 3), self._process.random.random()
        if self._waited(work, answered=chance < 0.6):
            if chance < 0.3:
                return self._more(work, found)
            self.lie = "another change"
            orders = replace(found.deltas["orders"], digest=wrong)
            inputs = dict.fromkeys(found.inputs, wrong)
            return Computed(inputs, {**found.deltas, "orders": orders})
        if not self._committed(work):
            return found
        if not found.inputs or chance < 0.8:
            return self._more(work, found)
        self.lie = "another input"
        return Computed(dict.fromkeys(found.inputs, wrong), found.deltas)

    def _more(self, work: Work, found: Computed) -> Computed:
        self.lie = "rows in a shard that nobody touched"
        return Computed(found.inputs, {**found.deltas, **self._extra(work)})

    def _waited(self, work: Work, *, answered: bool) -> bool:
        """Wait until peers have committed, or at least answered; whether it is that."""
        for _ in range(60):
            if self._committed(work):
                return False
            if answered and self._answered(work):
                return True
            self._process.sleep(3 if answered else 30)
        return False

    def _committed(self, work: Work) -> bool:
        return self.journal.refresh().committed.settled(work.time)

    def _answered(self, work: Work) -> bool:
        sealed = self.journal.refresh().sealed
        return sealed is not None and sealed.t == work.time and sealed.answer is not None

    def _extra(self, work: Work) -> dict[str, Delta]:
        schema = self._process.store.shard(work.shards["orders_errors"]).state().schema
        row = {"id": b"%d" % work.time, "partition": "0", "offset": 0, "reason": "", "value": b""}
        made = pa.Table.from_pylist([row], schema.arrow())
        updates = as_updates(made, made.column_names)
        return {"orders_errors": Delta(updates_digest(updates, schema), updates)}
