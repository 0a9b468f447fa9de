"""Fetches all of several parts, and waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import CancelledError, StrandlineError
from strandline.parts.part import Part
from strandline.reading.extract import extract
from strandline.reading.fetch import Fetcher, fetch_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.fetch import Fetched
    from strandline.shard.cancel import Cancel
    from strandline.shard.env import Env

_LOOK_MS = 200
"""How often a call that waits looks whether it was cancelled."""
_JOIN_MS = 1_000


@dataclass(frozen=True, slots=True)
class Failed:
    """A part that can't be read."""

    descriptor: PartDescriptor
    error: StrandlineError


def gather(
    env: Env, shard: str, descriptors: Sequence[PartDescriptor], cancel: Cancel | None = None
) -> list[pa.Table] | Failed:
    """The rows of each descriptor, in the order of the descriptors, or the first that failed."""
    found: dict[str, pa.Table] = {}
    parts = []
    for descriptor in descriptors:
        if isinstance(descriptor.piece, Part):
            parts.append(descriptor)
            continue
        try:
            found[descriptor.id] = extract(descriptor, b"")
        except StrandlineError as error:
            return Failed(descriptor, error)
    failed = _fetch(env, shard, parts, found, cancel) if parts else None
    return failed or [found[d.id] for d in descriptors]


def _fetch(
    env: Env,
    shard: str,
    parts: Sequence[PartDescriptor],
    found: dict[str, pa.Table],
    cancel: Cancel | None,
) -> Failed | None:
    changed = env.tasks.condition()
    failures: list[Failed] = []
    wanted = len(found) + len(parts)

    def deliver(descriptor: PartDescriptor, fetched: Fetched) -> None:
        fetcher.settle(descriptor)
        with changed:
            if isinstance(fetched, StrandlineError):
                failures.append(Failed(descriptor, fetched))
            else:
                found[descriptor.id] = fetched
            if failures or len(found) == wanted:
                changed.notify_all()

    fetcher = Fetcher(env, shard, deliver, fetch_rule(env, patient=False))
    fetcher.submit(parts)
    try:
        with changed:
            while not failures and len(found) < wanted:
                if cancel is not None and cancel.cancelled:
                    raise CancelledError(f"reading shard {shard} was cancelled")
                changed.wait(None if cancel is None else _LOOK_MS)
    finally:
        fetcher.close()
    fetcher.join(0 if failures else _JOIN_MS)
    return failures[0] if failures else None
