"""A proxy in front of PostgreSQL, for links that break: in the middle, or with a commit on its way.

Or that stay open and pass on nothing, which no kernel finds out.

Clients that are given its port reach the server through it alone. It knows statements by their
text, so that a test can lose the answer to a commit, or have a commit arrive late.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

from tests.server_process import LOOPBACK

_CHUNK = 65_536
_PATIENCE_S = 60


class Proxy:
    """Passes on what comes, both ways, until it is told otherwise. Close it."""

    def __init__(self, behind: int) -> None:
        self._behind = behind
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._lost: bytes | None = None
        self._held: bytes | None = None
        self._left: int | None = None
        self._swallowed: bytes | None = None
        self._silent = False
        self._stalled: int | None = None
        self._pause_s = 0.0
        self._released = threading.Event()
        self.caught = threading.Event()
        """Whether a statement was held back, its answer lost or swallowed, or a link stalled."""
        self._listening = socket.create_server((LOOPBACK, 0))
        # Or the kernel would take megabytes that do not get on.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
        self.port = int(self._listening.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def lose_answer_to(self, statement: bytes) -> None:
        """The server gets it, and its client hears nothing any more: the link is cut."""
        self.caught.clear()
        self._lost = statement

    def hold(self, statement: bytes) -> None:
        """It waits here; its client is cut off. `release` lets it arrive after all."""
        self.caught.clear()
        self._released.clear()
        self._held = statement

    def release(self) -> None:
        self._held = None
        self._released.set()

    def cut_after(self, count: int) -> None:
        """Cut all links when so many bytes more have passed to the server."""
        with self._lock:
            self._left = count

    def swallow_from(self, statement: bytes) -> None:
        """The server gets it and all that follows, and its answers go nowhere; links stay open."""
        self.caught.clear()
        self._swallowed = statement

    def stall_after(self, count: int) -> None:
        """Take no more from clients when so many bytes have passed; links stay open."""
        self.caught.clear()
        self._stalled = count

    def slow_down(self, pause_s: float) -> None:
        """Rest before each piece that passes to the server."""
        self._pause_s = pause_s

    def mend(self) -> None:
        self._lost = self._held = self._left = self._swallowed = self._stalled = None
        self._silent, self._pause_s = False, 0.0
        self._released.set()

    def close(self) -> None:
        self.mend()
        _end(self._listening)
        with self._lock:
            found, self._open = self._open, set()
        for each in found:
            _end(each)
        self._accepting.join(_PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self._behind))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := client.recv(_CHUNK):
                if self._held is not None and self._held in piece:
                    _end(client)
                    self.caught.set()
                    self._released.wait(_PATIENCE_S)
                elif self._lost is not None and self._lost in piece:
                    self._lost = None
                    _end(client)
                    server.sendall(piece)
                    self.caught.set()
                    return  # The server finds out by itself that nobody is there.
                if self._swallowed is not None and self._swallowed in piece:
                    self._silent = True
                    self.caught.set()
                if self._stalled is not None:
                    self._stalled -= len(piece)
                    if self._stalled < 0:
                        self._released.clear()
                        self.caught.set()
                        self._released.wait(_PATIENCE_S)
                time.sleep(self._pause_s)
                server.sendall(self._allowed(piece))
        _end(client)
        _end(server)

    def _allowed(self, piece: bytes) -> bytes:
        with self._lock:
            if self._left is None:
                return piece
            self._left -= len(piece)
            if self._left >= 0:
                return piece
            self._left = None
        raise ConnectionResetError

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := server.recv(_CHUNK):
                if not self._silent:
                    client.sendall(piece)
        _end(client)


def _end(link: socket.socket) -> None:
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()
