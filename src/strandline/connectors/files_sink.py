"""Changes as files: a folder for each transaction, published by one manifest.

    option  default  meaning
    ------  -------  ------------------------------------------------------------------------
    path             the folder; one for each sink
    format  parquet  or `json`: a line for each change

    path/
      d41d8c…/                          one lineage (see `sink.Address`)
        _founded.json                   whose it is, and the how many-th here
        00000000000000000007-5fc3…/     one attempt to deliver transaction 7
          part-00000.parquet            columns and `_diff`
        _manifests/
          00000000000000000007.json     transaction 7: its attempt's files, epoch, rows

A manifest appears whole and once, so readers that follow manifests see whole transactions only,
each once, in order of their names. The newest manifest is the progress. Two publishers may race:
each writes into a folder of its own, and of two manifests for one transaction the first counts.
An attempt is removed only after a manifest of its transaction is there, so what a manifest refers
to is never removed under it, however late its writer comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

from strandline.connectors import change_files
from strandline.connectors.folder import LocalFolder
from strandline.connectors.options import refuse_unknown, required
from strandline.connectors.sink import NOTHING_YET, Address, Progress, filled
from strandline.errors import SinkFencedError, SinkStoppedError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from strandline.connectors.sink import Delivered, SinkPorts

NAME = "files"
IDENTITY = ("path", "format")
FORMAT = 1
_MANIFESTS = "_manifests"
_FOUNDED = "_founded.json"
_DIGITS = 20
_OPTIONS = ("path", "format")


class Founded(msgspec.Struct, frozen=True):
    """Whose lineage a folder holds."""

    format: int
    number: int
    """Lineages of a folder are counted: the newest has the highest number."""
    store: str
    pipeline: str
    sink: str
    lineage: str
    t: int
    epoch: int


class Manifest(msgspec.Struct, frozen=True):
    """One published transaction."""

    format: int
    t: int
    epoch: int
    attempt: str
    kind: str
    files: tuple[str, ...]
    rows: int
    columns: str
    """The Arrow schema, serialised and in base64."""


_Record = TypeVar("_Record", Founded, Manifest)


@dataclass(frozen=True, slots=True)
class Published:
    """One transaction as its readers see it."""

    t: int
    epoch: int
    rows: int
    files: tuple[Path, ...]
    kind: str
    columns: pa.Schema
    lineage: str
    """The history that it belongs to: changes of two of them do not add up."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its changes: the columns and `_diff`."""
        for path in self.files:
            yield from change_files.read(path, self.kind, self.columns)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self.batches(), schema=self.columns)


class FilesSink:
    """The sink."""

    def __init__(self, folder: LocalFolder, kind: str, what: Delivered, token: str) -> None:
        self._folder = folder
        self._kind = kind
        self._address = what.address
        self._columns = change_files.with_diff(what.columns)
        self._home = what.address.digest
        self._token = token
        self._attempts = 0
        self._epoch = 0
        self._swept = True

    def prepare(self) -> None:
        """Clear what is half-written; again after the first delivery, which may settle more."""
        self._folder.remove_drafts(f"{self._home}/{_MANIFESTS}")
        self._sweep()
        self._swept = False

    def progress(self) -> Progress | None:
        # What can be seen may not be durable: its writer may have died before it was.
        self._folder.settle(self._home)
        self._folder.settle(f"{self._home}/{_MANIFESTS}")
        newest = self._newest()
        if newest is not None:
            self._epoch = newest.epoch
            return Progress(newest.t, newest.epoch)
        founded = _founded(self._folder, self._home)
        return None if founded is None else Progress(founded.t, founded.epoch)

    def found(self, at: Progress) -> None:
        others = [each for each in _lineages(self._folder) if each[0] != self._home]
        for _, other in others:
            if (other.pipeline, other.sink) != (self._address.pipeline, self._address.sink):
                raise SinkStoppedError(
                    f"{self._folder.root} is published to by sink {other.sink} of pipeline "
                    f"{other.pipeline}: give each sink a folder of its own"
                )
        number = 1 + max((other.number for _, other in others), default=0)
        mark = Founded(FORMAT, number, *_parts(self._address), at.t, at.epoch)
        self._folder.create(f"{self._home}/{_FOUNDED}", msgspec.json.encode(mark))

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        batches = filled(t, changes)
        if epoch < self._epoch:
            raise SinkFencedError(f"{self._folder.root} is published to by e{self._epoch}")
        self._attempts += 1
        attempt = f"{_name(t)}-{self._token}{self._attempts}"
        files, rows = self._write(attempt, batches)
        manifest = Manifest(
            FORMAT, t, epoch, attempt, self._kind, files, rows, change_files.packed(self._columns)
        )
        encoded = msgspec.json.encode(manifest)
        if not self._folder.create(f"{self._home}/{_MANIFESTS}/{_name(t)}.json", encoded):
            raise SinkFencedError(
                f"{self._folder.root} has transaction {t} already: another publisher was faster"
            )
        self._epoch = epoch
        if not self._swept:
            self._swept = True
            self._sweep()

    def close(self) -> None: ...

    def _write(
        self, attempt: str, batches: Iterator[pa.RecordBatch]
    ) -> tuple[tuple[str, ...], int]:
        """The files of an attempt and their rows; each file is of bounded size."""
        files: list[str] = []
        rows = 0
        rest: Iterator[pa.RecordBatch] | None = batches
        while rest is not None:
            name = f"part-{len(files):05}.{self._kind}"
            with self._folder.put(f"{self._home}/{attempt}/{name}") as file:
                count, rest = change_files.write(file, self._kind, self._columns, rest)
            files.append(name)
            rows += count
        return tuple(files), rows

    def _sweep(self) -> None:
        """Remove all attempts at a published transaction but the one that counts.

        One that is not published stays: whoever made it may still come to publish it.
        """
        attempts: dict[str, list[str]] = {}
        for name in self._folder.names(self._home):
            t, _, word = name.partition("-")
            if word and t.isdigit():
                attempts.setdefault(t, []).append(name)
        for t, names in attempts.items():
            manifest = _manifest(self._folder, self._home, f"{t}.json") if len(names) > 1 else None
            for name in [] if manifest is None else names:
                if manifest is not None and name != manifest.attempt:
                    self._folder.remove(f"{self._home}/{name}")

    def _newest(self) -> Manifest | None:
        names = self._folder.names(f"{self._home}/{_MANIFESTS}")
        return _manifest(self._folder, self._home, names[-1]) if names else None


