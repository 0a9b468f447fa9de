"""X4: what a URL or the environment carries is never repeated (C12: a marker scan)."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import traceback
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from strandline.assembly import open_store
from strandline.cli.main import main
from strandline.errors import UsageError
from strandline.testing.specimen import COLUMNS, numbered

TABOO = "TABOO-c0ffee-MARKER"
URLS = [
    f"postgresql://user:{TABOO}@host/db",
    f"s3://key:{TABOO}@bucket/path",
    f"file://user:{TABOO}@host/path",
    f"https://host/path?password={TABOO}",
    f"unknown://{TABOO}",
]


@pytest.mark.parametrize("url", URLS)
def test_a_url_with_a_password_is_refused_without_repeating_it(url, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(UsageError) as told:
        open_store(url)
    assert TABOO not in str(told.value)
    assert TABOO not in repr(told.value)
    assert TABOO not in caplog.text
    with pytest.raises(UsageError) as told:
        open_store("memory://", blob=url)
    assert TABOO not in str(told.value)


@pytest.mark.parametrize("url", URLS)
def test_the_command_line_does_not_repeat_it_either(url):
    for arguments in (["shards", url], ["show", url, "x"], ["doctor", url]):
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
        assert code != 0
        assert TABOO not in out.getvalue() + err.getvalue(), arguments


def test_an_error_has_no_secret_in_its_text_nor_in_its_causes():
    try:
        open_store(URLS[0])
    except UsageError as error:
        shown = "".join(traceback.format_exception(error, limit=0))
        assert TABOO not in shown


SESSION = """
    import os, sys
    import pyarrow as pa
    from strandline.assembly import open_store
    store = open_store(sys.argv[1])
    shard = store.shard("orders", pa.schema([("id", pa.int64())]), ["id"])
    writer = shard.writer()
    writer.append(pa.table({"id": list(range(20000))}))
    helper = store.leases._hearts
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    writer.close()
    store.close()
"""


@pytest.mark.process
def test_the_environment_reaches_no_file_no_output_and_no_command_line(tmp_path):
    """What holds: the helper inherits the environment, as every child of the process does,
    and repeats none of it: neither in its arguments nor in anything it writes."""
    path = tmp_path / "lake"
    session = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(SESSION.replace("    helper = store.leases._hearts\n", "")),
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "DB_PASSWORD": TABOO, "AWS_SECRET_ACCESS_KEY": TABOO},
    )
    pid = int(session.stdout.readline())
    helpers = children(pid)
    assert helpers, "a helper process keeps the lease alive"
    lines = [Path(f"/proc/{each}/cmdline").read_bytes() for each in helpers]
    assert all(TABOO.encode() not in line for line in lines)
    assert all(str(path).encode() not in line for line in lines), "not even where the store is"
    scan(path)
    out, err = session.communicate(b"\n", timeout=60)
    assert session.returncode == 0, err
    assert TABOO.encode() not in out + err
    scan(path)


def children(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"PPid:\t{pid}\n" in text:
            found.append(int(status.parent.name))
    return found


def scan(path):
    files = [each for each in path.rglob("*") if each.is_file()]
    assert files
    for file in files:
        assert TABOO.encode() not in file.read_bytes(), file


def test_settings_from_the_environment_that_make_no_sense_are_shown_escaped(monkeypatch):
    monkeypatch.setenv("STRANDLINE_LEASE_MS", "\x1b[31m12")
    with pytest.raises(UsageError, match="STRANDLINE_LEASE_MS is") as told:
        open_store("memory://")
    assert str(told.value).isprintable()


def test_rows_are_not_repeated_in_logs(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    with open_store(str(tmp_path / "lake"), upkeep=False) as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            writer.append([{"id": 1, "name": TABOO}])
            writer.append(numbered(10, 3))
        assert shard.snapshot(filter=[("name", "=", TABOO)]).count() == 1
    assert TABOO not in caplog.text
