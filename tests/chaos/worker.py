"""One process of a chaos run: `python -m tests.chaos.worker ROLE STORE JOURNAL LIFE SEED`.

It opens the store, plays its role until it is told to stop, and expects to be killed at any
moment. It survives what a user's process would: a lost lease, a time that is no longer readable,
a race that another one won. Every other error is written down, and ends it.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.chaos.journal import Journal, now
from tests.chaos.life import SETTINGS, Life
from tests.chaos.roles import ROLES

import strandline
from strandline.errors import LeaseLostError, StalledError


def play(life: Life, role: Callable[[Life], None]) -> None:
    while life.going():
        try:
            role(life)
        except LeaseLostError as error:
            life.journal.note("lost", str(error))
        except StalledError as error:
            if not isinstance(error.__cause__, LeaseLostError):
                raise
            life.journal.note("lost", str(error))


def main(role: str, url: str, path: str, number: str, seed: str) -> int:
    faulthandler.register(signal.SIGUSR1)
    journal = Journal(Path(path))
    journal.note("born", os.getpid(), now())
    chance = random.Random(seed)
    own_upkeep = role in {"appender", "racer"} and chance.random() < 0.5
    try:
        with strandline.open(url, settings=SETTINGS, upkeep=own_upkeep) as store:
            life = Life(store, journal, int(number), int(seed))
            signal.signal(signal.SIGTERM, lambda *_: setattr(life, "stopped", True))
            journal.note("opened", now())
            play(life, ROLES[role])
    except Exception as error:  # noqa: BLE001 - whatever it is, the run is told
        journal.note("error", type(error).__name__, str(error), traceback.format_exc())
        return 1
    journal.note("closed", now())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
