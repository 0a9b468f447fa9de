"""The trace of a simulated history: who did what when, as a running hash and its last lines.

Two runs are the same history exactly when their hashes are equal. A record is hashed as
(simulation time, number of the task, checksum of the label); text is built only on request.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from zlib import crc32

_RECORD = struct.Struct("<QII")
_PENDING_MAX = 65_536
_LAST_MAX = 200


class Trace:
    """Records steps; `keep=True` remembers all of them, not only the last 200."""

    def __init__(self, *, keep: bool = False) -> None:
        self._names = ["outside"]
        self._labels: dict[str, int] = {}
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending = bytearray()
        self._last: deque[tuple[int, int, str]] = deque(maxlen=None if keep else _LAST_MAX)

    def name(self, task_name: str) -> int:
        """Give a task its number; 0 is whoever drives the simulation from outside."""
        self._names.append(task_name)
        self._pending += task_name.encode()
        return len(self._names) - 1

    def add(self, now_us: int, task: int, label: str) -> None:
        code = self._labels.get(label)
        if code is None:
            code = self._labels[label] = crc32(label.encode())
        self._pending += _RECORD.pack(now_us, task, code)
        self._last.append((now_us, task, label))
        if len(self._pending) > _PENDING_MAX:
            self._flush()

    def digest(self) -> str:
        self._flush()
        return self._hash.hexdigest()

    def lines(self, count: int | None = None) -> list[str]:
        """The last `count` records (all that are kept, if `None`), oldest first."""
        records = list(self._last)
        chosen = records if count is None else records[len(records) - min(count, len(records)) :]
        return [
            f"{now_us / 1000:12.3f} ms  {self._names[task]}: {label}"
            for now_us, task, label in chosen
        ]

    def _flush(self) -> None:
        self._hash.update(self._pending)
        self._pending.clear()
