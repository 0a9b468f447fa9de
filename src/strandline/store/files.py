"""The Blob port on a folder of files.

An object is one file, and its key is its path below the root. A put is, in this order:

    1  folders    made if missing, each synced into the one above   crash: empty folders
    2  create     a name of this attempt alone, `.put-…`            crash: a leftover
    3  write, sync the file                                         crash: a leftover
    4  rename to the object's name                                  crash: there or not, whole
    5  sync the folder                                              then it is there for good

A name that starts with a dot is no key, so a leftover is never listed nor read; `leftovers`
shows them. An error before 4 is *did not happen*, except that a failed sync is always *may
have happened*: the system may call the same bytes clean the next time it is asked, so only a
whole new put, with a new file, may claim success after it.

A delete removes the folders that it leaves empty; whether that survives a power cut does not
matter. So a folder may go at any moment, and another process may make one of the same name that
nobody has synced: a name proves nothing. A client therefore keeps the folder itself open after
step 1. In one that was removed nothing can be created, and then the put starts again.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import (
    HandleClosedError,
    MaybeAppliedError,
    NameRefusedError,
    NotAppliedError,
    StoreError,
)
from strandline.model.ids import printable, valid_key, valid_prefix
from strandline.store.blob import BlobEntry
from strandline.store.disk import Kind, OsDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.store.blob import Content
    from strandline.store.disk import Disk, Entry

_Names = tuple[str, ...]
_LEFTOVER = ".put-"
_OPEN_MAX = 64
"""So many folders stay open; each needs a descriptor, of which a process has a few hundred."""
_LARGE = 1 << 20
"""From so many bytes on an object is given as a view: below, `bytes` are as fast."""
_ATTEMPTS = 100
"""Each is lost only to somebody who emptied the same folder at the same moment."""
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space, then try again",
    errno.EDQUOT: "the disk quota is used up: free some space, then try again",
    errno.EROFS: "the file system is read-only: mount it writable",
    errno.EACCES: "permission denied: the folder must belong to the user who runs this",
    errno.EPERM: "permission denied: the folder must belong to the user who runs this",
    errno.ELOOP: "a symbolic link is in the way, and links are never followed: remove it",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine",
    errno.EISDIR: "a folder of that name is in the way: a key may not begin another key",
    errno.ENOTDIR: "a file is in the way: a key may not begin another key",
    errno.EEXIST: "a file is in the way: a key may not begin another key",
    errno.EIO: "the disk reported an input/output error: check it",
}
# A rename or an unlink that failed with one of these changed nothing.
_REFUSED = {*_ADVICE, errno.ENOENT} - {errno.EIO}


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that a put began and, so far, did not finish. Its writer may still be alive."""

    path: str
    size: int
    modified_ms: int


class _Open:
    """A folder's descriptor; closed when the last call that uses it is over.

    A number closed while another task still uses it could come to mean another folder.
    """

    __slots__ = ("disk", "folder")

    def __init__(self, disk: Disk, folder: int) -> None:
        self.disk = disk
        self.folder = folder

    def __del__(self) -> None:
        with suppress(OSError):
            self.disk.close(self.folder)


