"""How large what is sent may be, so that nobody fills our memory (X11). Pure."""

from __future__ import annotations

from strandline.errors import TooLargeError

BODY_MAX = 16 * 1024 * 1024
LINE_MAX = 1024 * 1024
LINES_MAX = 100_000
DEPTH_MAX = 64


class Body:
    """Takes the pieces of a body, and stops at the limit."""

    def __init__(self, limit: int = BODY_MAX) -> None:
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise TooLargeError(f"a body of more than {self._limit} bytes is refused: send less")
        self._pieces.append(piece)

    def whole(self) -> bytes:
        return b"".join(self._pieces)


def declared(length: str | None, limit: int = BODY_MAX) -> None:
    """Refuse a body by what its header says of it, before any of it is read."""
    if length is not None and (not length.isdecimal() or int(length) > limit):
        raise TooLargeError(f"a body of more than {limit} bytes is refused: send less")


def lines_of(body: bytes) -> list[bytes]:
    """The rows in a body, one a line; empty lines are none."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > LINES_MAX:
        raise TooLargeError(f"{len(lines)} rows at once are refused: send at most {LINES_MAX}")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_MAX:
            raise TooLargeError(f"row {number} has {len(line)} bytes: {LINE_MAX} are taken")
        if is_deep(line):
            raise TooLargeError(f"row {number} is nested deeper than {DEPTH_MAX}")
    return lines


def is_deep(line: bytes) -> bool:
    """Whether JSON is nested deeper than anybody means it to be.

    >>> is_deep(b"[" * 65 + b"]" * 65), is_deep(b"[]," * 100), is_deep(b'"' + b"[" * 99 + b'"')
    (True, False, False)
    """
    return line.count(b"[") + line.count(b"{") > DEPTH_MAX and _deepest(line) > DEPTH_MAX


def _deepest(line: bytes) -> int:
    deepest = depth = 0
    inside = escaped = False
    for byte in line:
        if inside:
            inside = escaped or byte != 0x22
            escaped = not escaped and byte == 0x5C
        elif byte == 0x22:
            inside = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
