"""New files in a folder: JSON lines, CSV, Parquet, Avro. Each is taken whole, and once.

    option       default  meaning
    -----------  -------  -------------------------------------------------------------------
    path                  the folder; folders in it are looked into
    format       json     json, csv, parquet or avro
    suffix       any      how names end; others are passed over
    transaction           `file`: each file is a transaction of its own, begun when it is there
    csv.*                 see `reading`
    max*                  what is too much, see `filerows`

A file is read as a stream, however large it is; as it is taken whole, the bytes of a transaction
may be more than were wanted.
Files are taken in the order of their paths, as if each ended with an `@`. A name that begins with
`_` or `.`, or ends with `.tmp`, is not there yet: write a file under such a name, then rename it.
What was taken is known by its path and a hash of its content, so a file that has changed since is
not read as if it had not: `check` and `fetch` refuse it by name. Links are not followed, and
nothing outside of the folder is read (X1).
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.connectors.filerows import OPTIONS as _LIMITS, limits_of, rows_of
from strandline.connectors.options import refuse_unknown, required
from strandline.connectors.position import Position, Range
from strandline.connectors.reading import FORMATS
from strandline.connectors.source import Limits, Ports, ResolveSecret, Split
from strandline.errors import SourceError, SourceGoneError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

NAME = "files"
_OPTIONS = ("path", "format", "suffix", "transaction", *_LIMITS)
_READ_OPTIONS = ("path", "format", "csv.delimiter", "csv.columns", *_LIMITS)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a file was when it was hashed."""

    size: int
    changed_ns: int
    digest: str


class Files:
    """The source."""

    replayable = True

    def __init__(self, options: Mapping[str, str]) -> None:
        refuse_unknown(NAME, options, _OPTIONS)
        kind = options.get("format", "json")
        if kind not in FORMATS:
            raise UsageError(
                f"files of format {printable(kind)} can't be read: {', '.join(FORMATS)}"
            )
        if options.get("transaction", "file") != "file":
            raise UsageError(
                f"option transaction is {printable(options['transaction'])}: files know 'file', or "
                "leave it out"
            )
        limits_of(options)
        self.initiates = "transaction" in options
        self._folder = Path(required(NAME, options, "path"))
        self._suffix = options.get("suffix", "")
        self._options = {name: options[name] for name in _READ_OPTIONS if name in options}
        self._seen: dict[str, _Seen] = {}

    def latest(self) -> Position:
        seen = {path: self._look(path) for path, _ in self._listed()}
        return {f"{path}@{each.digest}": each.size for path, each in seen.items()}

    def plan(self, start: Position, limits: Limits) -> Range | None:
        taken = {path_of(partition) for partition in start}
        parts: dict[str, tuple[int, int]] = {}
        room = limits.bytes
        for path, size in self._listed():
            if path in taken or not size:
                continue
            full = (room is not None and size > room) or len(parts) == limits.rows
            if parts and (full or self.initiates):
                break
            seen = self._look(path)
            parts[f"{path}@{seen.digest}"] = (0, seen.size)
            room = None if room is None else room - size
        return Range(parts) if parts else None

    def splits(self, taken: Range) -> list[Split]:
        return [
            Split(NAME, self._options, partition, start, stop)
            for partition, (start, stop) in taken.filled().parts.items()
        ]

    def split_of(self, path: str) -> Split:
        """One file of the folder, as it is now."""
        seen = self._look(path)
        return Split(NAME, self._options, f"{path}@{seen.digest}", 0, seen.size)

    def check(self, taken: Range) -> None:
        for partition, (_, stop) in taken.filled().parts.items():
            path, digest = path_of(partition), partition.rpartition("@")[2]
            try:
                found = self._look(path)
            except SourceError as error:
                raise _gone(path, "it is not there any more") from error
            if found.size != stop or found.digest != digest:
                raise _gone(path, "its content has changed")

    def acknowledge(self, upto: Position) -> None:
        """Files are the user's: they stay until the user removes them."""

    def close(self) -> None: ...

    def _listed(self) -> list[tuple[str, int]]:
        """Whole files in the order of their rows, with their sizes.

        Rows are ordered by their partition, `path@digest`, which is another order than that of the
        paths where one of them begins with another. (Where the rest begins with an `@`, only the
        digest tells, which is not known yet.)
        """
        try:
            return sorted(self._walked(), key=lambda each: f"{each[0]}@")
        except OSError as error:
            where = printable(str(self._folder))
            raise SourceError(f"folder {where} can't be read: {error.strerror}") from error

    def _walked(self) -> Iterator[tuple[str, int]]:
        for folder, inside, names in os.walk(self._folder, onerror=_raise):
            inside[:] = sorted(name for name in inside if _is_whole(name))
            for name in names:
                path = Path(folder, name)
                if not (_is_whole(name) and name.endswith(self._suffix)):
                    continue
                told = path.lstat()
                if stat.S_ISREG(told.st_mode):
                    yield path.relative_to(self._folder).as_posix(), told.st_size

    def _look(self, path: str) -> _Seen:
        _check_name(path)
        with opened(self._folder, path) as stream:
            told = os.fstat(stream.fileno())
            known = self._seen.get(path)
            if known and (known.size, known.changed_ns) == (told.st_size, told.st_mtime_ns):
                return known
            digest = hashlib.file_digest(stream, _hash).hexdigest()
        self._seen[path] = _Seen(told.st_size, told.st_mtime_ns, digest)
        return self._seen[path]


