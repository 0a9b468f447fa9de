"""What a chaos run leaves behind: nothing that nobody needs, and nothing missing.

Looked at when all processes have ended, one way or the other.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from tests.chaos.content import SHARDS
from tests.chaos.journal import now
from tests.chaos.life import SETTINGS

from strandline.handles.shard import Shard
from strandline.handles.store import Store
from strandline.model.ids import SeqNo
from strandline.shard.machine import Machine
from strandline.shard.pulse import KEY_PREFIX
from strandline.shard.settings import Settings
from strandline.upkeep.findings import Severity
from strandline.upkeep.fsck import fsck

TENDING = replace(SETTINGS, lease_ms=Settings().lease_ms)
_RECORDS_MAX = 3 * SETTINGS.manifest_every


@dataclass(slots=True)
class Remains:
    """How much is left, and what should not be."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def tend(store: Store, deadline_s: float) -> bool:
    """Upkeep, until the dead are buried and nothing is left to do; `False` if time is up."""
    end = now() + int(deadline_s * 1e9)
    machines = [store.machine(name) for name in SHARDS]
    busy = True
    while busy and now() < end:
        busy = False
        for machine in machines:
            busy |= store.upkeep.run_once(machine)
            store.upkeep.collector.sweep(machine, delete=True)
            busy |= bool(_leases_of_others(store, machine))
        time.sleep(0.2)
    return not busy


def look_at_remains(store: Store) -> Remains:
    """Everything that is in the store, after it was tended."""
    found = Remains()
    for name in SHARDS:
        _look_at(store, store.shard(name), found)
    found.counts["pulses"] = len(store.env.consensus.keys(KEY_PREFIX))
    found.counts["leftover files"] = len(list(store.env.blob.leftovers()))
    report = fsck(store.env, store.leases, deep=True)
    found.counts["objects"] = report.objects
    found.wrong += [
        f"fsck: {finding}" for finding in report.findings if finding.severity is not Severity.NOTE
    ]
    return found


def _look_at(store: Store, shard: Shard, found: Remains) -> None:
    name, state = shard.name, shard.state()
    garbage = sum(len(entry.keys) for entry in state.garbage)
    orphans = len(store.upkeep.collector.sweep(shard.machine, delete=False))
    records = len(store.env.consensus.scan(f"shard/{name}", SeqNo(0), 100_000))
    found.counts += Counter({"garbage": garbage, "orphans": orphans, "records": records})
    if garbage or orphans:
        found.wrong.append(f"{name} has {garbage} objects as garbage and {orphans} orphans left")
    if records > _RECORDS_MAX:
        found.wrong.append(f"{name} has {records} records left")
    for lease in _leases_of_others(store, shard.machine):
        found.wrong.append(f"{name} still lists {lease}")


def _leases_of_others(store: Store, machine: Machine) -> list[str]:
    state = machine.refresh()
    mine = {heart.pulse_id for heart in store.leases._hearts.values()}
    entries = {**state.readers, **state.writers}
    return [name for name, entry in entries.items() if entry.pulse not in mine]
