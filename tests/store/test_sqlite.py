"""Consensus on one SQLite file."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from strandline.errors import (
    CorruptionError,
    HandleClosedError,
    MaybeAppliedError,
    NewerFormatError,
    NotAppliedError,
)
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned
from strandline.store.sqlite import FORMAT, SqliteConsensus
from strandline.testing.conformance import check_consensus


def _set(consensus: SqliteConsensus, number: int, value: bytes = b"v") -> CasResult:
    return consensus.compare_and_set("k", Versioned(SeqNo(number), value))


def _start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_sqlite_keeps_the_contract(tmp_path: Path):
    check_consensus(lambda: SqliteConsensus(tmp_path / "new" / "c.db"), threads=4)


def test_the_files_belong_to_their_owner_alone_and_nothing_else_is_left(tmp_path: Path):
    before = os.umask(0)
    try:
        consensus = SqliteConsensus(tmp_path / "store" / "c.db")
        _set(consensus, 0)
    finally:
        os.umask(before)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "store").iterdir()}
    assert modes == {"c.db": 0o600, "c.db-wal": 0o600, "c.db-shm": 0o600}
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700


def test_every_commit_is_synced(tmp_path: Path):
    consensus = SqliteConsensus(tmp_path / "c.db")
    with consensus._writing.connection() as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
        assert connection.execute("pragma synchronous").fetchone() == (2,)


def _text(path: Path) -> None:
    path.write_text("not a database, but a text that is long enough to be read as one" * 20)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table versions (key, seqno, data)")


@pytest.mark.parametrize("make", [_text, _empty, _foreign])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, make):
    path = tmp_path / "c.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(CorruptionError, match=r"c\.db"):
        SqliteConsensus(path)
    assert path.read_bytes() == before


def test_a_newer_format_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "c.db"
    SqliteConsensus(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma user_version = {FORMAT + 1}")
    with pytest.raises(NewerFormatError, match="upgrade Strandline"):
        SqliteConsensus(path)


def test_a_damaged_file_is_corruption_and_not_a_retry(tmp_path: Path):
    path = tmp_path / "c.db"
    with closing(SqliteConsensus(path)) as consensus:
        for number in range(50):
            _set(consensus, number, bytes(5000))
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    path.write_bytes(raw)
    with pytest.raises(CorruptionError):
        SqliteConsensus(path).head("k")


def test_a_symbolic_link_is_refused(tmp_path: Path):
    SqliteConsensus(tmp_path / "real.db").close()
    (tmp_path / "c.db").symlink_to(tmp_path / "real.db")
    with pytest.raises(NotAppliedError, match="link"):
        SqliteConsensus(tmp_path / "c.db")


def test_a_folder_that_can_not_be_made_is_not_applied(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotAppliedError, match="could not be created"):
        SqliteConsensus(tmp_path / "file" / "c.db")


def test_a_file_that_has_gone_or_was_replaced_is_not_applied(tmp_path: Path):
    path = tmp_path / "c.db"
    consensus = SqliteConsensus(path)
    _set(consensus, 0)
    (tmp_path / "away").mkdir()
    for file in tmp_path.glob("c.db*"):
        file.rename(tmp_path / "away" / file.name)
    with pytest.raises(NotAppliedError, match="has gone"):
        _set(consensus, 1)
    assert not path.exists()
    with closing(SqliteConsensus(path)):
        with pytest.raises(NotAppliedError, match="was replaced"):
            _set(consensus, 1)
        with pytest.raises(NotAppliedError, match="was replaced"):
            consensus.head("k")


@pytest.mark.parametrize(
    ("setting", "advice"),
    [("query_only = on", "read-only"), ("max_page_count = 1", "disk is full")],
)
def test_a_full_or_read_only_store_is_not_applied_and_works_again_later(
    tmp_path: Path, setting: str, advice: str
):
    consensus = SqliteConsensus(tmp_path / "c.db")
    _set(consensus, 0)
    with consensus._writing.connection() as connection:
        connection.execute(f"pragma {setting}")
    with pytest.raises(NotAppliedError, match=advice):
        _set(consensus, 1, bytes(100_000))
    assert consensus.head("k") == Versioned(SeqNo(0), b"v")
    with consensus._writing.connection() as connection:
        connection.execute("pragma query_only = off")
        connection.execute("pragma max_page_count = 1000000")
    assert _set(consensus, 1, bytes(100_000)) is CasResult.COMMITTED


@pytest.mark.skipif(os.geteuid() == 0, reason="the root user may write anywhere")
def test_a_folder_without_permission_to_write_is_not_applied(tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(NotAppliedError):
            SqliteConsensus(tmp_path / "c.db")
    finally:
        tmp_path.chmod(0o700)


def test_a_store_that_stays_busy_is_not_applied_while_readers_go_on(tmp_path: Path):
    consensus = SqliteConsensus(tmp_path / "c.db", busy_ms=50)
    _set(consensus, 0)
    with closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(NotAppliedError, match="write lock"):
            _set(consensus, 1)
        with pytest.raises(NotAppliedError, match="write lock"):
            consensus.truncate("k", SeqNo(1))
        assert consensus.head("k") == Versioned(SeqNo(0), b"v")
        other.execute("rollback")
    assert _set(consensus, 1) is CasResult.COMMITTED


class _LosesCommits(sqlite3.Connection):
    """A connection whose commit fails once, before or after it took effect."""

    takes_effect = True
    failed = False

    def execute(self, sql: str, *rest: object) -> sqlite3.Cursor:  # type: ignore[override]
        if sql != "commit" or self.failed:
            return super().execute(sql, *rest)  # type: ignore[arg-type]
        self.failed = True
        if self.takes_effect:
            super().execute(sql)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error


@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_error_of_the_commit_itself_may_have_been_applied(tmp_path: Path, takes_effect):
    path = tmp_path / "c.db"
    consensus = SqliteConsensus(path)
    _set(consensus, 0)
    lossy = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, factory=_LosesCommits
    )
    lossy.takes_effect = takes_effect
    consensus._writing._disconnect()
    consensus._writing._open = lossy
    with pytest.raises(MaybeAppliedError, match="input/output"):
        _set(consensus, 1)
    # Only a read can tell; and the store goes on with a fresh connection.
    assert consensus._writing._open is None
    head = consensus.head("k")
    assert head is not None
    assert head.seqno == SeqNo(1 if takes_effect else 0)
    assert _set(consensus, head.seqno.number + 1) is CasResult.COMMITTED


def test_a_closed_handle_says_so(tmp_path: Path):
    consensus = SqliteConsensus(tmp_path / "c.db")
    consensus.close()
    with pytest.raises(HandleClosedError):
        consensus.head("k")
    with pytest.raises(HandleClosedError):
        _set(consensus, 0)


def test_the_log_stays_bounded_beside_readers(tmp_path: Path):
    consensus, reader = SqliteConsensus(tmp_path / "c.db"), SqliteConsensus(tmp_path / "c.db")
    for number in range(1500):
        _set(consensus, number, bytes(6000))
        reader.scan("k", SeqNo(number - 5), 10)
        if number % 50 == 0:
            reader.truncate("k", SeqNo(number))
    assert (tmp_path / "c.db-wal").stat().st_size < 8 << 20
    assert (tmp_path / "c.db").stat().st_size < 8 << 20


RACER = """
import sys
from pathlib import Path
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned
from strandline.store.sqlite import SqliteConsensus
path, name, wins = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
consensus = SqliteConsensus(path)
while wins:
    head = consensus.head("k")
    seqno = SeqNo(0) if head is None else head.seqno.next()
    new = Versioned(seqno, f"{name} {seqno} ".encode() + bytes(3000))
    if consensus.compare_and_set("k", new) is CasResult.COMMITTED:
        print(seqno.number, flush=True)
        wins -= 1
