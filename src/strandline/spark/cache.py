"""Blocks on the local disk, mapped into memory, shared by all workers of a machine.

    folder/<boot>/<hash of the name>.block    one block; never changed after its rename
    folder/<boot>/.put-…                      one that somebody is writing, or left behind

Whatever is wrong with the cache, the answer is `None` or the table that was given: correctness
never depends on it. Nobody locks. Two that put one name at once both rename a whole file, and
either will do. A reader keeps what it has mapped although somebody evicts it meanwhile. A rename
is not synced, so it may outlive its bytes in a power cut: files lie below the id of the machine's
boot, and those of another boot are removed unread. The folder must be on a local disk.

Which block was used last is the time of its file, touched at most once a minute. A worker looks
at how much there is when it first puts a block and whenever it has put 1/32 of the bound since,
so a machine with n workers keeps at most n/32 more than the bound for a moment.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.spark.blockfile import DAMAGE, decode_block, encode_block
from strandline.store.disk import Kind, OsDisk
from strandline.system import SystemClock

if TYPE_CHECKING:
    from strandline.store.disk import Disk, Entry

_log = logging.getLogger(__name__)

_BLOCK = re.compile(r"[0-9a-f]{32}\.block")
_BOOT = re.compile(r"boot-[0-9a-f\-]{1,64}")
_LEFTOVER = ".put-"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NO_BOOT = "boot-0"
"""Where nothing tells one start of the machine from another; files are synced instead."""
_OPEN_MAX = 4096
"""So many blocks stay mapped in a process; a mapping needs no descriptor."""
_SHARE = 32
_MINUTE_MS = 60_000
_STALE_MS = 60 * _MINUTE_MS
"""What nobody has written to for so long is a leftover: a put takes seconds."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_TROUBLE = (*DAMAGE, MemoryError)


@dataclass(slots=True)
class _Mapped:
    """A block that this process has mapped, and whether somebody asked for it lately."""

    table: pa.Table
    used: bool = True


class _Folder:
    """An open folder; closed when the last call that uses it is over."""

    __slots__ = ("descriptor", "disk", "path")

    def __init__(self, disk: Disk, descriptor: int, path: Path) -> None:
        self.disk = disk
        self.descriptor = descriptor
        self.path = path

    def __del__(self) -> None:
        with suppress(OSError):
            self.disk.close(self.descriptor)


