"""X3: nothing that is read is ever unpickled: a planted payload is refused and never runs."""

from __future__ import annotations

import pickle
import shutil
import sqlite3
import sys
from contextlib import closing

import pytest

from strandline.errors import CorruptionError
from strandline.parts.envelope import seal
from strandline.reading.descriptor import decode_descriptor
from strandline.store.locate import BLOB_FOLDER, CONSENSUS_FILE, open_folder
from strandline.testing.specimen import KINDS, fill, kind_of, open_ports, read_all

RAN = []


def detonate(where):
    RAN.append(where)


class Payload:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return (detonate, ("a payload ran",))


PAYLOAD = pickle.dumps(Payload())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("x3") / "lake"
    with open_ports(*open_folder(str(path), create=True)) as store:
        fill(store)
    return path


@pytest.fixture
def watched(monkeypatch):
    """Unpickling by our modules is an error, wherever it happens."""
    loads = pickle.loads

    def guarded(*args, **words):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith("strandline"):
            RAN.append(f"{caller} unpickles")  # Whoever asks may catch what we would raise.
        return loads(*args, **words)

    monkeypatch.setattr(pickle, "loads", guarded)
    monkeypatch.setattr(pickle, "load", guarded)
    RAN.clear()
    yield
    assert RAN == []


def test_the_payload_works():
    """The canary itself: unpickled, it runs."""
    RAN.clear()
    pickle.loads(PAYLOAD)
    assert RAN == ["a payload ran"]
    RAN.clear()


def plant(path, kind, data):
    """Put bytes in the place of every object of a kind."""
    planted = 0
    for file in sorted((path / BLOB_FOLDER).rglob("*.*")):
        if kind_of(str(file.relative_to(path / BLOB_FOLDER))) == kind:
            file.write_bytes(data)
            planted += 1
    with closing(sqlite3.connect(path / CONSENSUS_FILE)) as connection, connection:
        keys = {key for (key,) in connection.execute("select distinct key from versions")}
        for key in keys:
            if kind_of(key) == kind:
                sealed = data if data == PAYLOAD else seal("record", key, "v0", data)
                connection.execute("update versions set data = ? where key = ?", (sealed, key))
                planted += 1
    return planted


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "sealed"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_payload_in_the_place_of_an_object_is_refused_and_does_not_run(
    kind, wrapped, whole, tmp_path, watched
):
    path = tmp_path / "lake"
    shutil.copytree(whole, path)
    data = seal("record", "x", "v0", PAYLOAD) if wrapped else PAYLOAD
    assert plant(path, kind, data)
    try:
        with open_ports(*open_folder(str(path), create=False)) as store:
            read_all(store)
    except CorruptionError as error:
        refused = str(error)
    else:
        refused = ""
    assert bool(refused) != (kind == "stats"), "statistics that can't be read rule nothing out"


def test_a_payload_in_a_descriptor_that_travels_is_refused(watched):
    for data in (PAYLOAD, seal("descriptor", f"s{'0' * 32}", "", PAYLOAD)):
        with pytest.raises(CorruptionError, match="descriptor is damaged"):
            decode_descriptor(data)


def test_a_descriptor_holds_no_pickle(whole, tmp_path):
    path = tmp_path / "lake"
    shutil.copytree(whole, path)
    with open_ports(*open_folder(str(path), create=False)) as store:
        content = b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())
        assert store.shards()
    # The opcodes by which a pickle names what to call: protocol mark, global, reduce.
    assert b"\x80\x04\x95" not in content
    assert b"c__builtin__" not in content
