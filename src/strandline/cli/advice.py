"""What to try after an error, and with which code the command ends. Pure.

0  it is done            2  the command has to be written differently
1  the store, the machine or the data is not as it should be
"""

from __future__ import annotations

from strandline.errors import (
    CorruptionError,
    LeaseLostError,
    NewerFormatError,
    NotFoundError,
    NotInstalledError,
    SinceError,
    StoreError,
    StrandlineError,
    UsageError,
)

_STEPS: tuple[tuple[type[StrandlineError], str], ...] = (
    (NotFoundError, "strandline {listing} {store}"),
    (SinceError, "strandline history {store} {shard}"),
    (NewerFormatError, "upgrade strandline"),
    (CorruptionError, "strandline fsck {store}"),
    (LeaseLostError, "run it again: this process stood still for longer than its lease"),
    (NotInstalledError, "strandline doctor"),
    (StoreError, "strandline doctor {store}"),
)
"""The first kind that fits decides, so the special ones come first."""

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


def exit_code(error: StrandlineError) -> int:
    return MISUSED if isinstance(error, UsageError) else FAILED


def next_step(
    error: StrandlineError,
    url: str,
    shard: str | None,
    *,
    found: bool,
    listing: str = "shards",
) -> str:
    """What a person would do about it, as a command where there is one.

    `found` says whether the store itself could be opened, `listing` which verb shows what there is.
    """
    if not found and isinstance(error, NotFoundError):
        return "give the folder that was passed to strandline.open()"
    for kind, step in _STEPS:
        if isinstance(error, kind):
            return step.format(store=url, shard=shard or "SHARD", listing=listing)
    return ""
