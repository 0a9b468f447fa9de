"""A process stopped within a write: nobody can write, everybody says why, and all goes on later."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.kills.racing import Racing
from tests.store.writer import somebody_writes, until_stopped

from strandline.store.locate import CONSENSUS_FILE

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900)]

STALLED_S = 240
"""A replica insists for a minute, and one attempt takes ten seconds; this machine may be busy."""


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux lists locks")
def test_replicas_say_who_keeps_them_from_writing_and_go_on_by_themselves(tmp_path: Path) -> None:
    race = Racing(tmp_path)
    try:
        race.start()
        path = tmp_path / "lake" / CONSENSUS_FILE
        with somebody_writes(path) as child:
            os.kill(child.pid, signal.SIGSTOP)
            until_stopped(path)
            before = race.watch.committed()
            for life in race.replicas:
                assert race.watch.wait(
                    lambda life=life: life.events()[-1].get("state") == "stalled", STALLED_S
                ), life.last_words()
                cause = life.events()[-1]["cause"]
                assert f"kill -CONT {child.pid}" in cause, cause
            assert race.watch.committed() == before, "it can be read, and stands"
        race.strike("stop one shortly")
        race.finish()
    finally:
        race.close()
    assert not race.outcome.wrong, "\n".join(race.outcome.wrong)
