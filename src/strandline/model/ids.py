"""Names that people choose, ids that we generate, and versions; each parsed by one rule.

A name never becomes a path and an id never comes from a person, so nothing that is typed can
leave its folder or its SQL statement (X1, X2). Both are ASCII: look-alikes can't be told apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from strandline.errors import NameRefusedError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]{0,127}(\.[A-Za-z0-9_][A-Za-z0-9_\-]{0,127}){0,3}")
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-.]{0,254}(/[A-Za-z0-9_][A-Za-z0-9_\-.]{0,254}){0,5}")
_ID = re.compile(r"[a-z][0-9a-f]{32}")


@dataclass(frozen=True, slots=True, order=True)
class SeqNo:
    """The position of one version in a key's history; prints as `v7`."""

    number: int

    def next(self) -> SeqNo:
        return SeqNo(self.number + 1)

    def __str__(self) -> str:
        return f"v{self.number}"


def printable(text: object, limit: int = 80) -> str:
    """`text` as one line without control characters, for errors and logs (X16, X21).

    >>> printable("a\\nb\\x1b[31m")
    "'a\\\\nb\\\\x1b[31m'"
    """
    shown = ascii(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def valid_name(name: object, kind: str = "shard") -> str:
    """Return `name` if it may name a shard, a timeline or a hold."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NameRefusedError(
            f"{kind} name {printable(name)} is refused: use ASCII letters, digits, '_' and '-', "
            "starting with a letter or '_', in up to four parts joined by '.'"
        )
    return name


def valid_key(key: object) -> str:
    """Return `key` if it may be a key of a Blob or Consensus store."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise NameRefusedError(f"store key {printable(key)} is refused: not a key of ours")
    return key


def valid_prefix(prefix: str) -> str:
    """Return `prefix` if some key of ours may start with it."""
    return prefix if prefix == "" else valid_key(prefix.rstrip("/")) and prefix


def valid_id(text: object, prefix: str) -> str:
    """Return `text` if it is an id that we generated with this one-letter prefix."""
    if not isinstance(text, str) or not _ID.fullmatch(text) or text[0] != prefix:
        raise NameRefusedError(f"id {printable(text)} is refused: expected {prefix}<32 hex digits>")
    return text
