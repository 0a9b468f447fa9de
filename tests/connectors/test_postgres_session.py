"""A session: its address without a password, its settings whatever a role prefers, its words."""

from __future__ import annotations

import pytest
from tests.postgres.server import OWNER, PASSWORD, Server
from tests.server_process import LOOPBACK

from strandline.connectors.postgres_session import Session, parsed
from strandline.connectors.secret import Secret
from strandline.errors import SinkError, SinkStoppedError, UsageError


def session(postgres: Server, name: str = "strandline test") -> Session:
    made = Session(parsed(postgres.url, given=True), Secret(PASSWORD), name)
    made.open()
    return made


def test_an_address_is_taken_apart_and_holds_no_secret() -> None:
    found = parsed("postgresql://u@h:5433/d?sslmode=require", given=True)
    assert found == {"user": "u", "host": "h", "port": "5433", "dbname": "d", "sslmode": "require"}
    assert parsed("postgresql://u:p@h/d", given=False)["password"] == "p"
    with pytest.raises(UsageError, match="password"):
        parsed("postgresql://u:p@h/d", given=True)
    for parameter in ("options=-c%20x", "passfile=/x", "service=x", "sslpassword=x"):
        with pytest.raises(UsageError, match="has the parameter"):
            parsed(f"postgresql://u@h/d?{parameter}", given=True)


def test_what_is_committed_is_durable_whatever_a_role_prefers(postgres: Server) -> None:
    with postgres.superuser() as login:
        login.execute(f"ALTER ROLE {OWNER} SET synchronous_commit = off")
        login.execute(f"ALTER ROLE {OWNER} SET search_path = nowhere")
        login.execute(f"ALTER ROLE {OWNER} SET timezone = 'Asia/Tokyo'")
        login.execute(f"ALTER ROLE {OWNER} SET statement_timeout = 1")
        try:
            made = session(postgres)
            for name, wanted in (
                ("synchronous_commit", "on"),
                ("search_path", "pg_catalog, pg_temp"),
                ("TimeZone", "UTC"),
                ("statement_timeout", "0"),
            ):
                assert made.one("SELECT current_setting(%s)", (name,)) == wanted
            made.close()
        finally:
            login.execute(f"ALTER ROLE {OWNER} RESET ALL")


def test_errors_tell_no_values_and_close_the_connection(postgres: Server) -> None:
    made = session(postgres)
    made.run("CREATE TEMPORARY TABLE once (n text PRIMARY KEY)")
    where = f"PostgreSQL at '{LOOPBACK}:"
    with pytest.raises(SinkStoppedError, match=where) as told, made.meaning():
        made.run("INSERT INTO pg_temp.once VALUES ('hush'), ('hush')")
    assert "hush" not in str(told.value)
    assert "duplicate key" in str(told.value)
    with pytest.raises(SinkError, match="no connection"):
        made.run("SELECT 1")
    made.close()


def test_who_takes_over_ends_who_hangs_and_nobody_else(postgres: Server) -> None:
    with postgres.superuser() as login:
        login.execute("CREATE TABLE public.locked (n int)")
        login.execute(f"GRANT ALL ON public.locked TO {OWNER}")
    hanging, stranger, reading = session(postgres), session(postgres, "other"), session(postgres)
    reading.open_to_read()
    hanging.run("BEGIN")
    hanging.run("LOCK TABLE public.locked")
    taking = session(postgres)
    taking.taken(lambda: taking.run("INSERT INTO public.locked VALUES (1)") and None)
    assert taking.one("SELECT count(*) FROM public.locked") == 1
    assert stranger.one("SELECT 1") == reading.one("SELECT 1") == 1
    with pytest.raises(SinkError), hanging.meaning():
        hanging.run("COMMIT")
    for each in (stranger, reading, taking):
        each.close()
    with postgres.superuser() as login:
        login.execute("DROP TABLE public.locked")
