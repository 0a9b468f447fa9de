"""All leases of one process: taken, moved and given back without the caller's help.

One background task per process looks after every reader: it moves holds forward, drops what
was forgotten, and buries the dead, once per tick (a quarter of a lease) or when asked. The
heartbeat itself is the `Heart`'s, which the GIL can't starve. What is held is decided in
`holds`; this file only carries it out.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from strandline.errors import SinceError, StrandlineError
from strandline.shard import command as c
from strandline.shard.holds import ReadHolds
from strandline.shard.lease import ReadLease, WriteLease
from strandline.shard.machine import raise_refusal
from strandline.shard.pulses import BEATS_PER_LEASE, Undertaker
from strandline.shard.term import TermHold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.shard.env import Env
    from strandline.shard.lease import Heart
    from strandline.shard.machine import Machine
    from strandline.shard.state import State


_log = logging.getLogger(__name__)

_EVERYBODY_TICKS = 16
"""Once in so many ticks all pulses are looked at, not only those that shards refer to."""


class Leases:
    """The leases of one process on one store."""

    def __init__(self, env: Env, new_heart: Callable[[int], Heart]) -> None:
        self.env = env
        self.changed = env.tasks.condition()
        self.forgotten: list[tuple[Machine, c.Release]] = []
        """What nobody will give back any more; `list.append` needs no lock."""
        self.undertaker = Undertaker(env.consensus, env.clock)
        self._new_heart = new_heart
        self._hearts: dict[int, Heart] = {}
        self._hearts_guard = env.tasks.condition()
        self._readers: dict[str, tuple[Machine, ReadHolds]] = {}
        # Weak, so that a handle nobody holds any more is noticed and given back.
        self._live: WeakValueDictionary[str, ReadLease] = WeakValueDictionary()
        self._own: dict[str, ReadLease] = {}
        self._syncing: set[str] = set()
        self._ticks = 0
        self._stop = env.tasks.event()
        self._task = env.tasks.start("leases", self._run)

    def reader(
        self,
        machine: Machine,
        *,
        since: int | None,
        purpose: str = "",
        lease_ms: int | None = None,
        heart: Heart | None = None,
    ) -> ReadLease:
        """Register a reader; `since=None` holds only objects back, never history."""
        self.env.home.check()
        heart = heart or self._heart(lease_ms)
        reader_id = f"r{self.env.random.token()}"
        release = c.Release(readers=(reader_id,))
        command = c.RegisterReader(reader_id, heart.pulse_id, since, purpose)
        state = self._register(machine, command, release)
        entry = state.readers[reader_id]
        holds = ReadHolds(since=entry.since, seqno=entry.seqno)
        holds.observe(state.seqno.number)
        lease = ReadLease(self, machine, heart, reader_id, holds)
        with self.changed:
            self._readers[reader_id] = (machine, holds)
            self._live[reader_id] = lease
        self.env.metrics.set("readers", len(self._readers))
        return lease

    def reader_from(
        self, machine: Machine, *, since: int | None, lease_ms: int | None, purpose: str
    ) -> ReadLease:
        """Register a reader that holds history from `since` on, or from where it begins."""
        if since is not None:
            return self.reader(machine, since=since, lease_ms=lease_ms, purpose=purpose)
        while True:
            oldest = machine.refresh().readable_from()
            try:
                return self.reader(machine, since=oldest, lease_ms=lease_ms, purpose=purpose)
            except SinceError:
                continue

    def term_reader(
        self, machine: Machine, *, since: int | None, term_ms: int, purpose: str = ""
    ) -> TermHold:
        """Register a reader for a fixed time, which needs neither this process nor any other."""
        now_ms = self.env.patient(self.env.consensus.now_ms, shard=machine.name)
        reader_id = f"r{self.env.random.token()}"
        command = c.RegisterTerm(reader_id, since, now_ms, term_ms, purpose)
        state = self._register(machine, command, c.Release(readers=(reader_id,)))
        entry = state.readers[reader_id]
        return TermHold(reader_id, entry.since or 0, entry.seqno, entry.until_ms or 0)

    def own_reader(self, machine: Machine) -> ReadLease:
        """The process's own reader of a shard, for snapshots of settled times."""
        lease = self._own.get(machine.name)
        if lease is not None and lease.shard_id != machine.state.id:
            lease = None  # The shard of that name is another one by now.
        if lease is None or lease.closed or lease.lost or lease.heart.lost:
            lease = self.reader(machine, since=None, purpose="snapshots of this process")
            previous = self._own.get(machine.name)
            self._own[machine.name] = lease
            if previous is not None and previous.lost:
                previous.closed = True
        return lease

    def writer(self, machine: Machine, *, purpose: str = "") -> WriteLease:
        self.env.home.check()
        heart = self._heart(None)
        writer_id = f"w{self.env.random.token()}"
        release = c.Release(writers=(writer_id,))
        self._register(machine, c.RegisterWriter(writer_id, heart.pulse_id, purpose), release)
        return WriteLease(self, machine, heart, writer_id)

    def release(self, lease: ReadLease) -> None:
        if not self.env.home.is_here():
            return
        with self.changed:
            self._readers.pop(lease.id, None)
        self._give_back(lease.machine, c.Release(readers=(lease.id,)))
        self.env.metrics.set("readers", len(self._readers))

    def release_writer(self, lease: WriteLease) -> None:
        if self.env.home.is_here():
            self._give_back(lease.machine, c.Release(writers=(lease.id,)))

    def sync(self, machine: Machine) -> None:
        """Commit what the readers of one shard could let go of; callers join each other."""
        self.env.home.check()
        with self.changed:
            while machine.name in self._syncing:
                self.changed.wait()
            self._syncing.add(machine.name)
        try:
            self._sync(machine)
        finally:
            with self.changed:
                self._syncing.discard(machine.name)
                self.changed.notify_all()

    def bury(self, machine: Machine) -> None:
        """Drop the readers and writers of a shard whose processes are gone, or terms ended."""
        self.env.home.check()
        self._expire(machine, self.undertaker.over(_pulses(machine.state) - self.pulses()))

    def close(self) -> None:
        """Give everything back, then let the hearts stop."""
        if not self.env.home.is_here():
            return
        self._stop.set()
        self._task.join()
        with self.changed:
            readers = list(self._readers.items())
            self._readers.clear()
        for reader_id, (machine, _) in readers:
            self._try_to_give_back(machine, c.Release(readers=(reader_id,)))
        for lease in self._own.values():
            lease.closed = True
        # What could not be given back ends with its pulse.
        for heart in self._hearts.values():
            heart.stop()

    def _register(
        self,
        machine: Machine,
        command: c.RegisterReader | c.RegisterTerm | c.RegisterWriter,
        release: c.Release,
    ) -> State:
        """Register, and see to it that a registration of unknown fate does not stay."""
        try:
            return machine.demand(command)
        except StrandlineError:
            self.forgotten.append((machine, release))
            raise

    def pulses(self) -> set[str]:
        """The pulses of this process."""
        return {heart.pulse_id for heart in list(self._hearts.values()) if not heart.lost}

    def _expire(self, machine: Machine, over: frozenset[str]) -> None:
        state = machine.state
        dead = over & _pulses(state)
        # Asked before the commit, and the store's clock is the only one that counts (R26).
        terms = state.terms()
        now_ms = self.env.patient(self.env.consensus.now_ms, shard=machine.name) if terms else 0
        if dead or any(until_ms <= now_ms for until_ms in terms.values()):
            before = len(state.readers) + len(state.writers)
            _, after = machine.commit(c.Expire(dead, now_ms))
            gone = before - len(after.readers) - len(after.writers)
            self.env.metrics.add("leases_expired", machine.name, max(0, gone))

    def _heart(self, lease_ms: int | None) -> Heart:
        """One heart per lease length; a lost one is replaced for those who come later."""
        length = self.env.settings.lease_ms if lease_ms is None else lease_ms
        with self._hearts_guard:
            heart = self._hearts.get(length)
            if heart is None or heart.lost:
                heart = self._new_heart(length)
                self._hearts[length] = heart
            return heart

    def _sync(self, machine: Machine) -> None:
        state = machine.refresh()
        garbage = [entry.seqno for entry in state.garbage]
        with self.changed:
            mine = {
                name: holds
                for name, (at, holds) in self._readers.items()
                if at is machine and self._beats(name)
            }
            due: dict[str, tuple[int | None, int]] = {}
            for name, holds in mine.items():
                holds.observe(state.seqno.number)
                holds.settle_forgotten()
                wanted = holds.due(garbage)
                if wanted is not None:
                    due[name] = wanted
        while due:
            outcome, _ = machine.commit(c.Downgrade(due))
            if isinstance(outcome, c.Lost):
                for name in outcome.names:
                    self._lose(name)
                    due.pop(name, None)
                continue
            raise_refusal(machine.name, outcome)
            with self.changed:
                for name, (since, seqno) in due.items():
                    mine[name].applied(since, seqno)
            self.env.metrics.add("downgrades", machine.name, len(due))
            return

    def _beats(self, reader_id: str) -> bool:
        """Whether a reader is still ours to move.

        In a forked child none that it inherited is: what the parent has pinned since is not
        known there, and moving its holds would free objects that it is about to read.
        """
        lease = self._live.get(reader_id)
        return lease is not None and not lease.heart.lost

    def _lose(self, reader_id: str) -> None:
        with self.changed:
            self._readers.pop(reader_id, None)
        lease = self._live.get(reader_id)
        if lease is not None:
            lease.mark_lost("the shard no longer lists it")

    def _run(self) -> None:
        self._stop.wait(int(self.env.random.uniform(0, self._tick_ms())))
        while not self._stop.is_set():
            self._guarded("", self._tick)
            self._stop.wait(self._tick_ms())

    def _tick_ms(self) -> int:
        """A quarter of the shortest lease that is out."""
        shortest = min(list(self._hearts), default=self.env.settings.lease_ms)
        return max(1, shortest // BEATS_PER_LEASE)

    def _tick(self) -> None:
        """One round over all shards; trouble with one of them does not keep the others."""
        for heart in list(self._hearts.values()):
            self._guarded("", heart.tend)
        self._guarded("", self._drop_forgotten)
        with self.changed:
            machines = {machine.name: machine for machine, _ in self._readers.values()}
        over = self._over(machines.values())
        for name in sorted(machines):
            self._guarded(name, partial(self.sync, machines[name]))
            self._guarded(name, partial(self._expire, machines[name], over))

    def _over(self, machines: Iterable[Machine]) -> frozenset[str]:
        """The pulses that are over, each looked at once whatever the number of shards.

        Now and then all pulses there are: a process may die before any shard refers to it.
        """
        self._ticks += 1
        pulses = {pulse for machine in machines for pulse in _pulses(machine.state)}
        if self._ticks % _EVERYBODY_TICKS == 0:
            pulses |= self.undertaker.living()
        return self.undertaker.over(pulses - self.pulses())

    def _guarded(self, name: str, step: Callable[[], None]) -> None:
        """Carry out a step of the background task, which nothing may end: all leases need it."""
        try:
            step()
        except StrandlineError:
            self.env.metrics.add("retries", name)
        except Exception:  # noqa: BLE001 - a bug in one step must not end all others
            self.env.metrics.add("lease_errors", name)
            _log.exception("looking after the leases of %s failed", name or "this process")

    def _drop_forgotten(self) -> None:
        """What can't be given back now is forgotten again, and tried at the next tick."""
        # The list stays the same one: a finaliser may have it in hand, about to add to it.
        for _ in range(len(self.forgotten)):
            machine, release = self.forgotten.pop(0)
            with self.changed:
                for reader_id in release.readers:
                    self._readers.pop(reader_id, None)
            self._try_to_give_back(machine, release)

    def _try_to_give_back(self, machine: Machine, release: c.Release) -> None:
        try:
            self._give_back(machine, release)
        except StrandlineError:
            self.env.metrics.add("retries", machine.name)

    def _give_back(self, machine: Machine, release: c.Release) -> None:
        try:
            machine.commit(release)
        except StrandlineError:
            self.forgotten.append((machine, release))
            raise


def _pulses(state: State) -> set[str]:
    """The pulses that the readers and writers of a shard depend on."""
    return set(state.heartbeats().values())