def open_source(options: Mapping[str, str], ports: Ports) -> Files:  # noqa: ARG001 - the port
    return Files(options)


def path_of(partition: str) -> str:
    """The path in a partition's name.

    >>> path_of("2024/orders@home.json@0123456789abcdef")
    '2024/orders@home.json'
    """
    return partition.rpartition("@")[0]


def fetch(split: Split, resolve: ResolveSecret) -> Iterator[pa.RecordBatch]:  # noqa: ARG001 - the port
    """The rows of a whole file, as a stream: it is proved to be what was taken before the first
    of them is given, and to have stayed so after the last."""
    path, digest = path_of(split.partition), split.partition.rpartition("@")[2]
    try:
        stream = opened(Path(split.options["path"]), path)
    except SourceError as error:
        raise _gone(path, "it is not there any more") from error
    with stream:
        before = _told(stream)
        found = hashlib.file_digest(stream, _hash).hexdigest()
        if before[0] != split.stop or found != digest:
            raise _gone(path, "its content has changed")
        stream.seek(0)
        yield from rows_of(stream, path, split)
        if _told(stream) != before:
            raise _gone(path, "its content has changed")


def _told(stream: io.BufferedReader) -> tuple[int, int]:
    told = os.fstat(stream.fileno())
    return told.st_size, told.st_mtime_ns


def opened(folder: Path, path: str) -> io.BufferedReader:
    """A file below `folder`, reached without following a link on the way."""
    parts = Path(path).parts
    if not parts or Path(path).is_absolute() or ".." in parts or "\0" in path:
        raise SourceError(f"{printable(path)} is no file of the folder")
    try:
        return _opened(folder, parts)
    except OSError as error:
        raise SourceError(f"file {printable(path)} can't be read: {error.strerror}") from error


def _opened(folder: Path, parts: tuple[str, ...]) -> io.BufferedReader:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(name, flags, dir_fd=at)
            os.close(at)
            at = inner
        # Without blocking: a pipe of that name must not keep us waiting for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(parts[-1], flags, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(0, "it is not a file")
    return io.open(file, "rb")  # noqa: UP020 - given to the caller


def _hash() -> Any:  # noqa: ANN401 - hashlib names no type for it
    return hashlib.blake2b(digest_size=8)


def _raise(error: OSError) -> None:
    raise error


def _check_name(path: str) -> None:
    """What is taken goes on record by its path, as text."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise SourceError(
            f"file {printable(path)} is not taken: its name, or that of a folder that it is in, is "
            "no UTF-8; rename it, or move it out of the folder"
        ) from error


def _is_whole(name: str) -> bool:
    return not name.startswith(("_", ".")) and not name.endswith(".tmp")


def _gone(path: str, why: str) -> SourceGoneError:
    return SourceGoneError(
        f"file {printable(path)} was taken, but {why}: bring it back as it was, or amend the "
        "transaction"
    )
