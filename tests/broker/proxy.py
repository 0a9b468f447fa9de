"""A proxy in front of the broker, for links that break: cut, delayed, or open on one side only.

Clients that are given its address reach the broker through it alone, as the broker names it as
the address of that listener. It knows requests by their kind, so that a test can lose the answer
to a commit, or have a commit arrive late, and nothing else.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

INIT_PRODUCER, ADD_PARTITIONS, END_TRANSACTION, PRODUCE = 22, 24, 26, 0
"""Kinds of requests, by the numbers of Kafka's protocol."""
_CHUNK = 65_536
_PATIENCE_S = 60


class Proxy:
    """Passes on what comes, both ways, until it is told otherwise. Close it."""

    def __init__(self, front: tuple[str, int], behind: tuple[str, int]) -> None:
        self.address = f"{front[0]}:{front[1]}"
        self._behind = behind
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._late: dict[int, threading.Event] = {}
        self._mute: set[int] = set()
        self._left: dict[str, int | None] = {"up": None, "down": None}
        self.caught = threading.Event()
        """Whether a request was held back, or its answer lost."""
        self._listening = socket.create_server(front)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def lose_answers_to(self, kind: int) -> None:
        """Requests of this kind reach the broker, and nobody hears anything on that link again."""
        self.caught.clear()
        self._mute.add(kind)

    def hold(self, kind: int) -> None:
        """Requests of this kind, and all behind them on the same link, wait until `release`."""
        self.caught.clear()
        self._late[kind] = threading.Event()

    def release(self) -> None:
        """What was held back arrives now."""
        while self._late:
            self._late.popitem()[1].set()

    def cut_after(self, count: int, way: str) -> None:
        """Cut all links when so many bytes more have passed `up` to the broker, or `down`."""
        with self._lock:
            self._left[way] = count

    def mend(self) -> None:
        """From here on everything passes; links that hang are cut."""
        self._mute.clear()
        with self._lock:
            self._left = {"up": None, "down": None}
        self.release()
        self.cut()

    def cut(self) -> None:
        """Cut all links that there are."""
        with self._lock:
            found, self._open = self._open, set()
        for each in found:
            _end(each)

    def close(self) -> None:
        _end(self._listening)
        self.mend()
        self._accepting.join(_PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._behind)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, broker}
            link = _Link(self)
            for source, target, passed in (
                (client, broker, link.up),
                (broker, client, link.down),
            ):
                threading.Thread(target=_pump, args=(source, target, passed), daemon=True).start()

    def spend(self, count: int, way: str) -> None:
        """Count bytes that are to pass; the link is cut when they are too many."""
        with self._lock:
            left = self._left[way]
            if left is None:
                return
            self._left[way] = left - count
            over = left < count
        if over:
            self.cut()
            raise ConnectionResetError

    def meet(self, kind: int) -> bool:
        """A request is about to pass; whether its answer is to be lost."""
        event = self._late.get(kind)
        if event is not None:
            self.caught.set()
            event.wait(_PATIENCE_S)
        if kind in self._mute:
            self.caught.set()
            return True
        return False


class _Link:
    """One connection: frames on their way up, bytes on their way down."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._begun = b""
        self._muted = False

    def up(self, chunk: bytes, send: Callable[[bytes], None]) -> None:
        self._proxy.spend(len(chunk), "up")
        self._begun += chunk
        while len(self._begun) >= 6:
            end = 4 + int.from_bytes(self._begun[:4], "big")
            if len(self._begun) < end:
                return
            frame, self._begun = self._begun[:end], self._begun[end:]
            self._muted = self._proxy.meet(int.from_bytes(frame[4:6], "big")) or self._muted
            send(frame)

    def down(self, chunk: bytes, send: Callable[[bytes], None]) -> None:
        self._proxy.spend(len(chunk), "down")
        if not self._muted:
            send(chunk)


def _pump(
    source: socket.socket,
    target: socket.socket,
    passed: Callable[[bytes, Callable[[bytes], None]], None],
) -> None:
    with suppress(OSError):
        while chunk := source.recv(_CHUNK):
            passed(chunk, target.sendall)
    _end(source)
    _end(target)


def _end(link: socket.socket) -> None:
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()
