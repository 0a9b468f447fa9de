"""A real PostgreSQL for the tests: one server on loopback, from the programs of this machine.

`make postgres` installs Debian's where there is none. The server refuses to run as root, so it
runs as the user `postgres` then. It ends with the process that started it; `kill` is the end that
a power cut would be, and `start` then goes on with the same data at the same address.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from tests.server_process import (
    LOOPBACK,
    ServerError,
    ServerProcess,
    free_ports,
    listens,
    run,
    tied,
)

OWNER, PASSWORD = "strand", "tide-and-strand"
DATABASE = "strandline"
CONNECTIONS = 60

_PROGRAMS = "/usr/lib/postgresql"
_PATIENCE_S = 60
_ATTEMPTS = 3
_SETTINGS = """\
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
max_connections = {connections}
superuser_reserved_connections = 3
fsync = on
synchronous_commit = on
shared_buffers = 32MB
log_min_messages = warning
lc_messages = 'C'
"""
# One has to log in, but for the superuser of the tests themselves.
_LOGINS = """\
host all postgres {host}/32 trust
host all all {host}/32 scram-sha-256
"""


@contextmanager
def folder_of_its_own() -> Iterator[Path]:
    """Where a server may keep its rows: pytest's folders are closed to other users."""
    made = Path(tempfile.mkdtemp(prefix="strandline-postgres-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Server:
    """One server. `url` stays the same when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0
        self._process = ServerProcess("server", folder)

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """Where one has to log in: as `OWNER`, with `PASSWORD`, which is not part of it."""
        return self.url_at(self._port)

    @staticmethod
    def url_at(port: int, user: str = OWNER, database: str = DATABASE) -> str:
        return f"postgresql://{user}@{LOOPBACK}:{port}/{database}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def superuser(self, database: str = DATABASE) -> psycopg.Connection:
        """A connection that may everything, in autocommit; there is room for it always."""
        url = self.url_at(self._port, "postgres", database)
        return psycopg.connect(url, autocommit=True, connect_timeout=10)

    def ensure(self) -> None:
        """Start it if it does not run, for the tests that come after one that failed."""
        if not self._process.runs:
            self.start()

    def start(self) -> None:
        """Start the server, or start it again on the same folder; returns when it answers."""
        made = bool(self._port)
        for attempt in range(_ATTEMPTS):
            # Between choosing a port and listening on it somebody else may take it, and what is
            # left of a server that was killed may be there for a moment.
            if not made:
                self._initialise(self._folder / f"server-{attempt}")
            try:
                self._run()
            except ServerError:
                if attempt + 1 == _ATTEMPTS:
                    raise
                time.sleep(0.5)
            else:
                break
        if made:
            return
        with self.superuser("postgres") as login:
            login.execute(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{PASSWORD}'")
            login.execute(f"CREATE DATABASE {DATABASE} OWNER {OWNER}")

    def stop(self) -> None:
        """End the server in order; in any case it is gone afterwards."""
        if self._process.runs:
            os.kill(self._process.pid, signal.SIGINT)
            self._process.wait(_PATIENCE_S)
        self.kill()

    def kill(self) -> None:
        """End the server as a power cut would: `kill -9` of all its processes.

        They are in groups of their own, and one that goes on would keep the next server out.
        """
        if self._process.runs:
            children = _children(self._process.pid)
            self._process.kill()
            for each in children:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            _wait_for_quiet(self._port)

    def spawn(self) -> None:
        """Start it and return at once: it may answer that it is starting up."""
        words = [_program("postgres"), "-D", str(self._data)]
        self._process.start([*tied(signal.SIGQUIT, *_user()), *words])

    def _initialise(self, data: Path) -> None:
        self._data = data
        (self._port,) = free_ports(1)
        data.mkdir(parents=True)
        user, group = _user()
        if user:
            for each in (data, self._folder):
                shutil.chown(each, user, group)
        told = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        words = [_program("initdb"), "-D", str(data), "-U", "postgres", *told]
        run([*tied(signal.SIGKILL, user, group), *words], self._folder, "initdb", _PATIENCE_S)
        settings = _SETTINGS.format(host=LOOPBACK, port=self._port, connections=CONNECTIONS)
        (data / "postgresql.auto.conf").write_text(settings, encoding="utf-8")
        (data / "pg_hba.conf").write_text(_LOGINS.format(host=LOOPBACK), encoding="utf-8")

    def _run(self) -> None:
        self.spawn()
        try:
            self.wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def wait_until_it_answers(self) -> None:
        self._process.wait_until(self._answers, _PATIENCE_S)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), self.superuser("postgres"):
            return True
        return False


def missing() -> str | None:
    """What this machine lacks for a server, or `None`."""
    if _found("initdb") is None or _found("postgres") is None:
        return "no initdb and postgres on this machine (make postgres installs Debian's)"
    if os.getuid() == 0 and _user() == (0, 0):
        return "PostgreSQL refuses to run as root, and there is no user postgres"
    return None


def _found(name: str) -> str | None:
    """The newest that is installed; Debian does not put them on the path."""
    there = sorted(
        Path(_PROGRAMS).glob(f"*/bin/{name}"),
        key=lambda each: int(each.parts[-3]) if each.parts[-3].isdigit() else 0,
    )
    return str(there[-1]) if there else shutil.which(name)


def _program(name: str) -> str:
    found = _found(name)
    if found is None:
        raise ServerError(f"no {name}")
    return found


def _user() -> tuple[int, int]:
    """Whom the server runs as: numbers of a user and a group, zeros for who runs the tests."""
    if os.getuid() != 0:
        return 0, 0
    with suppress(KeyError):
        found = pwd.getpwnam("postgres")
        return found.pw_uid, found.pw_gid
    return 0, 0


def _children(pid: int) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError, IndexError):
                stat = (each / "stat").read_text(encoding="utf-8", errors="replace")
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    found.append(int(each.name))
    return found


def _wait_for_quiet(port: int) -> None:
    """Until nobody listens any more: processes of a group end one after the other."""
    until = time.monotonic() + _PATIENCE_S
    while listens(port) and time.monotonic() < until:
        time.sleep(0.01)
