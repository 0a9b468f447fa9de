"""A real standalone cluster on this machine, and a driver in a process of its own.

Workers run a Python that has no packages at all, so whatever executors import came in the archive.
That Python writes down every database that is connected to and every file that is opened below a
store; see `Standalone.opened`.

All processes carry a mark in their environment, and end with the process that started them: by
the kernel if need be. Nothing outlives a test run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import venv
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from tests.jvm import QUICK

import strandline
from strandline.spark.java import find_java
from strandline.upkeep.findings import Severity
from strandline.upkeep.fsck import fsck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(pyspark.__file__).parent
PATIENCE_S = 300
MARK = "STRANDLINE_TEST_CLUSTER"
LOOPBACK = "127.0.0.1"
ELSEWHERE = "127.0.0.2"
"""Another host, as far as Spark can tell."""

_OPTIONS = ("-Xmx256m", *QUICK, "-Dspark.master.rest.enabled=false")
_TIED = (
    "import ctypes, os, sys\nctypes.CDLL(None).prctl(1, 9)\nos.execvp(sys.argv[1], sys.argv[1:])\n"
)
"""Lets the kernel kill a program when its parent dies, however that dies (PR_SET_PDEATHSIG)."""
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_KINDS = (".parquet", ".ground")
_HOOK = """
import os, sys
seen = {log!r}
def watch(event, args):
    if event == "sqlite3.connect" or event == "open" and str(args[0]).endswith({kinds!r}):
        line = "%d\\t%s\\t%s\\n" % (os.getpid(), event, args[0])
        handle = os.open(seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, line.encode())
        os.close(handle)
sys.addaudithook(watch)
"""


@dataclass(frozen=True, slots=True)
class Opened:
    """Something that a Python process of an executor opened."""

    pid: int
    event: str
    path: str


class Standalone:
    """A master and two workers with one core each. `url` is the master's."""

    def __init__(self, folder: Path, hosts: tuple[str, str] = (LOOPBACK, LOOPBACK)) -> None:
        self._folder = folder
        self._hosts = dict(zip(("one", "two"), hosts, strict=True))
        self._mark = f"{folder}"
        self._started: list[subprocess.Popen[bytes]] = []
        self._log = folder / "opened"
        self._plain = folder / "plain"
        self.url = ""

    def start(self) -> None:
        """Start everything; on failure `close` still has to be called."""
        self._make_plain_python()
        main = "org.apache.spark.deploy.master.Master"
        self._java("master", main, "--host", LOOPBACK, "--port", "0", "--webui-port", "0")
        self.url = self._said("master", _MASTER)[1]
        for name, host in self._hosts.items():
            main = "org.apache.spark.deploy.worker.Worker"
            work = str(self._folder / f"work {name}")
            room = ["--cores", "1", "--memory", "1g", "--work-dir", work]
            self._java(name, main, "--host", host, "--webui-port", "0", *room, self.url)
        for name in self._hosts:
            self._said(name, _REGISTERED)

    def close(self) -> None:
        """End every process of the cluster, whatever state it is in."""
        for each in reversed(self._started):
            each.terminate()
        ends = time.monotonic() + 10
        while self.survivors() and time.monotonic() < ends:
            for each in self._started:
                each.poll()
            time.sleep(0.05)
        for pid in self.survivors():
            kill(pid)
        for each in self._started:
            each.wait()

    def survivors(self) -> list[int]:
        """The processes of the cluster that run, executors and their Python included."""
        return marked(self._mark)

    def opened(self) -> list[Opened]:
        """What Python processes of executors have opened so far: databases, and objects."""
        if not self._log.exists():
            return []
        lines = [line.split("\t") for line in self._log.read_text().splitlines()]
        return [Opened(int(pid), event, path) for pid, event, path in lines]

    def logs(self) -> str:
        """The end of what the processes said, for the message of a failure."""
        texts = [f"{path}:\n{path.read_text()[-2000:]}" for path in self._folder.glob("*.log")]
        return "\n".join(texts)

    def _make_plain_python(self) -> None:
        venv.create(self._plain, symlinks=True, with_pip=False)
        [packages] = self._plain.glob("lib/python*/site-packages")
        # Not in `sitecustomize`, of which a machine may have its own.
        (packages / "watching.py").write_text(_HOOK.format(log=str(self._log), kinds=_KINDS))
        (packages / "watching.pth").write_text("import watching\n")

    def _java(self, name: str, *arguments: str) -> None:
        program = find_java().program
        assert program is not None
        with (self._folder / f"{name}.log").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    tied(program, *_OPTIONS, "-cp", f"{HOME}/jars/*", *arguments),
                    env=self._environment(),
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _environment(self) -> dict[str, str]:
        """Nothing of this process's Python may reach the workers."""
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "PATH": f"{self._plain}/bin:{os.environ['PATH']}",
            "HOME": str(self._folder),
            "SPARK_HOME": str(HOME),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            MARK: self._mark,
        }

    def _said(self, name: str, wanted: re.Pattern[str]) -> re.Match[str]:
        log = self._folder / f"{name}.log"
        found = wait_for(lambda: wanted.search(log.read_text()), self.logs)
        assert found is not None
        return found


