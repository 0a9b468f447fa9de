"""Keeps shards small and quick, in the background or when asked.

A process looks after the shards that it writes: an append nudges. A shard at which a round found
nothing to do is left alone until the next append, but looked at now and then, because history
gets old by itself. Errors of one shard, also unforeseen ones, are counted and remembered, and
keep no other one from its round. What many processes do at once is safe, and wastes little: they
start at random moments and with different units, and who comes second finds out before it
deletes anything.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.errors import ConflictError, LeaseLostError, StrandlineError
from strandline.upkeep.rounds import Rounds, Wish
from strandline.upkeep.units import rows_pile_up

if TYPE_CHECKING:
    from strandline.model.tasks import Task
    from strandline.shard.cancel import Cancel
    from strandline.shard.env import Env
    from strandline.shard.leases import Leases
    from strandline.shard.machine import Machine
    from strandline.upkeep.collect import Collected, Collector
    from strandline.upkeep.compact import Report
    from strandline.upkeep.rounds import Carrier

_log = logging.getLogger(__name__)

_IDLE_PAUSES = 60
"""A shard at which there was nothing to do is looked at again after so many pauses."""
_BREATH_MS = 20
"""Between two rounds at least, however much there is to do: appends come first."""
_SWEEP_ROUNDS = 1000
"""Orphans are rare, and finding them lists every object: so it is done once in so many rounds."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the upkeep of one shard goes, in this process."""

    rounds: int = 0
    errors: int = 0
    last_error: str = ""
    """Empty if the last round went well."""


@dataclass(slots=True)
class _Tended:
    """A shard that this process looks after."""

    machine: Machine
    due_in: int = 0
    """Pauses until its next round."""
    sweep_in: int = _SWEEP_ROUNDS


class Upkeep:
    """The upkeep of one process. `start` runs it in the background; `run_once` is one round."""

    def __init__(self, env: Env, leases: Leases) -> None:
        self._env = env
        self._rounds = Rounds(env, leases)
        self._tended: dict[str, _Tended] = {}
        self._status: dict[str, Status] = {}
        self._guard = env.tasks.condition()
        self._stop = env.tasks.event()
        self._wake = env.tasks.event()
        self._task: Task | None = None

    @property
    def collector(self) -> Collector:
        return self._rounds.collector

    def start(self) -> None:
        """Run in the background until `stop`."""
        if self._task is None:
            self._stop.clear()
            self._task = self._env.tasks.start("upkeep", self._run)

    def stop(self) -> None:
        """Returns when the round that is under way has ended."""
        self._stop.set()
        self._wake.set()
        task, self._task = self._task, None
        if task is not None:
            task.join()

    def nudge(self, machine: Machine) -> None:
        """Somebody wrote to a shard: look after it soon, or at once if rows pile up in it.

        Costs nothing worth mentioning, because every append calls it.
        """
        tended = self._tended.get(machine.name)
        if tended is not None and tended.machine is machine:
            tended.due_in = 0
        else:
            with self._guard:
                self._tended[machine.name] = _Tended(machine)
        if rows_pile_up(machine.state, self._env.settings) and not self._wake.is_set():
            self._wake.set()

    def status(self) -> dict[str, Status]:
        """How it goes, by shard."""
        with self._guard:
            return dict(self._status)

    def run_once(self, machine: Machine) -> bool:
        """One round of one shard, now; whether anything was done."""
        return self._rounds.run_once(machine)

    def compact(
        self,
        machine: Machine,
        *,
        full: bool = False,
        report: Report | None = None,
        cancel: Cancel | None = None,
        carrier: Carrier | None = None,
        slots: int = 0,
    ) -> Collected:
        """Merge all that is due, or with `full` all there is, and delete what that frees.

        Units are carried out here, or by the `carrier`, which has so many `slots` for them.
        """
        wish = Wish(full, report, cancel, carrier=carrier, slots=slots)
        return self._rounds.compact(machine, wish)

    def _run(self) -> None:
        pause_ms = self._env.settings.upkeep_ms
        self._wake.wait(int(self._env.random.uniform(0, pause_ms)))
        while not self._stop.is_set():
            for tended in self._due():
                if self._stop.is_set():
                    return
                tended.due_in = _IDLE_PAUSES
                if self._tend(tended):
                    tended.due_in = 0
            self._stop.wait(_BREATH_MS)
            self._wake.wait(pause_ms)
            self._wake.clear()

    def _due(self) -> list[_Tended]:
        with self._guard:
            tended = list(self._tended.values())
        due = [each for each in tended if each.due_in <= 0]
        for each in tended:
            each.due_in -= 1
        return due

    def _tend(self, tended: _Tended) -> bool:
        """One round; whether another one is worth it soon."""
        name = tended.machine.name
        try:
            busy = self._rounds.run_once(tended.machine)
            tended.sweep_in -= 1
            if tended.sweep_in <= 0:
                tended.sweep_in = _SWEEP_ROUNDS
                self.collector.sweep(tended.machine, delete=True)
        except (ConflictError, LeaseLostError) as error:
            _log.info("upkeep of shard %s starts again: %s", name, error)
            busy = True
        except Exception as error:  # noqa: BLE001 - even a defect of ours must not end all upkeep
            self._remember(name, error)
            return False
        self._remember(name, None)
        return busy

    def _remember(self, name: str, error: Exception | None) -> None:
        with self._guard:
            old = self._status.get(name, Status())
            self._status[name] = replace(
                old,
                rounds=old.rounds + 1,
                errors=old.errors + (error is not None),
                last_error="" if error is None else _told(error),
            )
        if error is not None:
            self._env.metrics.add("upkeep_errors", name)
            _log.warning("upkeep of shard %s failed: %s", name, _told(error))


def _told(error: Exception) -> str:
    """Ours say what to do; of others the kind matters more than the words."""
    return str(error) if isinstance(error, StrandlineError) else f"{type(error).__name__}: {error}"
