"""Serving from a terminal: the token, and a child that is asked and ended."""

from __future__ import annotations

import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from strandline.cli.serving import token_of
from strandline.errors import UsageError


def test_a_token_is_drawn_once_and_kept_where_only_its_owner_reads(tmp_path):
    file = tmp_path / "token"
    token = token_of(file)
    assert len(token) >= 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert token_of(file) == token
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        token_of(file)
    with pytest.raises(UsageError, match="can't hold a token"):
        token_of(tmp_path / "nowhere" / "token")


def test_a_token_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("STRANDLINE_TOKEN", "x" * 20)
    assert token_of(None) == "x" * 20
    monkeypatch.delenv("STRANDLINE_TOKEN")
    assert token_of(None) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "needs TLS"),
        (["nowhere.sql"], "no program"),
        (["--token-file", "{folder}/missing/token"], "can't hold a token"),
    ],
)
def test_what_can_not_be_served_is_named(run_shop, arguments, words):
    given = [each.format(folder=run_shop.folder) for each in arguments]
    said = run_shop.ask("serve", *given, "--store", run_shop.lake, "--port", "0")
    assert said.code == 2
    assert words in said.err


def test_x12_a_program_that_is_served_reaches_only_hosts_that_are_listed(run_shop):
    file = run_shop.folder / "inside.sql"
    file.write_text("""CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING kafka
        OPTIONS (kafka.bootstrap.servers '127.0.0.1:1', subscribe 't');""")
    said = run_shop.ask("serve", str(file), "--store", run_shop.lake, "--port", "0")
    assert said.code == 2
    assert "STRANDLINE_ALLOW_HOSTS" in said.err


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
def test_a_child_serves_until_a_signal_and_leaves_a_checkpoint(shop, number):
    code = """
        import sys
        from strandline.cli.main import main
        from strandline.testing.engines import arrow_engine
        sys.exit(main(sys.argv[1:], engine=arrow_engine))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), "serve", shop.file]
    child = subprocess.Popen(
        [*command, "--store", shop.lake, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        place = urlsplit(json.loads(child.stdout.readline())["url"])
        said = child.stderr.readline()
        kept = Path(said.removeprefix("token: in ").partition(",")[0])
        token = kept.read_text().strip()
        # What a service prints is kept by a log.
        assert token not in said
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        path = "/v1/pipelines/shop/tables/notes/rows"
        status, answer = _post(place.port, path, token, b'{"id": 1, "note": "x"}')
        assert (status, answer["sealed"]) == (200, True)
        os.kill(child.pid, number)
        out, err = child.communicate(timeout=60)
        assert (child.returncode, out, err) == (0, "", "")
        assert not kept.exists()
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
    told = shop.ask("status", shop.lake, "--json").json()["pipelines"][0]
    assert told["state"] == "stopped"
    assert told["checkpoint"] == told["committed"] - 1
    assert shop.ask("query", shop.lake, "SELECT id FROM notes", "--json").json()["matching"] == 1


def _post(port: int, path: str, token: str, body: bytes) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