class FilesBlob:
    """Objects as files below `root`, readable by their owner only."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._disk: Disk = disk or OsDisk()
        self._path = root
        with _told(f"open folder {root}"):
            self._root: _Open | None = _Open(self._disk, self._disk.open_root(root))
        # Folders whose own names this client has synced, up to the root, the last used last. A
        # folder that is merely there may have been made by another process that has not yet.
        self._durable: dict[_Names, _Open] = {}

    def get(self, key: str) -> Content | None:
        with _told(f"read object {key}"), suppress(*_ABSENT), self._object(key) as (file, size):
            if size >= _LARGE:
                return self._disk.view(file, size)
            return self._disk.read(file, 0, size)
        return None

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        with _told(f"read object {key}"), suppress(*_ABSENT), self._object(key) as (file, size):
            first = start if start >= 0 else max(0, size + start)
            return self._disk.read(file, first, max(0, min(length, size - first)))
        return None

    def put(self, key: str, value: bytes) -> None:
        where, name = _place(key)
        what = f"write object {key}"
        with _told(what):
            try:
                folder, attempt, file = self._create(where, what)
                self._write(folder.folder, attempt, file, value, what)
                self._rename(folder.folder, attempt, name, what)
                self._sync(folder.folder, what)
            except (OSError, StoreError):
                self._durable.pop(where, None)  # Whatever went wrong, trust nothing next time.
                raise

    def delete(self, key: str) -> bool:
        above, name = _place(key)
        with _told(f"delete object {key}"):
            return self._remove(above, name)

    def list(self, prefix: str) -> Iterator[BlobEntry]:
        above, _, partial = valid_prefix(prefix).rpartition("/")
        names = tuple(above.split("/")) if above else ()
        return self._list(prefix, names, partial)

    def leftovers(self) -> Iterator[Leftover]:
        """Files that puts have begun and not finished, of this process and of all others."""
        with _told(f"list folder {self._path}"):
            for above, entry in self._walk((), ""):
                if entry.name.startswith(_LEFTOVER):
                    path = "/".join((*above, entry.name))
                    yield Leftover(path, entry.size, entry.modified_ms)

    def remove_leftover(self, leftover: Leftover) -> bool:
        """Remove one; say whether it was there. A put that still needs it will fail whole."""
        folder_path, _, name = leftover.path.rpartition("/")
        above = tuple(valid_key(folder_path).split("/")) if folder_path else ()
        if not name.startswith(_LEFTOVER):
            raise NameRefusedError(f"file {printable(leftover.path)} is no leftover")
        with _told(f"delete leftover {leftover.path}"):
            return self._remove(above, name)

    def close(self) -> None:
        self._root = None
        self._durable.clear()

    # Reading.

    @contextmanager
    def _object(self, key: str) -> Iterator[tuple[int, int]]:
        """Its file, opened, and how large that is."""
        above, name = _place(key)
        with self._folder(above) as folder, self._opened(folder, name) as file:
            yield file, self._disk.size(file)

    def _list(self, prefix: str, names: _Names, partial: str) -> Iterator[BlobEntry]:
        with _told(f"list prefix {prefix!r}"):
            for above, entry in self._walk(names, partial):
                if entry.kind is Kind.FILE and _is_key(entry.name):
                    yield BlobEntry("/".join((*above, entry.name)), entry.size)

    def _walk(self, names: _Names, partial: str) -> Iterator[tuple[tuple[str, ...], Entry]]:
        """Every entry but folders at or below `names`; `partial` begins the first name."""
        try:
            with self._folder(names) as folder:
                entries = [e for e in self._disk.entries(folder) if e.name.startswith(partial)]
        except _ABSENT:
            return
        for entry in entries:
            if entry.kind is not Kind.FOLDER:
                yield names, entry
            elif not entry.name.startswith("."):
                yield from self._walk((*names, entry.name), "")

    # Writing.

    def _create(self, where: _Names, what: str) -> tuple[_Open, str, int]:
        """Steps 1 and 2 of a put: the folder, the name of the attempt and its file."""
        attempt = _LEFTOVER + os.urandom(12).hex()
        for _ in range(_ATTEMPTS):
            try:
                folder = self._folder_for(where, what)
                return folder, attempt, self._disk.create(folder.folder, attempt)
            except FileNotFoundError:
                self._durable.pop(where, None)
        raise FileNotFoundError(errno.ENOENT, "its folder is removed again and again")

    def _write(self, folder: int, attempt: str, file: int, value: bytes, what: str) -> None:
        with self._cleared(folder, attempt):
            try:
                self._disk.write(file, value)
                self._sync(file, what)
            finally:
                self._disk.close(file)

    def _rename(self, folder: int, attempt: str, name: str, what: str) -> None:
        with self._cleared(folder, attempt), _told_if_refused(what):
            self._disk.rename(folder, attempt, name)

    @contextmanager
    def _cleared(self, folder: int, attempt: str) -> Iterator[None]:
        try:
            yield
        except (OSError, StoreError):
            with suppress(OSError):  # What can't be removed is a leftover, no more.
                self._disk.unlink(folder, attempt)
            raise

    # Deleting.

    def _remove(self, above: _Names, name: str) -> bool:
        """Remove a file for good, then the folders that are empty now; whether it was there."""
        try:
            with self._folder(above) as folder:
                there = self._unlink(folder, name)
        except _ABSENT:
            there = False
        self._remove_empty(above)
        return there

    def _remove_empty(self, names: _Names) -> None:
        """A folder that is in use, or that can't be removed, simply stays."""
        with suppress(OSError):
            for depth in range(len(names), 0, -1):
                with self._folder(names[: depth - 1]) as above:
                    self._disk.remove_folder(above, names[depth - 1])
                self._durable.pop(names[:depth], None)

    def _unlink(self, folder: int, name: str) -> bool:
        what = f"delete file {name}"
        try:
            if self._disk.kind(folder, name) is Kind.FOLDER:
                return False
            with _told_if_refused(what):
                self._disk.unlink(folder, name)
            there = True
        except FileNotFoundError:
            there = False  # For us; not yet for good, if whoever removed it has not synced.
        self._sync(folder, what)
        return there

    def _sync(self, descriptor: int, what: str) -> None:
        try:
            self._disk.sync(descriptor)
        except OSError as error:
            raise _maybe(what, error) from error

    # Folders.

    @contextmanager
    def _folder(self, names: _Names) -> Iterator[int]:
        """Open a folder below the root; only as deep as it exists, never through a link."""
        root = self._opened_root()
        folder = root.folder
        try:
            for name in names:
                below = self._open_below(folder, name)
                if folder != root.folder:
                    self._disk.close(folder)
                folder = below
            yield folder
        finally:
            if folder != root.folder:
                self._disk.close(folder)

    def _folder_for(self, names: _Names, what: str) -> _Open:
        """A folder below the root that is there for good, or was removed since."""
        root = self._opened_root()
        found = self._durable.pop(names, None)
        if found is None:
            found = root
            for name in names:
                found = self._made_below(found, name, what)
        if names:
            self._durable[names] = found
            for oldest in list(self._durable)[:-_OPEN_MAX]:
                self._durable.pop(oldest, None)
        return found

    def _made_below(self, above: _Open, name: str, what: str) -> _Open:
        """Opened before the name is synced: so what is synced is this very folder, or none."""
        with suppress(FileExistsError):
            self._disk.make_folder(above.folder, name)
        below = _Open(self._disk, self._open_below(above.folder, name))
        self._sync(above.folder, what)
        return below

    def _open_below(self, folder: int, name: str) -> int:
        try:
            return self._disk.open_folder(folder, name)
        except NotADirectoryError:
            # A link to a folder and a plain file look alike here, and mean different things.
            if self._disk.kind(folder, name) is Kind.OTHER:
                raise OSError(errno.ELOOP, f"{name} is a symbolic link") from None
            raise

    @contextmanager
    def _opened(self, folder: int, name: str) -> Iterator[int]:
        file = self._disk.open_file(folder, name)
        try:
            yield file
        finally:
            self._disk.close(file)

    def _opened_root(self) -> _Open:
        root = self._root
        if root is None:
            raise HandleClosedError(f"blob store {self._path} is closed: open it again")
        return root


def _place(key: str) -> tuple[_Names, str]:
    """The folders of a key below the root, and its name in the last of them."""
    *above, name = valid_key(key).split("/")
    return tuple(above), name


def _is_key(name: str) -> bool:
    """Whether a file is one of ours: people leave things in folders."""
    try:
        valid_key(name)
    except NameRefusedError:
        return False
    return True


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn an `OSError` into *did not happen*, with the advice a person needs."""
    try:
        yield
    except OSError as error:
        raise NotAppliedError(f"could not {what}: {_advice(error)}") from error


@contextmanager
def _told_if_refused(what: str) -> Iterator[None]:
    """Let an `OSError` that says *refused* pass; make any other one *may have happened*."""
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSED:
            raise
        raise _maybe(what, error) from error


def _maybe(what: str, error: OSError) -> MaybeAppliedError:
    return MaybeAppliedError(f"may or may not have managed to {what}: {_advice(error)}")


def _advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, error.strerror or type(error).__name__)
