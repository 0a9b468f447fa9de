"""Changes as files: a folder for each transaction, published by one manifest.

    option     default  meaning
    ---------  -------  ---------------------------------------------------------------------
    path                the folder, or `s3://bucket/prefix` and the like; one for each sink
    format     parquet  or `json`: a line for each change
    storage.*           what the object store is told: `storage.region`, …; secrets by reference

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

import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

from strandline.connectors import change_files
from strandline.connectors.folder import LocalFolder
from strandline.connectors.object_folder import object_folder
from strandline.connectors.options import refuse_unknown, required
from strandline.connectors.sink import NOTHING_YET, Address, Progress, ReadBack, filled
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from strandline.connectors.folder import Folder
    from strandline.connectors.sink import Delivered, SinkPorts

NAME = "files"
IDENTITY = ("path", "format")
FORMAT = 1
_MANIFESTS = "_manifests"
_FOUNDED = "_founded.json"
_DIGITS = 20
_OPTIONS = ("path", "format")
_STORAGE = "storage."
_HOME = re.compile(r"[0-9a-f]{24}")
"""What a lineage's folder is called: see `Address.digest`."""


class Founded(msgspec.Struct, frozen=True):
    """Whose lineage a folder holds."""

    format: int
    number: int
    """Lineages of a folder are counted: the newest, of those that have a manifest, is the one with
    the highest number."""
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
    files: tuple[str, ...]
    """Paths, or URLs."""
    kind: str
    columns: pa.Schema
    lineage: str
    """The history that it belongs to: changes of two of them do not add up."""
    opened: Callable[[str], IO[bytes]] = field(compare=False, repr=False)
    """Opens one of the files."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its changes: the columns and `_diff`."""
        for each in self.files:
            with self.opened(each) as file:
                yield from change_files.read(file, self.kind, self.columns)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self.batches(), schema=self.columns)


class FilesSink:
    """The sink."""

    def __init__(self, folder: Folder, kind: str, what: Delivered, token: str) -> None:
        self._folder = folder
        self._kind = kind
        self._address = what.address
        self._columns = change_files.with_diff(what.columns)
        self._home = what.address.digest
        self._token = token
        self._attempts = 0
        self._epoch = 0
        self._first = False
        """Whether the next delivery is the first of its lineage."""
        self._swept = True

    def prepare(self) -> None:
        """Clear what is half-written; again after the first delivery, which may settle more."""
        self._sweep(self._home)
        self._swept = False

    def progress(self) -> Progress | None:
        # What can be seen may not be durable: its writer may have died before it was.
        self._folder.settle(self._home)
        self._folder.settle(f"{self._home}/{_MANIFESTS}")
        newest, founded = self._newest(), _founded(self._folder, self._home)
        at = newest or founded
        self._first = at is None or at.t == NOTHING_YET
        if newest is not None:
            self._epoch = newest.epoch
        return None if at is None else Progress(at.t, at.epoch)

    def _refuse_gone(self) -> None:
        """A folder that is no longer there would be made anew, on whatever disk is below."""
        if _founded(self._folder, self._home) is None and self._newest() is None:
            raise SinkError(f"{self._folder.root} is gone, with what was published there")

    def _refuse_overtaken(self) -> None:
        """Readers follow the newest lineage: what is published to an older one nobody sees."""
        founded = _founded(self._folder, self._home)
        if founded is None:
            return
        for home, other in _lineages(self._folder):
            # Two that were founded at once have one number: the first to deliver is the newest.
            newer = home != self._home and other.number >= founded.number
            if newer and self._folder.names(f"{home}/{_MANIFESTS}"):
                raise SinkStoppedError(
                    f"{self._folder.root} has a newer lineage, {other.lineage}, which its readers "
                    "follow: publish to a new folder, or give the sink another name"
                )

    def found(self, at: Progress) -> None:
        if at.t > NOTHING_YET and self._newest() is None:
            # Every delivery leaves a manifest, so progress can't be gone alone.
            raise SinkStoppedError(
                f"{self._folder.root} has nothing of this sink, but everything up to {at.t} was "
                "delivered there: it was emptied or moved, or what it is on is not mounted; bring "
                "it back, or publish to a new folder, or give the sink another name, which begins "
                "with all that there is"
            )
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
        self._first = self._first and at.t == NOTHING_YET

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        batches = filled(t, changes, first=self._first)
        if epoch < self._epoch:
            raise SinkFencedError(f"{self._folder.root} is published to by e{self._epoch}")
        self._refuse_gone()
        if not self._swept:
            self._refuse_overtaken()
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
        self._epoch, self._first = epoch, False
        if not self._swept:
            self._swept = True
            self._sweep(self._home)
            self._sweep_older()

    def read_back(self) -> ReadBack | None:
        founded = _founded(self._folder, self._home)
        if founded is None:
            return None
        found = list(_published(self._folder, NOTHING_YET, self._address.lineage))
        at = Progress(founded.t, founded.epoch)
        if found:
            at = Progress(found[-1].t, found[-1].epoch)
        return ReadBack(at, (batch for each in found for batch in _read(each)))

    def close(self) -> None: ...

    def _write(
        self, attempt: str, batches: Iterator[pa.RecordBatch]
    ) -> tuple[tuple[str, ...], int]:
        """The files of an attempt and their rows; each file is of bounded size."""
        files: list[str] = []
        rows = 0
        first = next(batches, None)
        rest: Iterator[pa.RecordBatch] | None = None
        if first is not None:
            rest = chain((first,), batches)
        while rest is not None:
            name = f"part-{len(files):05}.{self._kind}"
            with self._folder.put(f"{self._home}/{attempt}/{name}") as file:
                count, rest = change_files.write(file, self._kind, self._columns, rest)
            files.append(name)
            rows += count
        return tuple(files), rows

    def _sweep(self, home: str) -> None:
        """Remove drafts, and all attempts at a published transaction but the one that counts.

        One that is not published stays: whoever made it may still come to publish it.
        """
        for folder in (home, f"{home}/{_MANIFESTS}"):
            self._folder.remove_drafts(folder)
        attempts: dict[str, list[str]] = {}
        for name in self._folder.names(home):
            t, _, word = name.partition("-")
            if word and t.isdigit():
                attempts.setdefault(t, []).append(name)
        for t, names in attempts.items():
            manifest = _manifest(self._folder, home, f"{t}.json") if len(names) > 1 else None
            for name in [] if manifest is None else names:
                if manifest is not None and name != manifest.attempt:
                    self._folder.remove(f"{home}/{name}")

    def _sweep_older(self) -> None:
        """Nobody opens older lineages any more, so what was left there is for this one to clear.

        What is damaged there, or can't be removed, is left alone: it is no reason to stop, or to
        open the sink again after each delivery, which is published by now.
        """
        with suppress(SinkError):
            for home, _ in _lineages(self._folder):
                if home != self._home:
                    with suppress(SinkError):
                        self._sweep(home)

    def _newest(self) -> Manifest | None:
        names = self._folder.names(f"{self._home}/{_MANIFESTS}")
        return _manifest(self._folder, self._home, names[-1]) if names else None