class Driver:
    """A process with a session of its own, told by lines what to do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = f"{folder} driver"
        self._errors = folder / "driver.log"
        self._told = 0
        environment = {name: value for name, value in os.environ.items() if name[:5] != "SPARK"}
        environment.pop("PYSPARK_PYTHON", None)
        with self._errors.open("wb") as errors:
            self._started = subprocess.Popen(
                tied(sys.executable, "-m", "tests.spark.cluster_driver"),
                env={
                    **environment,
                    "PYTHONPATH": f"{ROOT}/src",
                    "SPARK_LOCAL_IP": LOOPBACK,
                    MARK: self._mark,
                },
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def tell(self, verb: str, **arguments: object) -> None:
        """Let it do something; `answer` waits for what comes of it."""
        assert self._started.stdin is not None
        self._told += 1
        self._started.stdin.write(json.dumps([self._told, verb, arguments]).encode() + b"\n")
        self._started.stdin.flush()

    def answer(self) -> object:
        """What came of what it was told last; a test that gave up has left its answer unread."""
        assert self._started.stdout is not None
        number = 0
        while number < self._told:
            line = self._started.stdout.readline()
            assert line, f"the driver has ended:\n{self._errors.read_text()[-4000:]}"
            number, kind, value = json.loads(line)
        assert kind == "done", f"{value}\n{self._errors.read_text()[-4000:]}"
        return value

    def ask(self, verb: str, **arguments: object) -> object:
        self.tell(verb, **arguments)
        return self.answer()

    def kill(self) -> None:
        """Kill it, its Java, its workers and its heart; none of them notices before it is dead."""
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            for pid in marked(self._mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, sent)
        self._started.wait()
        wait_for(lambda: not marked(self._mark), self._errors.read_text)

    def close(self) -> None:
        assert self._started.stdin is not None
        with suppress(OSError):
            self._started.stdin.close()
        ends = time.monotonic() + 15
        while marked(self._mark) and time.monotonic() < ends:
            self._started.poll()
            time.sleep(0.05)
        for pid in marked(self._mark):
            kill(pid)
        self._started.wait()
        assert self._started.stdout is not None
        self._started.stdout.close()


class Gate:
    """A place in a task where it waits until it is let go, and says which process it is."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def waiting(self) -> list[int]:
        """The Python workers that stand at the gate."""
        return [int(path.name.partition(".")[2]) for path in self.folder.glob("inside.*")]

    def first(self, said: Callable[[], str]) -> int:
        """The first of them, as soon as there is one."""
        return wait_for(self.waiting, said)[0]

    def open(self) -> None:
        (self.folder / "go").touch()


def leftovers(folder: Path) -> list[str]:
    """Parts that fsck would remove, once it has proved that everything else is well.

    What an attempt that was killed still puts, until it is gone, is removed too.
    """
    with strandline.open(str(folder), upkeep=False) as store:
        found = fsck(store.env, store.leases, deep=True)
        assert found.sound
        keys = [each.thing for each in found.of(Severity.LEFTOVER)]
        keys = [key for key in keys if key.endswith(".parquet")]

        def is_clean() -> bool:
            assert fsck(store.env, store.leases, repair=True).sound
            again = fsck(store.env, store.leases, deep=True)
            assert again.sound
            return not again.of(Severity.LEFTOVER)

        wait_for(is_clean, lambda: f"{folder} is never clean")
    return keys


# Processes.


def tied(program: str, *arguments: str) -> list[str]:
    """A command that ends with the process that starts it."""
    return [sys.executable, "-S", "-c", _TIED, program, *arguments]


def wait_for(found: Callable[[], object], said: Callable[[], str]):
    """What `found` gives as soon as that is something; else a failure with what was said."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"nothing happened for {PATIENCE_S} s\n{said()}")


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """The processes, zombies aside, that have this mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def executor_of(pid: int) -> int:
    """The executor whose Python worker this is."""
    for above in ancestors(pid):
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{above}/cmdline").read_bytes():
            return above
    raise AssertionError(f"{pid} belongs to no executor")


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(re.search(r"PPid:\s+(\d+)", status)[1])
