"""A session with PostgreSQL: how it is reached, its settings, and what its errors mean.

Nothing here waits for ever: connecting, dead networks, locks and answers have their limits. Errors
tell the server's own short words and never a value of a row, the address's password or its options.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, LiteralString

import psycopg
from psycopg import conninfo

from strandline.connectors.postgres_errors import trouble
from strandline.connectors.postgres_link import Connection
from strandline.errors import SinkError, SinkStoppedError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from psycopg import sql

    from strandline.connectors.secret import Secret

    Statement = LiteralString | sql.SQL | sql.Composed

OLDEST = 140_000
"""The oldest server that is known to do all that is asked of it."""
LOCK_MS = 30_000
TIMEOUT_MS = 60_000
"""How long an answer is waited for while nothing moves, unless it is told otherwise."""
_TAKING_MS = 1_000
_TAKEN_MS = 8_000
_HIDDEN = "***"

# Who may be asked for more than where the server is and how its certificate is checked: nobody.
# Services and files of passwords would lead to where no program says.
# fmt: off
ALLOWED = {
    "user", "host", "hostaddr", "port", "dbname", "connect_timeout", "target_session_attrs",
    "load_balance_hosts", "require_auth", "channel_binding", "gssencmode", "krbsrvname",
    "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation",
    "ssl_min_protocol_version", "ssl_max_protocol_version",
}
# fmt: on
_DEFAULTS: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# Whatever a role or a database prefers: names mean what we say, texts read as we write them, and
# what is committed is durable. A handle that froze in mid-transaction is not waited for.
_SETTINGS = """
SET search_path = pg_catalog, pg_temp;
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
SET timezone = 'UTC';
SET client_min_messages = 'error';
SET statement_timeout = 0;
SET idle_in_transaction_session_timeout = '60s';
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;
"""
_DURABLE = """
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
_LOCK = "SELECT set_config('lock_timeout', %s, false)"
_READING = """
SET idle_in_transaction_session_timeout = 0;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY
"""
_END_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = %s AND pid <> pg_backend_pid()
  AND datname = current_database() AND usename = current_user
"""


def parsed(url: str, *, given: bool) -> dict[str, str]:
    """What an address says. `given`: it is written in a program, so it may hold no password."""
    try:
        found = {name: str(value) for name, value in conninfo.conninfo_to_dict(url).items()}
    except psycopg.Error:
        # What libpq says of it may repeat a part of it.
        raise UsageError(
            "option url is no address of a PostgreSQL: write postgresql://user@host:5432/database"
        ) from None
    if given and "password" in found:
        raise UsageError(
            "option url holds a password, which would be kept with the program: take it out, and "
            "name it with option password 'env:NAME' or 'file:/path'"
        )
    for name in found:
        if name not in ALLOWED and name != "password":
            raise UsageError(
                f"option url has the parameter {printable(name)}: there are "
                f"{', '.join(sorted(ALLOWED))}"
            )
    return found


class Session:
    """One connection; made anew by `open`. Statements outside of a transaction are one each."""

    def __init__(
        self,
        address: Mapping[str, str],
        password: Secret | None,
        name: str,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._address = address
        self._password = password
        self._name = name
        self._timeout_ms = timeout_ms
        self._connection: Connection | None = None
        where = f"{address.get('host', 'localhost')}:{address.get('port', '5432')}"
        self.where = f"PostgreSQL at {printable(where)}"

    def open(self) -> None:
        self._open(self._name)

    def open_to_read(self) -> None:
        """In one transaction that sees one moment, and that nobody who takes over ends."""
        self._open(f"{self._name} read")
        with self.meaning():
            self.connection.execute(_READING)

    def _open(self, name: str) -> None:
        self.close()
        told: dict[str, str | int] = {**_DEFAULTS, **self._address}
        if self._password is not None:
            told["password"] = self._password.reveal()
        with self.meaning():
            # What is prepared would outlive changes of the table: plans are made anew.
            self._connection = Connection.connect(
                "",
                autocommit=True,
                prepare_threshold=None,
                application_name=name,
                client_encoding="utf8",
                **told,  # type: ignore[arg-type]  # strings and numbers, as libpq takes them
            )
            self._connection.patience_ms = self._timeout_ms
            self._connection.execute(_SETTINGS)
            self._connection.execute(_DURABLE)
            self.wait_for_locks(LOCK_MS)
            version = self._connection.info.server_version
        if version < OLDEST:
            raise SinkStoppedError(
                f"{self.where} is of version {version // 10_000}: use {OLDEST // 10_000} or newer"
            )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def run(self, query: Statement, values: Sequence[object] | None = None) -> int:
        """How many rows it has changed."""
        return self.connection.execute(query, values).rowcount

    def all(
        self, query: Statement, values: Sequence[object] | None = None
    ) -> list[tuple[object, ...]]:
        return self.connection.execute(query, values).fetchall()

    def one(self, query: Statement, values: Sequence[object] | None = None) -> object:
        """The one value of the first row, or `None`."""
        found = self.connection.execute(query, values).fetchone()
        return None if found is None else found[0]

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            raise SinkError(f"{self.where}: there is no connection")
        return self._connection

    @contextmanager
    def meaning(self) -> Iterator[None]:
        """Errors in our own words. After any of them the connection is closed: what it was in the
        middle of counts or not, and only the progress tells."""
        if self._connection is not None:
            self._connection.patience_ms = self._timeout_ms
        try:
            yield
        except psycopg.Error as error:
            self.close()
            raise self._trouble(error) from None
        except BaseException:
            self.close()
            raise

    def expect(self, work_ms: int) -> None:
        """What is asked from here on, within this `meaning`, may take so much longer: a server that
        is at work on one statement says nothing until it is done."""
        connection = self.connection
        connection.patience_ms = max(connection.patience_ms, self._timeout_ms + work_ms)

    def wait_for_locks(self, ms: int) -> None:
        self.connection.execute(_LOCK, (str(ms),))

    def taken(self, take: Callable[[], None]) -> None:
        """What `take` needs locks for is ours: who holds them under our name and does not let go
        of them at once was replaced, may hang for long, and is ended."""
        self.expect(_TAKING_MS + _TAKEN_MS)
        self.wait_for_locks(_TAKING_MS)
        try:
            take()
        except psycopg.errors.LockNotAvailable:
            self.connection.execute(_END_OTHERS, (self._name,))
            self.wait_for_locks(_TAKEN_MS)
            take()
        self.wait_for_locks(LOCK_MS)

    def _trouble(self, error: psycopg.Error) -> SinkError:
        text = error.diag.message_primary or str(error)
        if self._password is not None and self._password.reveal():
            text = text.replace(self._password.reveal(), _HIDDEN)
        return trouble(error.sqlstate, text, self.where)
