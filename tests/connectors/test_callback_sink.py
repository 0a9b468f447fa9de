"""A function as a sink: it gets whole transactions, and says nothing of its progress."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.connectors.callback_sink import open_sink, unable
from strandline.connectors.sink import NOTHING_YET, Callback, Progress, SinkPorts
from strandline.errors import InvariantError, SinkError, UsageError
from strandline.testing.conformance_sink import WHAT, changes


def ports(**callbacks: Callback) -> SinkPorts:
    return SinkPorts(str, lambda: "0" * 32, callbacks)


def test_the_function_gets_the_changes_and_their_time() -> None:
    seen: list[tuple[int, pa.Table]] = []
    sink = open_sink({}, WHAT, ports(out=lambda rows, t: seen.append((t, rows))))
    sink.prepare()
    assert sink.progress() is None
    sink.deliver(7, 1, changes(7))
    ((t, rows),) = seen
    assert (t, rows) == (7, pa.Table.from_batches(changes(7)))
    sink.close()


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_what_the_function_raises_may_pass(error: type[BaseException]) -> None:
    """Also if it means to exit: that would be the end of the publisher, and of nothing else."""

    def fails(rows: pa.Table, t: int) -> None:
        raise error("no \x1b room")

    sink = open_sink({}, WHAT, ports(out=fails))
    told = rf"sink out raised at transaction 7: .*{error.__name__}: no"
    with pytest.raises(SinkError, match=told):
        sink.deliver(7, 1, changes(7))


def test_nothing_is_delivered_without_changes() -> None:
    sink = open_sink({}, WHAT, ports(out=lambda rows, t: None))
    with pytest.raises(InvariantError, match="no changes"):
        sink.deliver(7, 1, [])


def test_a_lineage_that_begins_with_nothing_calls_no_function() -> None:
    """Rows are all that it is told: it could not tell that another history begins."""
    seen: list[int] = []
    sink = open_sink({}, WHAT, ports(out=lambda rows, t: seen.append(t)))
    sink.found(Progress(NOTHING_YET, 1))
    sink.deliver(7, 1, [])
    with pytest.raises(InvariantError, match="no changes"):
        sink.deliver(8, 1, [])
    sink.deliver(8, 1, changes(8))
    assert seen == [8]
    later = open_sink({}, WHAT, ports(out=lambda rows, t: seen.append(t)))
    later.found(Progress(8, 1))
    with pytest.raises(InvariantError, match="no changes"):
        later.deliver(9, 1, [])


def test_a_process_without_the_function_says_how_to_give_it() -> None:
    assert unable("out", ports(out=lambda rows, t: None)) == ""
    assert "foreach_transaction('out', function)" in unable("out", ports())
    with pytest.raises(UsageError, match="foreach_transaction"):
        open_sink({}, WHAT, ports())


def test_it_can_not_be_read_back() -> None:
    with pytest.raises(UsageError, match="can't be read back"):
        open_sink({}, WHAT, ports(out=lambda rows, t: None)).read_back()
