"""The PostgreSQL of the tests: it keeps its rows when it is killed, and outlives nobody."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from tests.postgres.server import PASSWORD, folder_of_its_own

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
STARTER = """
import sys
from pathlib import Path
from tests.postgres.server import Server
made = Server(Path(sys.argv[1]))
made.start()
print(made.pid, flush=True)
sys.stdin.read()
"""


def ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_it_ends_with_the_process_that_started_it_even_if_that_is_killed(postgres):
    with folder_of_its_own() as folder:
        starter = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            pid = int(starter.stdout.readline())
            assert not ended(pid)
        finally:
            starter.kill()
            starter.communicate()
        until = time.monotonic() + PATIENCE_S
        while not ended(pid):
            assert time.monotonic() < until, "the server outlived its parent"
            time.sleep(0.05)


def test_rows_outlive_a_kill_and_the_address_stays(postgres):
    with psycopg.connect(postgres.url, password=PASSWORD, autocommit=True) as login:
        login.execute("CREATE TABLE kept AS SELECT 1 AS n")
    before = postgres.url
    postgres.kill()
    postgres.start()
    assert postgres.url == before
    with psycopg.connect(postgres.url, password=PASSWORD, autocommit=True) as login:
        assert login.execute("SELECT n FROM kept").fetchall() == [(1,)]
        login.execute("DROP TABLE kept")


def test_a_wrong_password_is_refused(postgres):
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.url, password="wrong")