"""


@pytest.mark.process
def test_four_processes_that_race_tile_the_versions_without_gap(tmp_path: Path):
    path = tmp_path / "c.db"  # The four also race to create it.
    racers = [_start(RACER, path, name, 200) for name in "abcd"]
    won = {name: p.communicate()[0].split() for name, p in zip("abcd", racers, strict=True)}
    assert [p.returncode for p in racers] == [0, 0, 0, 0]
    versions = SqliteConsensus(path).scan("k", SeqNo(0), 10_000)
    assert [v.seqno.number for v in versions] == [*range(800)]
    winners = Counter(v.data.split()[0].decode() for v in versions)
    assert winners == dict.fromkeys("abcd", 200)
    for name, numbers in won.items():
        mine = [v for v in versions if v.data.startswith(name.encode())]
        assert [str(v.seqno.number) for v in mine] == numbers
    assert not [*tmp_path.glob(".new-*")]


@pytest.mark.process
def test_killed_writers_lose_nothing_that_they_were_told_is_committed(tmp_path: Path):
    path = tmp_path / "c.db"
    told: set[int] = set()
    for kill_after in (1, 30, 90):
        racers = [_start(RACER, path, name, 100_000) for name in "ab"]
        for racer in racers:
            assert racer.stdout is not None
            told |= {int(racer.stdout.readline()) for _ in range(kill_after)}
        for racer in racers:
            racer.kill()
        for racer in racers:
            # The last line may be cut short by the kill; a whole one ends with a newline.
            rest = racer.communicate()[0]
            told |= {int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")}
        with closing(SqliteConsensus(path)) as consensus:
            versions = consensus.scan("k", SeqNo(0), 1_000_000)
            assert [v.seqno.number for v in versions] == [*range(len(versions))]
            assert told <= {*range(len(versions))}
            assert all(len(v.data) > 3000 for v in versions)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
