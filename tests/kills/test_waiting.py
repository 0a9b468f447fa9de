"""What a process waited for a turn is told; that it was stopped or idle is its own time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from tests.kills.waiting import Waiting

pytestmark = pytest.mark.process


def test_time_that_a_process_is_stopped_is_no_waiting() -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        waiting = Waiting(child.pid)
        time.sleep(0.5)
        assert waiting.seconds() < 0.1
    finally:
        child.kill()
        child.wait()
    assert waiting.seconds() == 0, "nobody is left to ask"
