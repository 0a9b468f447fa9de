"""Tables for tests of the sink: a schema of their own, handles on them, and what others see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import psycopg
import pyarrow as pa
from psycopg import sql
from tests.postgres.server import PASSWORD, Server

from strandline.connectors.postgres_progress import NAME as PROGRESS
from strandline.connectors.postgres_sink import PostgresSink, opened
from strandline.connectors.sink import Delivered, Progress, SinkPorts
from strandline.testing.conformance_sink import COLUMNS, SinkStand, no_step

_NUMBERS = count()


def ports(password: str = PASSWORD) -> SinkPorts:
    """Every reference leads to one password; words are counted."""
    return SinkPorts(
        lambda value: password if value.startswith("env:") else value,
        lambda: f"{next(_NUMBERS):032x}",
    )


class Tables:
    """A schema on a server. `close` it: what was opened and never closed ends then."""

    def __init__(self, server: Server, table: str = "orders") -> None:
        self.server = server
        self.schema = f"s{next(_NUMBERS)}"
        self.table = table
        self.port = server.port
        self._handles: list[PostgresSink] = []
        self._eye: psycopg.Connection | None = None
        with self.login() as login:
            login.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))

    def login(self) -> psycopg.Connection:
        return psycopg.connect(self.server.url, password=PASSWORD, autocommit=True)

    def sink(
        self,
        what: Delivered,
        step: Callable[[str], None] = no_step,
        password: str = PASSWORD,
        **options: str,
    ) -> PostgresSink:
        """A handle; it is closed with everything else."""
        told = {
            "url": self.server.url_at(self.port),
            "table": f"{self.schema}.{self.table}",
            "password": "env:PGPASSWORD",
            **options,
        }
        made = opened(told, what, ports(password), step)
        self._handles.append(made)
        return made

    def rows(self) -> list[tuple[object, ...]]:
        """What anybody sees in the table."""
        with self.login() as login:
            found = login.execute(sql.SQL("SELECT * FROM {}").format(self._named(self.table)))
            return found.fetchall()

    def run(self, text: str) -> list[tuple[object, ...]]:
        """A statement about `{t}`, the table, or `{p}`, the progress."""
        query = sql.SQL(text).format(t=self._named(self.table), p=self._named(PROGRESS))
        with self.login() as login:
            found = login.execute(query)
            return found.fetchall() if found.description else []

    def state(self, what: Delivered) -> tuple[Progress | None, pa.Table]:
        """Progress and rows, as one moment has them."""
        if self._eye is None or self._eye.closed:
            self._eye = self.login()
        login = self._eye
        with login.transaction():
            login.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            there = "SELECT to_regclass(%s), to_regclass(%s)"
            names = (f"{self.schema}.{PROGRESS}", f"{self.schema}.{self.table}")
            has_progress, has_table = login.execute(there, names).fetchone() or (None, None)
            mark, rows = None, []
            if has_progress is not None:
                query = sql.SQL("SELECT t, epoch FROM {} WHERE address = %s AND t IS NOT NULL")
                asked = query.format(self._named(PROGRESS))
                mark = login.execute(asked, (what.address.digest,)).fetchone()
            if has_table is not None:
                query = sql.SQL("SELECT id, name FROM {}").format(self._named(self.table))
                rows = login.execute(query).fetchall()
        table = pa.Table.from_pylist([{"id": a, "name": b} for a, b in rows], schema=COLUMNS)
        return None if mark is None else Progress(*mark), table

    def lose(self, what: Delivered) -> None:
        with self.login() as login:
            query = sql.SQL("DELETE FROM {} WHERE address = %s").format(self._named(PROGRESS))
            login.execute(query, (what.address.digest,))

    def stand(self, key: tuple[str, ...] = (), **options: str) -> SinkStand:
        return SinkStand(
            lambda what, step: self.sink(replace(what, key=key), step, **options),
            lose=self.lose,
            state=self.state,
        )

    def close(self) -> None:
        for each in self._handles:
            each.close()
        if self._eye is not None:
            self._eye.close()
        with self.server.superuser() as login:
            login.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self.schema)))

    def _named(self, table: str) -> sql.Identifier:
        return sql.Identifier(self.schema, table)


@contextmanager
def tables_on(server: Server, table: str = "orders") -> Iterator[Tables]:
    made = Tables(server, table)
    try:
        yield made
    finally:
        made.close()
