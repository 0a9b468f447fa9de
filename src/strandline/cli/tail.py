"""Follows a shard: its updates as they come, and how far it is settled.

Ctrl-C ends it like an answer that is complete: the lease is given back, and the exit code is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from strandline.cli.conditions import parse_as_of, parse_columns, parse_conditions
from strandline.cli.opening import opened
from strandline.cli.signals import heeding_signals
from strandline.cli.stream import (
    InOrder,
    progress_document,
    progress_line,
    update_documents,
    update_line,
)
from strandline.reading.events import Progress, Updates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.cli.facts import Document
    from strandline.cli.output import Output
    from strandline.cli.signals import Signals
    from strandline.handles.shard import Shard
    from strandline.model.frontier import Time
    from strandline.reading.events import Event
    from strandline.reading.subscribe import Subscription

_LOOK_MS = 200


@dataclass(frozen=True, slots=True)
class Following:
    """What is to be followed, in the words of the command line."""

    start: str | None = None
    until: int | None = None
    columns: str | None = None
    filters: Sequence[str] = ()
    snapshot: bool = True


def follow(url: str, name: str, wanted: Following, out: Output) -> None:
    with opened(url, name) as store:
        shard = store.shard(name)
        with (
            shard.subscribe(
                _start(shard, wanted.start),
                until=wanted.until,
                snapshot=wanted.snapshot,
                columns=parse_columns(wanted.columns),
                filter=parse_conditions(wanted.filters, shard.schema),
            ) as subscription,
            heeding_signals() as signals,
        ):
            _print(_until_told(subscription, signals), out)


def _until_told(subscription: Subscription, signals: Signals) -> Iterator[Event]:
    """Its events, to the end or until a signal came.

    An interrupt in the middle of a wait could leave a lock taken that closing needs.
    """
    while not signals.came:
        event = subscription.poll(_LOOK_MS)
        if event is not None:
            yield event
        elif subscription.frontier.time is None:
            return


def _start(shard: Shard, text: str | None) -> Time | None:
    """The time to start from; an instant is that of the last time settled by then."""
    start = None if text is None else parse_as_of(text)
    if isinstance(start, datetime):
        with shard.snapshot(start) as snapshot:
            return snapshot.as_of
    return start


def _print(events: Iterable[object], out: Output) -> None:
    """Print events until there are no more; each frontier after all that it settles."""
    order = InOrder()
    for event in events:
        if isinstance(event, Updates):
            _print_updates(order.add(update_documents(event.rows)), out)
        elif isinstance(event, Progress):
            _print_updates(order.flush(), out)
            out.event(progress_document(event.frontier), progress_line(event.frontier))


def _print_updates(updates: Iterable[Document], out: Output) -> None:
    for update in updates:
        out.event(update, update_line(update, raw=out.raw))
