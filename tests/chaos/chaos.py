"""One chaos run: real processes on a folder, something is killed in every cycle, all is checked.

    start      a store, a witness, and fourteen processes that write, read and tend it
    a cycle    wait a random moment; kill, or rob, or pause; start again what is dead; look
    checks     every few cycles, and at the end: the verdict over all journals
    the end    stop all, let leases run out, tend the store; then nothing may be left over

The same seed makes the same choices; when they strike is up to the machine.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.content import digest_of_table
from tests.chaos.crew import Crew, Member
from tests.chaos.journal import now
from tests.chaos.remains import TENDING, look_at_remains, tend
from tests.chaos.truth import Witness
from tests.chaos.verdict import account, judge

import strandline
from strandline.errors import SinceError
from strandline.shard.pulse import KEY_PREFIX, decode_pulse, is_over, slot_of

SEED = 20_260_301
LEASE_MS = 1500
HUNG_S = 60
"""A process that writes nothing for so long hangs; the longest pause of another is 4.5 s."""
BURIED_S = 15
"""When upkeep has been at work for so long, the leases of the dead are gone: ten leases."""
CHECK_EVERY = 40
EVERYTHING_EVERY = 40
"""In so many cycles, one kills all processes at once."""
AT_WORK = 8
"""A process whose journal has so many lines is past its start."""

ROLES = {
    "appender": 3,
    "racer": 2,
    "replica": 2,
    "reader": 2,
    "subscriber": 2,
    "opener": 1,
    "compactor": 1,
    "collector": 1,
}

KINDS = {
    "process": 40,
    "process and helper": 30,
    "helper": 12,
    "pause": 6,
    "pause with helper": 12,
}
"""What happens in a cycle, and how often of a hundred. A pause comes with a kill."""


@dataclass(slots=True)
class Outcome:
    """What a run did, and what was wrong."""

    cycles: int = 0
    done: Counter[str] = field(default_factory=Counter)
    """Kills and pauses by kind."""
    counts: Counter[str] = field(default_factory=Counter)
    """Lines of the journals by what they are about."""
    unanswered: int = 0
    lives: int = 0
    lost_alone: int = 0
    """Leases lost by processes that nobody robbed: safe, but not meant to happen."""
    phases: dict[str, float] = field(default_factory=dict)
    """How many seconds each phase took."""
    ends: dict[str, int] = field(default_factory=dict)
    duration_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return sum(count for kind, count in self.done.items() if "pause" not in kind)

    def facts(self) -> dict[str, float]:
        """All of it, in the order in which people want to see it."""
        counts = self.counts
        return {
            "cycles": self.cycles,
            "kills": self.kills,
            **{f"  {kind}": count for kind, count in sorted(self.done.items())},
            "processes started": self.lives,
            "appends acknowledged": counts["ack"],
            "appends unanswered": self.unanswered,
            "races lost": counts["mismatch"],
            "snapshots read": counts["read"],
            "subscriptions": counts["subscribed"],
            "rounds of upkeep": counts["tended"],
            "leases lost": counts["lost"],
            "  without being robbed": self.lost_alone,
            **{f"left: {what}": count for what, count in self.ends.items()},
            **{f"seconds: {what}": round(spent, 1) for what, spent in self.phases.items()},
            "seconds": round(self.duration_s, 1),
            "violations": len(self.violations),
        }


class Chaos:
    """A run in a folder of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._url = str(folder / "store")
        journals = folder / "journals"
        journals.mkdir(parents=True)
        self.outcome = Outcome()
        self._witness = Witness(self._url)
        self._crew = Crew(self._url, journals, seed, LEASE_MS)
        self._dead_leases: dict[str, int] = {}
        self._judged: set[str] = set()
        self._doing, self._doing_ns = "start", now()

    def run(self, cycles: int) -> Outcome:
        began = now()
        try:
            self._phase("start")
            for role, count in ROLES.items():
                for number in range(count):
                    self._crew.start(role, f"{role}-{number}")
            self._until_all_work()
            self._phase("cycles")
            for number in range(1, cycles + 1):
                self._cycle(everything=number % EVERYTHING_EVERY == EVERYTHING_EVERY // 2)
                self.outcome.cycles = number
                if number % CHECK_EVERY == 0:
                    self._phase("checks")
                    self._judge()
                    self._phase("cycles")
            self._end()
        finally:
            self._crew.close()
            self._witness.store.close()
        self._phase("")
        self.outcome.duration_s = (now() - began) / 1e9
        self.outcome.lives = len(self._crew.lives)
        return self.outcome

    def _phase(self, name: str) -> None:
        """From now on, time is spent on this."""
        phases = self.outcome.phases
        phases[self._doing] = phases.get(self._doing, 0.0) + (now() - self._doing_ns) / 1e9
        self._doing, self._doing_ns = name, now()

    def _wrong(self, what: str) -> None:
        if what not in self._judged:
            self._judged.add(what)
            self.outcome.violations.append(f"cycle {self.outcome.cycles + 1}: {what}")

    # A cycle.

    def _until_all_work(self) -> None:
        end = now() + int(HUNG_S * 1e9)
        while now() < end:
            self._crew.look()
            if all(len(member.lines) > 2 for member in self._crew.current.values()):
                return
            self._witness.follow()
            time.sleep(0.05)
        self._wrong("not all processes began to work")

    def _cycle(self, *, everything: bool) -> None:
        victim = self._random.choice(list(self._crew.current.values()))
        if self._random.random() < 0.9:
            self._until_at_work(victim)
        self._wait(self._random.uniform(0.02, 0.7))
        if everything:
            self.outcome.done["everything"] += 1
            for member in list(self._crew.current.values()):
                self._kill(member, helpers=self._random.random() < 0.5)
        else:
            self._strike(victim)
        self._wait(self._random.choice((0.0, 0.0, 0.3)))
        self._crew.restart_dead()
        self._look()

    def _until_at_work(self, member: Member) -> None:
        """Most are killed at work, some while they open the store."""
        end = now() + 3_000_000_000
        while len(member.lines) < AT_WORK and member.alive() and now() < end:
            self._wait(0.05)
            member.look()

    def _wait(self, seconds: float) -> None:
        end = now() + int(seconds * 1e9)
        while True:
            self._crew.resume()
            self._witness.follow()
            left = (end - now()) / 1e9
            if left <= 0:
                return
            time.sleep(min(left, 0.05))

    def _strike(self, victim: Member) -> None:
        kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
        if victim.paused and kind.startswith("pause"):
            kind = "process and helper"
        self.outcome.done[kind] += 1
        match kind:
            case "process" | "process and helper":
                self._kill(victim, helpers=kind != "process")
            case "helper":
                if not self._crew.kill_helpers(victim):
                    self.outcome.done[kind] -= 1
                    self._instead(victim)
            case _:
                pause_ms = self._random.uniform(1.2, 3) * LEASE_MS
                self._crew.pause(victim, pause_ms, helpers=kind == "pause with helper")
                others = [each for each in self._crew.current.values() if each is not victim]
                self._instead(self._random.choice(others))

    def _instead(self, victim: Member) -> None:
        """Every cycle kills something."""
        self.outcome.done["process"] += 1
        self._kill(victim, helpers=False)

    def _kill(self, victim: Member, *, helpers: bool) -> None:
        self._crew.kill(victim, helpers=helpers, helpers_first=self._random.random() < 0.5)

    def _look(self) -> None:
        """Checks that cost little."""
        self._crew.look()
        for member in self._crew.current.values():
            quiet_s = (now() - member.moved_ns) / 1e9
            if quiet_s > HUNG_S and not member.paused:
                self._crew.show_stack(member)
                stack = member.errors.read_text(errors="replace")[-4000:]
                self._wrong(f"{member.name} {member.number} hangs for {quiet_s:.0f} s\n{stack}")
                self._kill(member, helpers=True)
        for member in self._crew.lives:
            if not member.alive() and not member.killed and not member.told:
                stack = member.errors.read_text(errors="replace")[-4000:]
                trace = next((line[3] for line in member.lines if line[0] == "error"), stack)
                self._wrong(f"{member.name} {member.number} ended by itself\n{trace}")
        self._look_at_leases()

    def _look_at_leases(self) -> None:
        consensus = self._witness.store.env.consensus
        tending_ns = min(map(_at_work_ns, self._crew.current.values()))
        listed: set[str] = set()
        for name, shard in self._witness.shards.items():
            state = shard.state()
            entries = {**state.readers, **state.writers}
            for lease, entry in entries.items():
                slot, _ = slot_of(entry.pulse)
                head = consensus.head(f"{KEY_PREFIX}{slot}")
                pulse = None if head is None else decode_pulse(slot, head.seqno, head.data)
                pid = 0 if pulse is None else int(pulse.owner.split()[-1])
                if is_over(entry.pulse, pulse) or pid in self._crew.died_ns:
                    listed.add(lease)
                    first = self._dead_leases.setdefault(lease, now())
                    if now() - max(first, tending_ns) > BURIED_S * 1e9:
                        self._wrong(f"{name}: {lease} of a dead process is still listed: {entry}")
        for lease in set(self._dead_leases) - listed:
            del self._dead_leases[lease]

    def _judge(self) -> None:
        """Everything that the journals say so far."""
        self._witness.catch_up()
        self._crew.look()
        accounts = account(self._lives())
        for what in [*judge(accounts, self._witness.settled), *self._witness.wrong]:
            self._wrong(what)
        self.outcome.counts = accounts.counts
        self.outcome.unanswered = sum(i.result.name == "UNKNOWN" for i in accounts.intents)

    def _lives(self) -> list[tuple[str, list]]:
        return [(f"{each.name} {each.number}", each.lines) for each in self._crew.lives]

    # The end.

    def _end(self) -> None:
        self._phase("stop")
        for member in self._crew.stop(HUNG_S):
            stack = member.errors.read_text(errors="replace")[-4000:]
            self._wrong(f"{member.name} {member.number} did not stop\n{stack}")
        self._look()
        self._phase("checks")
        self._judge()
        self._witness.close()
        self._read_again()
        self._witness.store.close()
        self._phase("tend")
        with strandline.open(self._url, settings=TENDING, upkeep=False) as store:
            if not tend(store, 4 * BURIED_S):
                self._wrong("upkeep came to no end")
            remains = look_at_remains(store)
        self.outcome.ends |= remains.counts
        for what in [*remains.wrong, *self._too_many(remains.counts)]:
            self._wrong(what)
        robbed = {f"{each.name} {each.number}" for each in self._crew.lives if each.robbed}
        self.outcome.lost_alone = sum(
            line[0] == "lost"
            for name, lines in self._lives()
            if name not in robbed
            for line in lines
        )

    def _too_many(self, counts: dict[str, int]) -> Iterator[str]:
        if counts["pulses"] > 3 * sum(ROLES.values()):
            yield f"{counts['pulses']} slots for pulses are in use"
        if counts["leftover files"] > len(self._crew.lives):
            yield f"{counts['leftover files']} broken writes are left"

    def _read_again(self) -> None:
        """Every answer that was ever given is given again, or is no longer readable."""
        asked = {
            (line[1], line[2]) for _, lines in self._lives() for line in lines if line[0] == "read"
        }
        again = 0
        for name, as_of in sorted(asked):
            try:
                with self._witness.shards[name].snapshot(as_of) as snapshot:
                    found = digest_of_table(snapshot.to_arrow())
            except SinceError:
                continue
            again += 1
            expected = self._witness.settled[name].as_of(as_of)
            if found != expected:
                self._wrong(f"{name} as of {as_of} is {found} at the end, not {expected}")
        self.outcome.ends["reads repeated"] = again


def _at_work_ns(member: Member) -> int:
    """Since when a process has looked after the store; now, if it has not."""
    begun = [line[1] for line in member.lines if line[0] == "opened"]
    if member.role not in {"compactor", "collector"} or not begun or member.paused:
        return now()
    return max(begun[0], member.resume_ns)