def open_sink(options: Mapping[str, str], what: Delivered, ports: SinkPorts) -> FilesSink:
    refuse_unknown(NAME, options, _OPTIONS)
    kind = options.get("format", "parquet")
    if kind not in change_files.KINDS:
        raise UsageError(
            f"changes can't be published as {printable(kind)}: use {', '.join(change_files.KINDS)}"
        )
    path = Path(required(NAME, options, "path")).absolute()
    return FilesSink(LocalFolder(path, ports.token), kind, what, ports.token()[:16])


def read_published(
    folder: str | Path, *, after: int | Published = NOTHING_YET, lineage: str | None = None
) -> Iterator[Published]:
    """The transactions that a `files` sink has published after another one, in order.

        for last in read_published("/data/large", after=last):
            print(last.t, last.lineage, last.to_arrow())

    Only whole transactions are seen, each once. A sink that began anew (its view has changed or was
    rolled back, its store was cleared) has more than one lineage; the newest is read if none is
    named, and all of it if `after` is of another one: whoever followed that one drops what it has.
    A number as `after` is a time, whatever the lineage.
    """
    place = LocalFolder(Path(folder).absolute(), str)
    found = [
        (mark.number, home, mark.lineage)
        for home, mark in _lineages(place)
        if lineage is None or mark.lineage == lineage
    ]
    if not found:
        return
    _, home, newest = max(found)
    if isinstance(after, Published):
        after = after.t if after.lineage == newest else NOTHING_YET
    for name in place.names(f"{home}/{_MANIFESTS}"):
        if int(name.removesuffix(".json")) <= after:
            continue
        manifest = _manifest(place, home, name)
        if manifest is not None:
            yield Published(
                manifest.t,
                manifest.epoch,
                manifest.rows,
                tuple(place.root / home / manifest.attempt / each for each in manifest.files),
                manifest.kind,
                change_files.unpacked(manifest.columns),
                newest,
            )


def _lineages(folder: LocalFolder) -> list[tuple[str, Founded]]:
    found = []
    for home in folder.names(""):
        mark = _founded(folder, home) if (folder.root / home).is_dir() else None
        if mark is not None:
            found.append((home, mark))
    return found


def _founded(folder: LocalFolder, home: str) -> Founded | None:
    content = folder.read(f"{home}/{_FOUNDED}")
    return None if content is None else _decoded(content, Founded, f"{folder.root}/{home}")


def _manifest(folder: LocalFolder, home: str, name: str) -> Manifest | None:
    content = folder.read(f"{home}/{_MANIFESTS}/{name}")
    return None if content is None else _decoded(content, Manifest, f"manifest {name}")


def _decoded(content: bytes, kind: type[_Record], what: str) -> _Record:
    try:
        found = msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise SinkStoppedError(f"{what} is damaged: {printable(error, 200)}") from error
    if found.format > FORMAT:
        raise SinkStoppedError(f"{what} was written by a newer version: upgrade Strandline")
    return found


def _parts(address: Address) -> tuple[str, str, str, str]:
    return address.store, address.pipeline, address.sink, address.lineage


def _name(t: int) -> str:
    return f"{t:0{_DIGITS}}"
