"""The few calls through which `files` reaches a disk, and the real ones.

Every name is opened relative to the descriptor of its folder and no symbolic link is ever
followed, so nothing in a store can lead out of it (X1). `strandline.testing.disk` has a disk
that forgets what was not synced.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_WRITE_MAX = 1 << 30
_LARGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
# On macOS fsync stops at the drive's own cache; this call does not.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Kind(Enum):
    """What a name in a folder stands for."""

    FILE = "a file"
    FOLDER = "a folder"
    OTHER = "a symbolic link or a device: never opened"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder."""

    name: str
    kind: Kind
    size: int
    modified_ms: int


class Disk(Protocol):
    """Files and folders by descriptor. Every call may raise `OSError`, and nothing else."""

    def open_root(self, path: Path) -> int:
        """Open a folder by path; create it, durably and for its owner only, if need be."""
        ...

    def open_folder(self, folder: int, name: str) -> int: ...

    def make_folder(self, folder: int, name: str) -> None: ...

    def create(self, folder: int, name: str) -> int:
        """Create and open a file that must not exist yet."""
        ...

    def open_file(self, folder: int, name: str) -> int: ...

    def write(self, file: int, value: bytes) -> None: ...

    def size(self, file: int) -> int: ...

    def read(self, file: int, start: int, length: int) -> bytes:
        """Return that much, fewer only at the end of the file."""
        ...

    def view(self, file: int, length: int) -> memoryview:
        """The same from the first byte on, for a large file: a view that can't be written to."""
        ...

    def sync(self, descriptor: int) -> None:
        """Make a file's content, or a folder's names, survive a power cut."""
        ...

    def rename(self, folder: int, old: str, new: str) -> None: ...

    def unlink(self, folder: int, name: str) -> None: ...

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove a folder that is empty; in one that was removed nothing can be created."""
        ...

    def entries(self, folder: int) -> Iterator[Entry]: ...

    def kind(self, folder: int, name: str) -> Kind: ...

    def close(self, descriptor: int) -> None: ...


class OsDisk:
    """The disk of this machine."""

    def open_root(self, path: Path) -> int:
        make_folders(path)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def open_folder(self, folder: int, name: str) -> int:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=folder)

    def make_folder(self, folder: int, name: str) -> None:
        os.mkdir(name, 0o700, dir_fd=folder)
        os.chmod(name, 0o700, dir_fd=folder)  # Whatever the umask.

    def create(self, folder: int, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
        file = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            os.fchmod(file, 0o600)  # Whatever the umask.
        except OSError:
            os.close(file)
            raise
        return file

    def open_file(self, folder: int, name: str) -> int:
        # Without O_NONBLOCK, opening a named pipe that somebody left here would hang.
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise IsADirectoryError(f"{name} is not a file")
        return file

    def write(self, file: int, value: bytes) -> None:
        rest = memoryview(value)
        while rest:
            rest = rest[os.write(file, rest[:_WRITE_MAX]) :]

    def size(self, file: int) -> int:
        return os.fstat(file).st_size

    def read(self, file: int, start: int, length: int) -> bytes:
        first = os.pread(file, min(length, _WRITE_MAX), start)
        if len(first) == length or not first:
            return first
        pieces, have = [first], len(first)
        while have < length:
            piece = os.pread(file, min(length - have, _WRITE_MAX), start + have)
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        return b"".join(pieces)

    def view(self, file: int, length: int) -> memoryview:
        # Into memory of large pages: for a `bytes` every small page has to be made first, which
        # takes longer than the copy. The file itself is not mapped: where a disk fails, a read
        # raises an error, and a map ends the process.
        room = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if _LARGE_PAGES is not None:
            with suppress(OSError):  # A kernel may be built without them.
                room.madvise(_LARGE_PAGES)
        view = memoryview(room)
        have = 0
        while have < length:
            got = os.preadv(file, [view[have : have + _WRITE_MAX]], have)
            if not got:
                break
            have += got
        return view[:have].toreadonly()

    def sync(self, descriptor: int) -> None:
        sync(descriptor)

    def rename(self, folder: int, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)

    def unlink(self, folder: int, name: str) -> None:
        os.unlink(name, dir_fd=folder)

    def remove_folder(self, folder: int, name: str) -> None:
        os.rmdir(name, dir_fd=folder)

    def entries(self, folder: int) -> Iterator[Entry]:
        # Scanning moves the position of a descriptor, so each scan has its own.
        own = os.open(".", os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=folder)
        try:
            with os.scandir(own) as found:
                for entry in found:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # It was deleted while we looked.
                    modified_ms = status.st_mtime_ns // 1_000_000
                    yield Entry(entry.name, _kind(status.st_mode), status.st_size, modified_ms)
        finally:
            os.close(own)

    def kind(self, folder: int, name: str) -> Kind:
        return _kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Make a file's content, or a folder's names, survive a power cut."""
    if _FULL_SYNC is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_folders(path: Path) -> None:
    """Create a folder and those above it, for their owner only, and durably.

    The folder above is synced even if the folder was there: another process may have created
    it a moment ago and not have come to that.
    """
    if path.is_dir():
        try:
            sync_folder(path.parent)
        except PermissionError:
            return  # A folder above that is not ours was not made by us either.
        return
    make_folders(path.parent)
    try:
        path.mkdir(0o700)
        path.chmod(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
    sync_folder(path.parent)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.FOLDER if stat.S_ISDIR(mode) else Kind.OTHER