def open_sink(options: Mapping[str, str], what: Delivered, ports: SinkPorts) -> FilesSink:
    refuse_unknown(NAME, [name for name in options if not name.startswith(_STORAGE)], _OPTIONS)
    kind = options.get("format", "parquet")
    if kind not in change_files.KINDS:
        raise UsageError(
            f"changes can't be published as {printable(kind)}: use {', '.join(change_files.KINDS)}"
        )
    storage = {
        name.removeprefix(_STORAGE): ports.resolve(value)
        for name, value in options.items()
        if name.startswith(_STORAGE)
    }
    folder = _folder(required(NAME, options, "path"), ports.token, storage)
    return FilesSink(folder, kind, what, ports.token()[:16])


def _folder(path: str, token: Callable[[], str], storage: Mapping[str, str]) -> Folder:
    if "://" in path:
        return object_folder(path, storage)
    if storage:
        raise UsageError(f"option {_STORAGE}* is for object stores, and {printable(path)} is none")
    return LocalFolder(Path(path).absolute(), token)


def read_published(
    folder: str | Path,
    *,
    after: int | Published = NOTHING_YET,
    lineage: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> Iterator[Published]:
    """The transactions that a `files` sink has published after another one, in order.

        for last in read_published("/data/large", after=last):
            print(last.t, last.lineage, last.to_arrow())

    Only whole transactions are seen, each once. A sink that began anew (its view has changed or was
    rolled back, its store was cleared) has more than one lineage; the newest that has delivered is
    read if none is named, and all of it if `after` is of another one: whoever followed that one
    drops what it has.
    A number as `after` is a time, whatever the lineage. `storage` is what an object store is told.
    """
    yield from _published(_folder(str(folder), str, storage or {}), after, lineage)


def _published(place: Folder, after: int | Published, lineage: str | None) -> Iterator[Published]:
    home, newest, names = _newest_of(place, lineage)
    if isinstance(after, Published):
        after = after.t if after.lineage == newest else NOTHING_YET
    for name in names:
        if int(name.removesuffix(".json")) <= after:
            continue
        manifest = _manifest(place, home, name)
        if manifest is not None:
            yield Published(
                manifest.t,
                manifest.epoch,
                manifest.rows,
                tuple(f"{place.root}/{home}/{manifest.attempt}/{each}" for each in manifest.files),
                manifest.kind,
                change_files.unpacked(manifest.columns),
                newest,
                place.opened,
            )


def _newest_of(place: Folder, lineage: str | None) -> tuple[str, str, list[str]]:
    """The folder, the name and the manifests of the lineage that readers follow.

    One that has delivered nothing replaces nothing, however high its number: it may be yet to
    begin, or was founded by a publisher that others had overtaken before it came to that.
    """
    found = [
        (mark.number, home, mark.lineage)
        for home, mark in _lineages(place)
        if lineage is None or mark.lineage == lineage
    ]
    for _, home, name in sorted(found, reverse=True):
        if names := place.names(f"{home}/{_MANIFESTS}"):
            return home, name, names
    return "", "", []


def _read(published: Published) -> Iterator[pa.RecordBatch]:
    """The changes of a transaction; files that are not as they were published are named."""
    for place in published.files:
        what = f"{place} of transaction {published.t}"
        try:
            with published.opened(place) as file:
                yield from change_files.read(file, published.kind, published.columns)
        except FileNotFoundError as error:
            raise SinkStoppedError(f"{what} is missing") from error
        except (OSError, pa.ArrowException, msgspec.MsgspecError, KeyError, ValueError) as error:
            raise SinkStoppedError(f"{what} is damaged: {printable(error, 200)}") from error


def _lineages(folder: Folder) -> list[tuple[str, Founded]]:
    found = []
    for home in folder.names(""):
        mark = _founded(folder, home) if _HOME.fullmatch(home) else None
        if mark is not None:
            found.append((home, mark))
    return found


def _founded(folder: Folder, home: str) -> Founded | None:
    content = folder.read(f"{home}/{_FOUNDED}")
    return None if content is None else _decoded(content, Founded, f"{folder.root}/{home}")


def _manifest(folder: Folder, home: str, name: str) -> Manifest | None:
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
