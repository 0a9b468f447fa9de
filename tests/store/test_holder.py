"""Whoever keeps everybody from writing is named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.store.writer import somebody_writes, until_stopped

from strandline.errors import NotAppliedError
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned
from strandline.store.holder import holder_of, lock_holder
from strandline.store.sqlite import SqliteConsensus

LISTED = """\
1: POSIX  ADVISORY  READ 11 fe:00:77 120 120
2: POSIX  ADVISORY  WRITE 12 fe:00:77 128 128
3: FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF
4: -> POSIX  ADVISORY  WRITE 14 fe:00:77 120 120
5: POSIX  ADVISORY  WRITE 15 fe:00:78 120 120
"""


def test_only_who_holds_the_write_lock_of_that_file_is_meant():
    assert lock_holder(LISTED, 77) is None
    assert lock_holder(LISTED, 78) == 15
    assert lock_holder("", 77) is None
    # In another namespace of processes, a holder has no number here.
    assert lock_holder("1: POSIX ADVISORY WRITE 0 fe:00:77 120 120", 77) is None


def test_a_file_that_is_not_there_is_held_by_nobody(tmp_path: Path):
    assert holder_of(tmp_path / "none.db") is None


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux lists locks")
def test_a_process_stopped_within_a_write_is_named_with_what_to_do(tmp_path: Path):
    path = tmp_path / "c.db"
    consensus = SqliteConsensus(path, busy_ms=50)
    new = Versioned(SeqNo(0), b"v")
    assert holder_of(path) is None
    with somebody_writes(path) as child:
        held = holder_of(path)
        assert held is not None
        assert (held.pid, held.stopped) == (child.pid, False)
        os.kill(child.pid, signal.SIGSTOP)
        found = until_stopped(path)
        assert found.pid == child.pid
        with pytest.raises(NotAppliedError, match=f"is stopped: .*kill -CONT {child.pid}"):
            consensus.compare_and_set("k", new)
        assert consensus.head("k") is None, "whoever only reads does not wait"
    assert consensus.compare_and_set("k", new) is CasResult.COMMITTED
    consensus.close()
