"""Starts Python workers as pyspark's own daemon does, which ends idle ones without a trace.

A worker that had no task for a minute is ended by Spark, which closes its socket. Over a Unix
domain socket pyspark's worker then fails to say that it lost its input, and prints a traceback of
that: for each worker, in the middle of whatever the user does. Here it looks before it reads.

Spark runs this module in place of `pyspark.daemon` for the workers of tasks; see `confs`. Those
that plan data sources it starts by its own daemon all the same.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from pyspark import daemon

if TYPE_CHECKING:
    from collections.abc import Callable

    Serve = Callable[[socket.socket, bool], int]

_GONE = 1
"""Not 0, after which a worker waits for another task."""


def until_closed(serve: Serve) -> Serve:
    """`serve`, unless nobody is at the other end any more."""

    def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - pyspark's
        try:
            is_open = bool(sock.recv(1, socket.MSG_PEEK))
        except ConnectionError:
            is_open = False
        return serve(sock, authenticated) if is_open else _GONE

    return worker


if __name__ == "__main__":
    daemon.worker = until_closed(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
