"""Ending a blocked call from another task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import CancelledError

if TYPE_CHECKING:
    from strandline.model.tasks import Event


class Cancel:
    """Give one to a call that may block; `cancel()` ends it with `CancelledError`.

    A call looks at it at least every 200 ms.
    """

    def __init__(self, event: Event) -> None:
        self._event = event

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


def check_cancel(cancel: Cancel | None, what: str) -> None:
    if cancel is not None and cancel.cancelled:
        raise CancelledError(f"{what} was cancelled")
