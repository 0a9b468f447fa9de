"""A folder of a real file system that forgets, at a power cut, what was not synced.

    with ForgetfulFolder(tmp_path).watched() as folder:
        …                       # whatever `connectors.folder` does below it
        folder.power_cut()      # new names that were not synced are gone, and so is content

It is `testing.disk` for code that talks to the system itself: only its `fsync` is taken.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from strandline.connectors import folder as taken


class ForgetfulFolder:
    """Below `root`, which is there for good; what is in it is not."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[int, dict[str, int]] = {}
        self._sizes: dict[int, int] = {}
        self._held: list[int] = []
        """What was synced stays open, so that its number stands for nothing else."""

    def fsync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self._held.append(os.dup(descriptor))
        if stat.S_ISDIR(found.st_mode):
            self.sync_names(descriptor, found.st_ino)
        else:
            self.sync_content(found.st_ino, found.st_size)

    def sync_names(self, descriptor: int, number: int) -> None:
        with os.scandir(descriptor) as entries:
            self._names[number] = {each.name: each.inode() for each in entries}

    def sync_content(self, number: int, size: int) -> None:
        self._sizes[number] = size

    @contextmanager
    def watched(self) -> Iterator[Self]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(taken, "os", _System(self))
            try:
                yield self
            finally:
                for each in self._held:
                    os.close(each)

    def power_cut(self) -> None:
        self._forget(self.root)

    def _forget(self, folder: Path) -> None:
        synced = self._names.get(folder.stat().st_ino, {})
        for path in list(folder.iterdir()):
            found = path.lstat()
            if synced.get(path.name) != found.st_ino:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            elif path.is_dir():
                self._forget(path)
            else:
                os.truncate(path, self._sizes.get(found.st_ino, 0))


class NoFolderSync(ForgetfulFolder):
    """The mutant: files are synced, and the folders that name them are not."""

    def sync_names(self, descriptor: int, number: int) -> None: ...


class NoFileSync(ForgetfulFolder):
    """The other mutant: names survive, and what they stand for does not."""

    def sync_content(self, number: int, size: int) -> None: ...


class _System:
    """`os`, with another `fsync`."""

    def __init__(self, folder: ForgetfulFolder) -> None:
        self.fsync = folder.fsync

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)
