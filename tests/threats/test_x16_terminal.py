"""X16, X21: control characters reach no log, no error and no terminal as they are."""

from __future__ import annotations

import json
import logging
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pyarrow as pa
import pytest

from strandline.assembly import open_store
from strandline.cli.main import main
from strandline.errors import StrandlineError
from strandline.shard.settings import Settings

EVIL = "a\nFAKE 12:00 root logged in\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2028end"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    path = tmp_path_factory.mktemp("x16") / "lake"
    store = open_store(str(path), upkeep=False, settings=Settings(lease_ms=5_000))
    shard = store.shard("orders", COLUMNS, ["id"])
    writer = shard.writer(EVIL)
    writer.append([{"id": 1, "name": EVIL}])
    reader = shard.reader(purpose=EVIL)
    shard.hold("keep", 0, note=EVIL)
    yield path
    reader.close()
    writer.close()
    store.close()


def run(*arguments):
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(each) for each in arguments])
    return code, out.getvalue(), err.getvalue()


def harmless(text):
    return all(line.isprintable() for line in text.split("\n"))


VERBS = [
    ("show", "orders", "--rows", "10"),
    ("show", "orders"),
    ("tail", "orders", "--until", "1"),
    ("holds", "orders"),
    ("holds",),
    ("shards",),
    ("history", "orders"),
    ("show", "orders", "--rows", "10", "--filter", f"name = '{EVIL}'"),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb)[:30])
def test_what_a_person_stored_is_shown_escaped(verb, lake):
    name, *rest = verb
    code, out, err = run(name, lake, *rest)
    assert harmless(out), out
    assert harmless(err), err
    assert "\nFAKE" not in out + err, "one value stays on one line"
    assert code in {0, 1, 2}


def test_the_value_is_there_and_escaped(lake):
    code, out, _ = run("show", lake, "orders", "--rows", "10", "--json")
    assert code == 0
    assert harmless(out)
    assert EVIL in json.dumps(json.loads(out), ensure_ascii=False) or EVIL in _texts(
        json.loads(out)
    )


def _texts(found):
    if isinstance(found, dict):
        return [text for each in found.values() for text in _texts(each)]
    if isinstance(found, list):
        return [text for each in found for text in _texts(each)]
    return [found]


def errors(shard):
    """Calls that fail with something of the caller's in their message."""
    yield lambda: shard.snapshot(columns=[EVIL])
    yield lambda: shard.snapshot(filter=[(EVIL, "=", 1)])
    yield lambda: shard.snapshot(filter=[("id", EVIL, 1)])
    yield lambda: shard.snapshot(filter=[("id", "=", EVIL)])
    yield lambda: shard.snapshot(filter=EVIL)
    yield lambda: shard.snapshot(EVIL)
    yield lambda: shard.retain(EVIL)
    yield lambda: shard.hold(EVIL, 0)
    yield lambda: shard.wait_past(EVIL)
    yield lambda: shard.reader(since=EVIL)
    yield lambda: shard.evolve(pa.schema([(EVIL, pa.int64())]))
    yield lambda: shard.subscribe(0, on_error=EVIL)
    yield lambda: shard.writer().append(pa.table({EVIL: [1]}))
    yield lambda: shard.writer().append([{"id": EVIL, "name": "x"}])
    yield lambda: shard.writer().append([{"id": 1, "name": "x", EVIL: 1}])


def test_what_a_caller_gave_is_escaped_in_errors_and_logs(caplog):
    caplog.set_level(logging.DEBUG)
    with open_store("memory://", upkeep=False) as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            writer.append([{"id": 1, "name": "x"}])
        for number, call in enumerate(errors(shard)):
            with pytest.raises(StrandlineError) as told:
                call()
            assert str(told.value).isprintable(), (number, str(told.value))
    for record in caplog.records:
        assert record.getMessage().isprintable(), record
