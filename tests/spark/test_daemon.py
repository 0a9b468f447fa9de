"""The daemon of Python workers: tasks are served as ever, and idle workers end in silence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.serializers import read_int

from strandline.spark.daemon import until_closed


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_worker_serves_what_comes_and_ends_when_nothing_can_come(family):
    ours, theirs = _connected(family)
    served = []

    def serve(sock, authenticated):
        served.append((sock.recv(4), authenticated))
        return 0

    worker = until_closed(serve)
    with ours, theirs:
        ours.sendall(b"task")
        assert worker(theirs, False) == 0
        ours.close()
        assert worker(theirs, True) != 0
    # Nothing of the task was taken away, and the second time nobody was asked.
    assert served == [(b"task", False)]


def test_a_worker_that_spark_lets_go_says_nothing(tmp_path):
    """As Spark does it: over a Unix domain socket, with a worker that waits for a task."""
    environment = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    command = [sys.executable, "-m", "strandline.spark.daemon", "pyspark.worker"]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        try:
            path = daemon.stdout.read(read_int(daemon.stdout)).decode()
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.connect(path)
                worker = read_int(sock.makefile("rb"))
                sock.shutdown(socket.SHUT_RDWR)
            _wait_until_gone(worker)
        finally:
            daemon.stdin.close()
            daemon.send_signal(signal.SIGTERM)
        assert daemon.stderr.read() == b""


def _wait_until_gone(pid: int) -> None:
    gone = False
    while not gone:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            gone = stat.rpartition(")")[2].split()[0] == "Z"
        except OSError:
            gone = True


def _connected(family: socket.AddressFamily) -> tuple[socket.socket, socket.socket]:
    if family == socket.AF_UNIX:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        return ours, theirs