class BlockCache:
    """Tables by name, of at most about `max_bytes` in all; `counts` says what came of it.

    The folder must belong to the user and to nobody else, or it is not used.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        *,
        disk: Disk | None = None,
        clock: SystemClock | None = None,
        boot: str | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """hits (mapped already), opened, missed, put, evicted, damaged, failed."""
        self._path = folder
        self._max = max(0, max_bytes)
        self._disk: Disk = disk or OsDisk()
        self._clock = clock or SystemClock()
        self._boot = boot or boot_id()
        self._folder: _Folder | None = None
        self._open_from_ms = self._put_from_ms = self._clock.monotonic_ms()
        self._mapped: dict[str, _Mapped] = {}
        self._swept_ms = self._clock.monotonic_ms()
        self._unlooked: int | None = None
        """Bytes put since this process looked at the folder; `None` before it ever has."""

    def get(self, name: str) -> pa.Table | None:
        """The block of that name, mapped, without a copy; `None` if it is not here."""
        self._sweep()
        found = self._mapped.pop(name, None)
        if found is not None:
            found.used = True
            self._mapped[name] = found  # The one used last is the last to be let go.
            self.counts["hits"] += 1
            return found.table
        opened = self._open(name)
        self.counts["missed" if opened is None else "opened"] += 1
        return opened

    def put(self, name: str, table: pa.Table) -> pa.Table:
        """Keep a block; the same one mapped, or `table` itself if it can't be kept.

        A name stands for one block for ever: if another worker has kept it, that one is given.
        """
        there = self._open(name)
        folder = self._folder
        if there is not None or folder is None or self._clock.monotonic_ms() < self._put_from_ms:
            return table if there is None else there
        try:
            content = encode_block(name, table)
            size = sum(len(piece) for piece in content)
            if size > self._room():
                return table
            self._write(folder, name, content)
        except _TROUBLE as error:
            self._stop_putting(folder, error)
            return table
        self.counts["put"] += 1
        self._account(folder, size)
        mapped = self._open(name)
        return table if mapped is None else mapped

    # Files.

    def _open(self, name: str) -> pa.Table | None:
        """Map a file and look whether it is the block; one that is not is removed."""
        folder = self._opened_folder()
        if folder is None:
            return None
        file = file_name(name)
        try:
            with pa.memory_map(str(folder.path / file)) as source:
                table = decode_block(name, source.read_buffer())
        except FileNotFoundError:
            return None
        except _TROUBLE as error:
            self._count_failure("map a block", error)
            return None
        if table is None:
            self.counts["damaged"] += 1
            with suppress(OSError):
                self._disk.unlink(folder.descriptor, file)
            return None
        self._touch(folder, file)
        self._mapped[name] = _Mapped(table)
        if len(self._mapped) > _OPEN_MAX:
            self._mapped.pop(next(iter(self._mapped)), None)
        return table

    def _write(self, folder: _Folder, name: str, content: tuple[pa.Buffer, bytes]) -> None:
        attempt = _LEFTOVER + os.urandom(12).hex()
        file = self._disk.create(folder.descriptor, attempt)
        try:
            try:
                for piece in content:
                    self._disk.write(file, piece)
                if self._boot == _NO_BOOT:
                    self._disk.sync(file)
            finally:
                self._disk.close(file)
            self._disk.rename(folder.descriptor, attempt, file_name(name))
        except OSError:
            with suppress(OSError):
                self._disk.unlink(folder.descriptor, attempt)
            raise

    def _touch(self, folder: _Folder, file: str) -> bool:
        """Note that a block is in use; whether its file is still there."""
        try:
            seen = os.stat(file, dir_fd=folder.descriptor, follow_symlinks=False)
            if self._clock.wall_ms() - seen.st_mtime_ns // 1_000_000 >= _MINUTE_MS:
                os.utime(file, dir_fd=folder.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # A folder that can only be read: who used what last is not known.
        return True

    def _sweep(self) -> None:
        """Once a minute: note what was used, and let go of what was evicted.

        A file that was evicted takes its bytes from the disk until the last one lets go.
        """
        now = self._clock.monotonic_ms()
        folder = self._folder
        if now - self._swept_ms < _MINUTE_MS or folder is None:
            return
        self._swept_ms = now
        for name, mapped in list(self._mapped.items()):
            file = file_name(name)
            used, mapped.used = mapped.used, False
            if not (self._touch(folder, file) if used else _is_there(folder, file)):
                self._mapped.pop(name, None)

    # Bounds.

    def _account(self, folder: _Folder, size: int) -> None:
        if self._unlooked is not None:
            self._unlooked += size
            if self._unlooked <= self._max // _SHARE:
                return
        self._unlooked = 0
        try:
            self._evict(folder)
        except OSError as error:
            self._count_failure("look at the blocks", error)

    def _evict(self, folder: _Folder) -> None:
        """Remove the blocks that were not used for longest, until the rest is in bounds."""
        blocks: list[Entry] = []
        now = self._clock.wall_ms()
        for entry in self._disk.entries(folder.descriptor):
            if entry.kind is Kind.FILE and _BLOCK.fullmatch(entry.name):
                blocks.append(entry)
            elif entry.name.startswith(_LEFTOVER) and now - entry.modified_ms > _STALE_MS:
                self._disk.unlink(folder.descriptor, entry.name)
        held = sum(entry.size for entry in blocks)
        bound = self._bound(folder, held)
        for entry in sorted(blocks, key=lambda each: (each.modified_ms, each.name)):
            if held <= bound:
                break
            with suppress(FileNotFoundError):  # Somebody else evicts too.
                self._disk.unlink(folder.descriptor, entry.name)
                self.counts["evicted"] += 1
            held -= entry.size

    def _bound(self, folder: _Folder, held: int) -> int:
        """A little below the maximum, and never more than half of what the disk has for us."""
        space = os.fstatvfs(folder.descriptor)
        half = (space.f_bavail * space.f_frsize + held) // 2
        return min(self._room(), half)

    def _room(self) -> int:
        return self._max - self._max // _SHARE

    # The folder.

    def _opened_folder(self) -> _Folder | None:
        """The folder of this boot; if it can't be opened, not tried again for a minute."""
        if self._folder is not None:
            return self._folder
        now = self._clock.monotonic_ms()
        if now < self._open_from_ms or self._max == 0:
            return None
        try:
            root = _Folder(self._disk, self._disk.open_root(self._path), self._path)
            _must_be_ours(root)
            with suppress(FileExistsError):
                self._disk.make_folder(root.descriptor, self._boot)
            inner = self._disk.open_folder(root.descriptor, self._boot)
            folder = _Folder(self._disk, inner, self._path / self._boot)
            _must_be_ours(folder)
            self._folder = folder
            self._remove_other_boots(root)
        except OSError as error:
            self._count_failure("open the folder", error)
            self._open_from_ms = now + _MINUTE_MS
            return None
        return folder

    def _remove_other_boots(self, root: _Folder) -> None:
        for entry in list(self._disk.entries(root.descriptor)):
            old = self._clock.wall_ms() - entry.modified_ms > _STALE_MS
            ours = entry.kind is Kind.FOLDER and _BOOT.fullmatch(entry.name)
            # One that was just written to is another machine's: the folder is not local.
            if ours and old and entry.name != self._boot:
                with suppress(OSError):
                    self._remove_boot(root, entry.name)

    def _remove_boot(self, root: _Folder, name: str) -> None:
        other = _Folder(self._disk, self._disk.open_folder(root.descriptor, name), root.path / name)
        for entry in list(self._disk.entries(other.descriptor)):
            self._disk.unlink(other.descriptor, entry.name)
        self._disk.remove_folder(root.descriptor, name)

    def _stop_putting(self, folder: _Folder, error: Exception) -> None:
        """Read on, and put nothing for a minute: what is full may have room then."""
        self._count_failure("keep a block", error)
        self._put_from_ms = self._clock.monotonic_ms() + _MINUTE_MS
        if isinstance(error, FileNotFoundError):
            self._folder = None  # Somebody removed it; it is made again when it is next used.
            self._put_from_ms = 0
        elif isinstance(error, OSError) and error.errno in _FULL:
            with suppress(OSError):
                self._evict(folder)

    def _count_failure(self, what: str, error: Exception) -> None:
        self.counts["failed"] += 1
        if self.counts["failed"] == 1:
            _log.warning("could not %s in %s, going on without: %s", what, self._path, error)


def file_name(name: str) -> str:
    """The file of a block: nothing of its name gets into a path."""
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest() + ".block"


def boot_id() -> str:
    """What changes when the machine starts anew."""
    try:
        found = "boot-" + Path(_BOOT_ID).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return _NO_BOOT
    return found if _BOOT.fullmatch(found) else _NO_BOOT


def _is_there(folder: _Folder, file: str) -> bool:
    try:
        os.stat(file, dir_fd=folder.descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _must_be_ours(folder: _Folder) -> None:
    """Refuse a folder into which somebody else may write: rows would come out of it."""
    found = os.fstat(folder.descriptor)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            errno.EACCES, "the folder must belong to the user who runs this, and to nobody else"
        )
