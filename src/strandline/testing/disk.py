"""A disk that forgets what was not synced when the power goes.

    synced                          survives a power cut
    ------                          --------------------
    a file's content                that content; else any earlier one, or part of a later one
    a folder's names                those names; else each change since may or may not be there

A rename is two changes of names (one gone, one new), and either may survive alone. To see how
little may be left, `power_cut()` forgets everything; with a generator it draws what survives.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.store.disk import Entry, Kind

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path


class PowerCutError(BaseException):
    """The machine is off; not an `Exception`, so that no handler survives it."""


@dataclass(eq=False, slots=True)
class _File:
    content: bytes = b""
    synced: bytes = b""


@dataclass(eq=False, slots=True)
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    removed: bool = False


class ForgetfulDisk:
    """The Disk seam in memory. `cut_at` is the number of calls that still work."""

    def __init__(self, cut_at: int | None = None) -> None:
        self._root = _Folder()
        self._open: dict[int, _File | _Folder] = {}
        self._next = 100
        self._off = False
        self.cut_at = cut_at
        self.calls: list[str] = []

    def power_cut(self, chance: random.Random | None = None) -> None:
        """Lose what was not synced, and switch on again. All descriptors are gone."""
        _forget(self._root, chance)
        self._open.clear()
        self._off = False
        self.cut_at = None
        self.calls.clear()

    # The seam.

    def open_root(self, path: Path) -> int:
        self._step(f"open_root {path.name}")
        return self._descriptor(self._root)

    def open_folder(self, folder: int, name: str) -> int:
        self._step(f"open_folder {name}")
        found = self._find(folder, name)
        if not isinstance(found, _Folder):
            raise _failed(errno.ENOTDIR)
        return self._descriptor(found)

    def make_folder(self, folder: int, name: str) -> None:
        self._step(f"make_folder {name}")
        self._add(folder, name, _Folder())

    def create(self, folder: int, name: str) -> int:
        self._step("create")
        return self._descriptor(self._add(folder, name, _File()))

    def open_file(self, folder: int, name: str) -> int:
        self._step(f"open_file {name}")
        found = self._find(folder, name)
        if not isinstance(found, _File):
            raise _failed(errno.EISDIR)
        return self._descriptor(found)

    def write(self, file: int, value: bytes) -> None:
        self._step("write")
        self._file(file).content += value

    def size(self, file: int) -> int:
        self._step("size")
        return len(self._file(file).content)

    def read(self, file: int, start: int, length: int) -> bytes:
        self._step("read")
        return self._file(file).content[start : start + length]

    def view(self, file: int, length: int) -> memoryview:
        return memoryview(self.read(file, 0, length))

    def sync(self, descriptor: int) -> None:
        opened = self._open.get(descriptor)
        self._step("sync file" if isinstance(opened, _File) else "sync folder")
        if isinstance(opened, _File):
            opened.synced = opened.content
        else:
            folder = self._folder(descriptor)
            folder.synced = dict(folder.names)

    def rename(self, folder: int, old: str, new: str) -> None:
        self._step(f"rename to {new}")
        names = self._folder(folder).names
        moved = self._find(folder, old)
        if isinstance(names.get(new), _Folder):
            raise _failed(errno.EISDIR)
        del names[old]
        names[new] = moved

    def unlink(self, folder: int, name: str) -> None:
        self._step("unlink")
        self._find(folder, name)
        del self._folder(folder).names[name]

    def remove_folder(self, folder: int, name: str) -> None:
        self._step(f"remove_folder {name}")
        found = self._find(folder, name)
        if not isinstance(found, _Folder):
            raise _failed(errno.ENOTDIR)
        if found.names:
            raise _failed(errno.ENOTEMPTY)
        found.removed = True
        del self._folder(folder).names[name]

    def entries(self, folder: int) -> Iterator[Entry]:
        self._step("entries")
        for name, found in list(self._folder(folder).names.items()):
            if isinstance(found, _File):
                yield Entry(name, Kind.FILE, len(found.content), 0)
            else:
                yield Entry(name, Kind.FOLDER, 0, 0)

    def kind(self, folder: int, name: str) -> Kind:
        self._step(f"kind {name}")
        return Kind.FILE if isinstance(self._find(folder, name), _File) else Kind.FOLDER

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)  # A process that died has closed everything, too.

    # How it works.

    def _step(self, call: str) -> None:
        if self._off or (self.cut_at is not None and len(self.calls) >= self.cut_at):
            self._off = True
            raise PowerCutError(call)
        self.calls.append(call)

    def _descriptor(self, found: _File | _Folder) -> int:
        self._next += 1
        self._open[self._next] = found
        return self._next

    def _find(self, folder: int, name: str) -> _File | _Folder:
        names = self._folder(folder).names
        if name not in names:
            raise _failed(errno.ENOENT)
        return names[name]

    def _add(self, folder: int, name: str, new: _File | _Folder) -> _File | _Folder:
        names = self._folder(folder).names
        if self._folder(folder).removed:
            raise _failed(errno.ENOENT)
        if name in names:
            raise _failed(errno.EEXIST)
        names[name] = new
        return new

    def _file(self, descriptor: int) -> _File:
        found = self._open.get(descriptor)
        if not isinstance(found, _File):
            raise _failed(errno.EBADF)
        return found

    def _folder(self, descriptor: int) -> _Folder:
        found = self._open.get(descriptor)
        if not isinstance(found, _Folder):
            raise _failed(errno.EBADF)
        return found


def _failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _forget(folder: _Folder, chance: random.Random | None) -> None:
    kept = dict(folder.synced)
    if chance is not None:
        for name in sorted({*folder.names, *folder.synced}):
            if folder.names.get(name) is folder.synced.get(name) or chance.random() < 0.5:
                continue
            if name in folder.names:
                kept[name] = folder.names[name]
            else:
                del kept[name]
    folder.names, folder.synced = dict(kept), kept
    folder.removed = False  # Whoever gets here is named by a folder that is there.
    for found in kept.values():
        if isinstance(found, _Folder):
            _forget(found, chance)
        elif found.content != found.synced:
            found.content = found.synced = _remains(found, chance)


def _remains(file: _File, chance: random.Random | None) -> bytes:
    if chance is None:
        return file.synced
    length = chance.randint(len(file.synced), len(file.content))
    # Blocks that were allocated and never written read as zeros.
    return file.content[:length] + bytes(chance.choice([0, len(file.content) - length]))
