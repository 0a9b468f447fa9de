"""The Blob port: immutable objects that survive us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Content: TypeAlias = bytes | memoryview
"""A whole object; a large one may come as a view that can't be written to."""


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """One object as `list` shows it."""

    key: str
    size: int


class Blob(Protocol):
    """Objects by key. Keys are unique and never reused; values never change.

    Every method may raise `NotAppliedError` (it did not happen), `MaybeAppliedError` (it may
    have), `NameRefusedError` for a key that `model.ids.valid_key` refuses, `HandleClosedError`
    after `close`, and no other error. All methods may be called from any task at once.
    `strandline.testing.check_blob` checks what a caller can observe.
    """

    def get(self, key: str) -> Content | None:
        """Return the whole object, or `None` if there is none."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return `length` bytes from `start` (fewer at the end), or `None` if there is none.

        A negative `start` counts from the end of the object.
        """
        ...

    def put(self, key: str, value: bytes) -> None:
        """Store an object. Atomic, and durable when it returns.

        Putting the same value under the same key again is harmless, and the answer to
        `MaybeAppliedError`: after a failed sync a read may show what the disk never got.
        Another value is a bug of the caller's, and the store may keep either.
        """
        ...

    def delete(self, key: str) -> bool:
        """Remove an object; say whether it was there. Repeating it is harmless."""
        ...

    def list(self, prefix: str) -> Iterator[BlobEntry]:
        """All objects whose key starts with `prefix` (any prefix, not only whole folders).

        In no particular order. Objects put or deleted meanwhile may or may not be listed;
        all others are, once.
        """
        ...

    def close(self) -> None:
        """Give back what the client holds; the objects stay."""
        ...
