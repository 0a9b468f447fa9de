"""A folder on disk in which names appear whole, once, and for good.

    put      a new file: written, synced, its folder synced. It is nobody's until it is referred to
    create   a small file under a name that must be free: synced under a name of its own, linked
             (which fails if the name is taken), its folder synced. Whoever reads the name reads
             all of it, and of two who create it one is told that it was there

Names are relative, of letters, digits, `_`, `-` and `.`; no link inside of the folder is followed
(X1). `step` is called before every effect, so that tests can end a life at each of them.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from strandline.errors import SinkError, SinkStoppedError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-.]*(/[A-Za-z0-9_][A-Za-z0-9_\-.]*){0,3}")
_DRAFT = ".draft-"
_FOR_GOOD = {
    errno.EACCES: "permission denied: the folder must belong to the user who runs this",
    errno.EPERM: "the file system allows no hard links, or the folder is not ours",
    errno.EROFS: "the file system is read-only",
    errno.ELOOP: "a symbolic link is in the way, and links are never followed",
    errno.ENOTDIR: "a file is in the way",
    errno.ENOTSUP: "the file system allows no hard links: publish to another one",
}
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP)
"""Why a folder can't be synced: no right to, or its file system does not sync folders at all."""


class Folder(Protocol):
    """A folder on disk, or a prefix of an object store."""

    @property
    def root(self) -> object:
        """Its path or its URL."""
        ...

    def put(self, name: str) -> AbstractContextManager[IO[bytes]]: ...

    def create(self, name: str, content: bytes) -> bool: ...

    def read(self, name: str) -> bytes | None: ...

    def opened(self, place: str) -> IO[bytes]:
        """A file of ours by its full path or URL, to be read."""
        ...

    def names(self, folder: str) -> list[str]: ...

    def remove(self, folder: str) -> None: ...

    def remove_drafts(self, folder: str) -> None: ...

    def settle(self, folder: str) -> None: ...


class LocalFolder:
    """Below `root`, which is made if it is not there."""

    def __init__(
        self, root: Path, token: Callable[[], str], step: Callable[[str], None] = lambda _: None
    ) -> None:
        if not root.is_absolute():
            raise UsageError(f"the path {printable(str(root))} is relative: write it from / on")
        self.root = root
        self._token = token
        self._step = step

    @contextmanager
    def put(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write to; durable once the block is left without an error."""
        path = self._path(name)
        with _told(f"write {path}"):
            self._make(path.parent)
            self._step(f"create {name}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
                yield file
                self._step(f"sync {name}")
                file.flush()
                os.fsync(file.fileno())
            self._sync(path.parent)

    def create(self, name: str, content: bytes) -> bool:
        """Whether the name was free, and has this content now. Durable when it returns."""
        path = self._path(name)
        draft = path.parent / f"{_DRAFT}{self._token()}"
        with _told(f"write {path}"):
            self._make(path.parent)
            self._write(draft, content)
            self._step(f"link {name}")
            try:
                os.link(draft, path, follow_symlinks=False)
                created = True
            except FileExistsError:
                created = False
            # Also if it was there: who created it may not have come to this.
            self._sync(path.parent)
            self._step("remove draft")
            draft.unlink(missing_ok=True)
        return created

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        with _told(f"read {path}"):
            try:
                file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            with os.fdopen(file, "rb") as opened:
                return opened.read()

    def opened(self, place: str) -> IO[bytes]:
        return Path(place).open("rb")

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted, without drafts; none if there is no such folder."""
        path = self._path(folder) if folder else self.root
        with _told(f"list {path}"):
            try:
                return sorted(each.name for each in path.iterdir() if not each.name.startswith("."))
            except FileNotFoundError:
                return []

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it. Repeating it is harmless."""
        path = self._path(folder)
        with _told(f"remove {path}"):
            self._step(f"remove {folder}")
            shutil.rmtree(path, ignore_errors=not path.exists())

    def remove_drafts(self, folder: str) -> None:
        """Remove what `create` has left where it did not come to its end."""
        path = self._path(folder)
        with _told(f"clean {path}"):
            for each in path.iterdir() if path.is_dir() else ():
                if each.name.startswith(_DRAFT):
                    each.unlink(missing_ok=True)

    def settle(self, folder: str) -> None:
        """Make a folder and the names that can be seen in it stay: who wrote them may not have."""
        path = self._path(folder)
        with _told(f"sync {path}"):
            if path.is_dir():
                self._sync(path)
                self._sync(path.parent)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageError(f"the name {printable(name)} is not one that a sink writes")
        return self.root / name

    def _write(self, path: Path, content: bytes) -> None:
        self._step(f"draft {path.parent.name}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
            file.write(content)
            file.flush()
            self._step(f"sync draft {path.parent.name}")
            os.fsync(file.fileno())

    def _make(self, folder: Path) -> None:
        """Make a folder and those above it, each synced into the one above.

        Also if it was there: who made it may have died before that, and what is written into it
        would be gone with it at a power cut.
        """
        if folder.is_dir():
            # A folder above that is not ours, or can't be synced, was not made by us either.
            try:
                self._sync(folder.parent)
            except OSError as error:
                if error.errno not in _NOT_OURS:
                    raise
            return
        if folder != folder.parent:
            self._make(folder.parent)
        self._step(f"make {folder.name}")
        folder.mkdir(exist_ok=True)
        self._sync(folder.parent)

    def _sync(self, folder: Path) -> None:
        self._step(f"sync folder {folder.name}")
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = _FOR_GOOD.get(error.errno or 0)
        if reason is not None:
            raise SinkStoppedError(f"could not {what}: {reason}") from error
        raise SinkError(f"could not {what}: {error.strerror}") from error
