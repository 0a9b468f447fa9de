"""Text that may be shown on a terminal, whatever it holds (X21). Pure.

A terminal obeys what it is shown: a row could set its title, move the cursor over the line
above, or turn the reading direction round. Whatever is not plainly visible is shown as the
escape that a Python string would have for it; a real backslash stays as it is.
"""

from __future__ import annotations

import unicodedata
from datetime import date, datetime, time

# Control, format (direction marks, zero width), surrogate, private, unassigned; and the two
# separators that end a line.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, limit: int | None = None) -> str:
    """`text` on one line, harmless, and cut to `limit` characters.

    >>> visible("a\\x1b]0;owned\\x07b")
    'a\\\\x1b]0;owned\\\\x07b'
    """
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def cell(value: object, limit: int | None = None) -> str:
    """One value of a row as text, not yet made harmless: pass it through `visible`."""
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, bytes):
        text = f"0x{value.hex()}"
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ")
    else:
        text = str(value)
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def plain(value: object) -> object:
    """One value of a row as JSON can say it; what JSON has no word for becomes text."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        # JSON has no NaN and no infinity; a document that holds them can't be read back.
        return value if value - value == 0 else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, date | time) else str(value)
