"""X1, X2: a name never leaves its folder or its SQL statement, whatever is in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO

import pyarrow as pa
import pytest

from strandline.assembly import open_store
from strandline.cli.main import main
from strandline.errors import NameRefusedError, NotAppliedError, NotFoundError, StrandlineError
from strandline.model.ids import SeqNo
from strandline.store.consensus import Versioned
from strandline.store.files import FilesBlob
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.store.sqlite import SqliteConsensus

COLUMNS = pa.schema([("id", pa.int64())])
CANARY = b"nobody reads or writes this"

TRAVERSAL = [
    "../canary",
    "..",
    ".",
    "",
    "/",
    "/etc/passwd",
    "a/../../canary",
    "a/./b",
    "a//b",
    "a\\..\\b",
    "C:\\x",
    "~/x",
    "%2e%2e/canary",
    "..%2fcanary",
    "a\0b",
    "a\nb",
    "a\r\nb",
    "a\tb",
    " a",
    "a ",
    ".hidden",
    "-rf",
    "a..b",
    "a.",
    ".put-0",
    "$(id)",
    "`id`",
    "a;b",
    "a|b",
    "*",
    "?",
    "a*",
    "a\u0000",
    "ａ",  # noqa: RUF001 - a look-alike is the case
    "а",  # noqa: RUF001 - a Cyrillic letter is the case
    "e\u0301",
    "\u202egnp",
    "\ufeffa",
    "🦀",
    "x" * 129,
    "x" * 4096,
    "a.b.c.d.e",
    "1a",
]
SQL = [
    "'; drop table versions; --",
    '"; drop table versions; --',
    "a' or '1'='1",
    "a%",
    "a_' escape '",
    "x'||(select data from versions)||'",
    "a);--",
    "\x00'",
]
NO_NAMES = [None, 5, b"orders", ["orders"], True]
BAD = [*TRAVERSAL, *SQL, *NO_NAMES]
RESERVED = ["con", "nul", "select", "table", "store", "shard", "pulse", "Orders", "ORDERS"]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "canary").write_bytes(CANARY)
    with open_store(str(tmp_path / "lake"), upkeep=False) as store:
        yield store
    assert (tmp_path / "canary").read_bytes() == CANARY
    assert sorted(p.name for p in tmp_path.iterdir()) == ["canary", "lake"]


def test_a_bad_name_is_refused_at_every_entry_and_nothing_is_touched(place):
    good = place.shard("good", COLUMNS)
    entries = {
        "create": lambda name: place.shard(name, COLUMNS),
        "open": place.shard,
        "drop": place.drop,
        "timeline": place.timeline,
        "hold": lambda name: good.hold(name, 0),
        "release": good.release_hold,
        "blob get": place.env.blob.get,
        "blob put": lambda name: place.env.blob.put(name, b"x"),
        "blob delete": place.env.blob.delete,
        "head": place.env.consensus.head,
        "set": lambda name: place.env.consensus.compare_and_set(name, Versioned(SeqNo(0), b"x")),
        "truncate": lambda name: place.env.consensus.truncate(name, SeqNo(9)),
    }
    # Keys have parts joined by '/' and may begin with a digit; a name may not.
    keys = ["1a", "a.b.c.d.e", "a..b", "a.", "x" * 129]
    before = place.env.consensus.keys("")
    for entry, call in entries.items():
        for name in BAD:
            if name in keys and entry in {
                "blob get",
                "blob put",
                "blob delete",
                "head",
                "set",
                "truncate",
            }:
                continue
            with pytest.raises(NameRefusedError) as told:
                call(name)
            assert str(told.value).isprintable(), (entry, name)
            assert len(str(told.value)) < 400
    assert place.env.consensus.keys("") == before
    assert list(place.env.blob.list("")) == []


def test_reserved_words_and_case_are_just_names(place):
    for name in RESERVED:
        shard = place.shard(name, COLUMNS)
        with shard.writer() as writer:
            writer.append(pa.table({"id": [len(name)]}))
    assert place.shards() == sorted(RESERVED)
    ids = {place.shard(name).state().id for name in RESERVED}
    assert len(ids) == len(RESERVED), "names that differ by case are different shards"


def test_names_never_become_paths(place):
    with place.shard("visible-name", COLUMNS).writer() as writer:
        for _ in range(2):
            writer.append(pa.table({"id": list(range(20_000))}))
    keys = [entry.key for entry in place.env.blob.list("")]
    assert keys
    assert not any("visible" in key for key in keys)


@pytest.mark.parametrize("name", SQL + [f"a{text}" for text in SQL])
def test_sql_in_keys_changes_nothing_even_below_the_check_of_names(name, tmp_path, monkeypatch):
    """The statements themselves are safe: without the check, a hostile key is just text."""
    monkeypatch.setattr("strandline.store.sqlite.valid_key", lambda key: key)
    monkeypatch.setattr("strandline.store.sqlite.valid_prefix", lambda prefix: prefix)
    path = tmp_path / "consensus.db"
    consensus = SqliteConsensus(path)
    consensus.compare_and_set("good", Versioned(SeqNo(0), b"good"))
    consensus.compare_and_set(name, Versioned(SeqNo(0), b"bad"))
    assert consensus.head(name).data == b"bad"
    assert consensus.head("good").data == b"good"
    assert [v.data for v in consensus.scan(name, SeqNo(0), 10)] == [b"bad"]
    consensus.truncate(name, SeqNo(5))
    assert sorted(consensus.keys("")) == sorted(["good", name])
    consensus.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from versions").fetchone() == (2,)


def test_memory_refuses_the_same_keys_as_files_and_sqlite(tmp_path):
    ports = [MemoryBlob(), FilesBlob(tmp_path / "b")]
    for name in BAD:
        answers = set()
        for blob in ports:
            try:
                answers.add(blob.get(name))
            except NameRefusedError:
                answers.add("refused")
        assert len(answers) == 1, name
    consensus = [MemoryConsensus(lambda: 0), SqliteConsensus(tmp_path / "c.db")]
    for name in BAD:
        answers = set()
        for port in consensus:
            try:
                answers.add(port.head(name))
            except NameRefusedError:
                answers.add("refused")
        assert len(answers) == 1, name


# ---- symbolic links


def planted(store, tmp_path):
    shard = store.shard("orders", COLUMNS)
    with shard.writer() as writer:
        writer.append(pa.table({"id": list(range(20_000))}))
    (part,) = (tmp_path / "lake" / "blobs").rglob("*.parquet")
    return shard, part


def test_a_link_in_the_place_of_a_part_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(CANARY)
    with open_store(str(tmp_path / "lake"), upkeep=False) as store:
        shard, part = planted(store, tmp_path)
        part.unlink()
        part.symlink_to(tmp_path / "secret")
        blob = store.env.blob
        key = str(part.relative_to(tmp_path / "lake" / "blobs"))
        with pytest.raises(NotAppliedError, match=r"symbolic link.*never followed: remove it"):
            blob.get(key)
        assert [entry.key for entry in blob.list("")] == [], "a link is no object"
        assert shard.upper.time == 1
    assert (tmp_path / "secret").read_bytes() == CANARY


def test_a_link_in_the_place_of_a_folder_is_refused_for_reads_writes_and_lists(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.parquet").write_bytes(CANARY)
    blob = FilesBlob(tmp_path / "blobs")
    (tmp_path / "blobs" / "s1").symlink_to(outside)
    calls = [
        lambda: blob.get("s1/x.parquet"),
        lambda: blob.put("s1/y.parquet", b"y"),
        lambda: blob.put("s1/x.parquet", b"y"),
        lambda: blob.delete("s1/x.parquet"),
    ]
    for call in calls:
        with pytest.raises(NotAppliedError, match="symbolic link"):
            call()
    assert list(blob.list("")) == []
    assert [p.name for p in outside.iterdir()] == ["x.parquet"]
    assert (outside / "x.parquet").read_bytes() == CANARY


# ---- the command line


VERBS = [
    ["show", "{store}", "{name}"],
    ["tail", "{store}", "{name}", "--until", "0"],
    ["history", "{store}", "{name}"],
    ["holds", "{store}", "{name}"],
    ["retain", "{store}", "{name}", "1h"],
    ["compact", "{store}", "{name}"],
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_the_command_line_refuses_bad_names_in_one_harmless_line(verb, place, tmp_path):
    names = [name for name in BAD if isinstance(name, str) and "\0" not in name and name]
    for name in [*names[:12], *SQL[:3], "a\nb", "\x1b]0;owned\x07"]:
        words = [word.format(store=tmp_path / "lake", name="{name}") for word in verb]
        arguments = [name if word == "{name}" else word for word in words]
        arguments.insert(1, "--") if name.startswith("-") else None
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
        assert code != 0, (arguments, out.getvalue())
        shown = (out.getvalue() + err.getvalue()).strip()
        assert shown.replace("\n", "").isprintable(), name
        assert "Traceback" not in shown


def test_a_missing_shard_is_not_found_and_not_created(place):
    with pytest.raises(NotFoundError, match="shard nothing does not exist"):
        place.shard("nothing")
    with pytest.raises(StrandlineError):
        place.drop("nothing")
    assert place.shards() == []
