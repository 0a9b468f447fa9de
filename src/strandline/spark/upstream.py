"""The changes of a shard that feeds a table: listed by the driver, fetched by tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.connectors.shard import rows_of
from strandline.errors import SinceError, SourceGoneError
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described
from strandline.spark.source_fetch import fetch_streamed
from strandline.spark.source_plan import plan_changes, plan_snapshot
from strandline.spark.source_rows import change_updates, snapshot_rows, stamped

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from strandline.connectors.source import Split
    from strandline.spark.premises import Premises
    from strandline.spark.source_plan import Work
    from strandline.store.blob import Blob

TASK_BYTES = 64 * 1024 * 1024
"""About so many bytes are read by one task."""


def listed(premises: Premises, split: Split) -> list[Work]:
    """What tasks read for a split; what they read stays until the transaction is computed."""
    name = split.options["shard"]
    machine, view = premises.upstream(name)
    request = Request.parse(None, None, view.state.schema)
    whole = split.start == 0
    bounds = Bounds(as_of=split.stop - 1) if whole else Bounds(after=split.start, upto=split.stop)
    try:
        parts = described(machine, view.state, request, bounds).parts
    except SinceError as error:
        raise SourceGoneError(
            f"changes from {split.start} to {split.stop} can't be read any more: {error}"
        ) from error
    if not parts:
        return []
    return (plan_snapshot if whole else plan_changes)(parts, bytes_max=TASK_BYTES)


def work_rows(work: Work, split: Split, blob: Blob) -> Iterator[pa.Table]:
    """The rows of a piece of work, as the source of the split gives them."""
    fetch = fetch_streamed(blob)
    if split.start:
        for updates in change_updates(work, fetch):
            yield rows_of(updates, split)
    else:
        for rows in snapshot_rows(work, fetch):
            yield rows_of(stamped(rows, split.stop - 1), split)
