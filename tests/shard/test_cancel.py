"""Tests of ending a blocked call."""

from __future__ import annotations

import pytest

from strandline.errors import CancelledError
from strandline.shard.cancel import Cancel, check_cancel
from strandline.system import SystemTasks


def test_a_cancelled_call_says_what_it_was() -> None:
    cancel = Cancel(SystemTasks().event())
    check_cancel(cancel, "reading")
    check_cancel(None, "reading")
    cancel.cancel()
    assert cancel.cancelled
    with pytest.raises(CancelledError, match="reading was cancelled"):
        check_cancel(cancel, "reading")
