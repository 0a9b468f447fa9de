"""The replica of a pipeline in this process: made when it is first needed, run here or beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import StalledError, UsageError
from strandline.journal.next import Want
from strandline.pipeline.attendant import Attendant
from strandline.pipeline.auditor import Auditor
from strandline.pipeline.away import insist
from strandline.pipeline.presence import Presence
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.runner import Runner
from strandline.pipeline.said import Said

if TYPE_CHECKING:
    from strandline.model.tasks import Task
    from strandline.pipeline.means import Means
    from strandline.pipeline.rig import Rig
    from strandline.pipeline.runner import Status
    from strandline.shard.env import Env


class Life:
    """At most one runner at a time, over one replica; another program has another one, and so has
    another epoch where the program is the one on record."""

    def __init__(self, env: Env, pipeline: str, means: Means) -> None:
        self._env = env
        self._pipeline = pipeline
        self._means = means
        self._epoch: int | None = None
        self._made_of: tuple[Rig | None, int | None] = (None, None)
        self._replicas: list[Replica | Auditor] = []
        """The last is the one in use; another task may be at a step with one before it."""
        self._runner: Runner | None = None
        self._task: Task | None = None
        self._turn = env.tasks.condition()
        """Of those who step: a runner, and whoever carries out what it asked for by itself."""

    @property
    def runs(self) -> bool:
        """Whether a runner runs in this process."""
        return self._runner is not None

    def follow(self, epoch: int) -> None:
        """The program on record is of this epoch, and nobody runs here: a replica that joined an
        earlier one is fenced, and takes no further step. Who only reads is never fenced."""
        if not self._means.read_only:
            self._epoch = epoch

    def run(self, rig: Rig, *, until_idle: bool = False, transactions: int | None = None) -> Status:
        """Run until it ends; what ended it is raised, unless that was a stop. Who is to end by
        itself does not wait for a source that may never come."""
        if until_idle or transactions is not None:
            insist(rig.sources.values())
        runner = self._new_runner(rig)
        try:
            with self._attended(runner):
                self._open_desks(rig)
                status = runner.run(until_idle=until_idle, transactions=transactions)
        finally:
            self._close_desks(rig)
            self._runner = None
        if runner.error is not None:
            raise runner.error
        return status

    def start(self, rig: Rig, *, until_idle: bool = False, transactions: int | None = None) -> None:
        if until_idle or transactions is not None:
            insist(rig.sources.values())
        runner = self._new_runner(rig)
        try:
            attendant = self._attended(runner)
        except BaseException:
            self._runner = None
            raise
        self._open_desks(rig)

        def beside() -> None:
            try:
                with attendant:
                    runner.run(until_idle=until_idle, transactions=transactions)
            except BaseException:  # noqa: BLE001 - a task must not raise; the runner kept its error
                self._env.metrics.add("attendant_errors")
            finally:
                self._close_desks(rig)

        self._task = self._env.tasks.start(f"pipeline {self._pipeline}", beside)

    def stop(self) -> None:
        """Stop, and wait until it has; what ended it before is raised."""
        self._running().stop()
        if self._task is not None:
            self.wait()

    def ask_to_stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()

    def wait(self, timeout_ms: int | None = None) -> Status | None:
        """Wait for the end; `None` if it still runs after that time."""
        runner = self._running()
        if self._task is None:
            raise UsageError(f"pipeline {self._pipeline} was not started beside this task")
        if not self._task.join(timeout_ms):
            return None
        self._task = self._runner = None
        if runner.error is not None:
            raise runner.error
        return runner.status()

    def pause(self) -> None:
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def checkpoint(self) -> None:
        self._running().checkpoint()

    def status(self) -> Status | None:
        """What the runner in this process says of itself."""
        return None if self._runner is None else self._runner.status()

    def step(self, rig: Rig) -> float:
        if self.runs:
            raise UsageError(f"pipeline {self._pipeline} runs in this process: it steps by itself")
        return self.step_alone(rig)

    def step_alone(self, rig: Rig) -> float:
        """The same for who can wait as well: nothing is done where a runner began meanwhile."""
        with self._turn:
            return 1 if self.runs else self._made(rig).step()

    def take_checkpoint(self, rig: Rig) -> None:
        """Take one by own steps: nobody else runs."""
        self._carry_out(rig, Want.CHECKPOINT)

    def promote(self, rig: Rig) -> int:
        self._carry_out(rig, Want.PROMOTE)
        return self._made(rig).standing.epoch

    def close(self) -> None:
        runner = self._runner
        if runner is not None:
            runner.stop()
            if self._task is not None:
                self._task.join()
        self._task = self._runner = None
        for replica in self._replicas:
            replica.close()

    def _carry_out(self, rig: Rig, want: Want) -> None:
        if self.runs:
            raise UsageError(f"pipeline {self._pipeline} runs in this process: stop it first")
        with self._turn:
            replica = self._made(rig)
            replica.want(want)
        deadline = self._env.clock.monotonic_ms() + self._means.settings.stall_ms
        while replica.wants():
            if self._env.clock.monotonic_ms() > deadline:
                raise StalledError(f"pipeline {self._pipeline}: it was not possible {want.value}")
            with self._turn:
                replica.step()

    def _new_runner(self, rig: Rig) -> Runner:
        if self.runs:
            raise UsageError(f"pipeline {self._pipeline} runs in this process already")
        # Who only reads publishes nothing, and neither does a program without sinks.
        publishes = bool(rig.sinks) and not self._means.read_only
        publishing = Publishing(rig, self._means.replica or "") if publishes else None
        with self._turn:
            replica = self._made(rig)
            self._runner = Runner(replica, self._env, rig.settings, publishing, turn=self._turn)
        return self._runner

    def _made(self, rig: Rig) -> Replica | Auditor:
        made_of, made_in = self._made_of
        if made_of is not rig or made_in != self._epoch:
            self._replicas.append(Auditor(rig) if self._means.read_only else Replica(rig))
            self._made_of = (rig, self._epoch)
        return self._replicas[-1]

    def _running(self) -> Runner:
        self._env.home.check()
        if self._runner is None:
            raise UsageError(f"no replica of pipeline {self._pipeline} runs in this process")
        return self._runner

    def _attended(self, runner: Runner) -> Attendant:
        if self._means.replica is not None:
            Presence(self._env, self._pipeline).wait_for(self._means.replica)
        now_ms = self._env.patient(self._env.consensus.now_ms)
        said = Said(
            token=self._env.random.token(),
            host=self._means.host,
            pid=self._means.pid,
            read_only=self._means.read_only,
            started_ms=now_ms,
            at_ms=now_ms,
        )
        return Attendant(self._env, self._pipeline, runner, name=self._means.replica, said=said)

    def _open_desks(self, rig: Rig) -> None:
        for desk in rig.desks.values():
            desk.open()

    def _close_desks(self, rig: Rig) -> None:
        for desk in rig.desks.values():
            desk.close()
