"""Networks of their own for replicas: a namespace each, with one cable to this machine.

    namespace a  10.N.1.2 ──── 10.N.1.1 ┐
                                        ├ this machine: the broker listens at 10.N.1.1
    namespace b  10.N.2.2 ──── 10.N.2.1 ┘

N is another one for each process. Neither reaches the other, nor this machine's loopback. What they
share is the store's folder, and the broker. Needs root and iproute2 (`apt-get install iproute2`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence


def missing() -> str | None:
    """What this machine lacks for networks of their own, or `None`."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if shutil.which("ip") is None:
        return "there is no program ip (apt-get install iproute2)"
    tried = _ip("netns", "add", f"strandline-try-{os.getpid()}", check=False)
    if tried.returncode:
        return f"network namespaces can't be made here: {tried.stderr.strip()}"
    _ip("netns", "delete", f"strandline-try-{os.getpid()}")
    return None


class Networks:
    """Two namespaces. Close it, so that nothing is left of them."""

    def __init__(self) -> None:
        self._names = [f"strandline-{os.getpid()}-{each}" for each in "ab"]
        try:
            for number, name in enumerate(self._names, start=1):
                self._make(name, number)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Where both of them reach this machine."""
        return f"{_net(1)}.1"

    def prefix(self, number: int) -> Sequence[str]:
        """What goes before a command that is to run in the first one, or in the second."""
        return ["ip", "netns", "exec", self._names[number]]

    def close(self) -> None:
        for number, name in enumerate(self._names, start=1):
            # A namespace goes when it is forgotten, and its cable with it, but not at once.
            _ip("link", "delete", _end(number), check=False)
            _ip("netns", "delete", name, check=False)

    def _make(self, name: str, number: int) -> None:
        here, there = _end(number), "cable"
        _ip("netns", "add", name)
        _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        _ip("addr", "add", f"{_net(number)}.1/24", "dev", here)
        _ip("link", "set", here, "up")
        _ip("-n", name, "addr", "add", f"{_net(number)}.2/24", "dev", there)
        _ip("-n", name, "link", "set", there, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "route", "add", "default", "via", f"{_net(number)}.1")


def _net(number: int) -> str:
    return f"10.{64 + os.getpid() % 128}.{number}"


def _end(number: int) -> str:
    """This machine's end of a cable."""
    return f"sl{os.getpid()}h{number}"


def _ip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=check)
