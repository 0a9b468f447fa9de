"""A prefix of an object store does what a folder does: whole, once, for good."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from obstore.store import MemoryStore

from strandline.connectors.files_sink import FilesSink, open_sink, read_published
from strandline.connectors.object_folder import ObjectFolder, object_folder
from strandline.connectors.sink import Delivered, SinkPorts
from strandline.errors import SinkError, UsageError
from strandline.testing.conformance_sink import WHAT, SinkStand, check_sink, founded

TOKENS = count()
PORTS = SinkPorts(lambda value: value.replace("env:KEY", "TIDE"), lambda: "0" * 32)


def token() -> str:
    return f"{next(TOKENS):08}"


def stand(store: MemoryStore, kind: str) -> SinkStand:
    def folder(step: Callable[[str], None] = lambda _: None) -> ObjectFolder:
        return ObjectFolder("memory://here", store, step)

    def new(what: Delivered, step: Callable[[str], None]) -> FilesSink:
        return FilesSink(folder(step), kind, what, token())

    def read(what: Delivered) -> list[tuple[int, int, pa.Table]]:
        from strandline.connectors.files_sink import _published

        found = _published(folder(), -1, what.address.lineage)
        return [(each.t, each.epoch, each.to_arrow()) for each in found]

    return SinkStand(new, read)


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_a_sink_on_it_keeps_the_contract(kind: str) -> None:
    check_sink(lambda: stand(MemoryStore(), kind))


def test_of_two_who_create_a_name_one_is_told_that_it_was_there() -> None:
    folder = ObjectFolder("memory://here", MemoryStore())
    assert folder.create("a/b", b"first")
    assert not folder.create("a/b", b"second")
    assert folder.read("a/b") == b"first"
    assert folder.read("a/c") is None


def test_names_are_those_of_one_level() -> None:
    folder = ObjectFolder("memory://here", MemoryStore())
    for name in ("a/b/c", "a/d", "e"):
        folder.create(name, b"")
    assert (folder.names(""), folder.names("a"), folder.names("x")) == (["a", "e"], ["b", "d"], [])
    folder.remove("a")
    assert folder.names("") == ["e"]


def test_a_url_is_published_to_and_read_back(tmp_path: Path) -> None:
    sink = open_sink({"path": f"file://{tmp_path}", "format": "json"}, WHAT, PORTS)
    sink.prepare()
    assert sink.progress() is None
    founded(SinkStand(lambda *_: sink, lambda _: []), 0, 1)
    found = list(read_published(f"file://{tmp_path}"))
    assert [each.t for each in found] == [0, 1]
    assert all(each.to_arrow().num_rows == each.rows for each in found)
    assert all(name.startswith(f"file://{tmp_path}/") for each in found for name in each.files)


@pytest.mark.parametrize(
    ("path", "storage", "message"),
    [
        ("nonsense://x/y", {}, "can't be opened"),
        ("s3://bucket/x", {"storage.nonsense": "1"}, "can't be opened"),
        ("/tmp/x", {"storage.region": "here"}, "is for object stores"),
    ],
)
def test_what_can_not_be_opened_is_refused(path: str, storage: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_sink({"path": path, **storage}, WHAT, PORTS)


def test_s90_a_secret_is_in_no_error() -> None:
    told = {"region": "x", "access_key_id": "TIDE", "secret_access_key": "TIDE",
            "endpoint": "http://127.0.0.1:9", "allow_http": "true"}  # fmt: skip
    folder = object_folder("s3://bucket/x", told)
    with pytest.raises(SinkError) as caught:
        folder.create("a", b"")
    assert "TIDE" not in str(caught.value)
