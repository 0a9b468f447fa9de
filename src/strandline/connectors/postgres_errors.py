"""Which of PostgreSQL's errors pass by themselves, and which somebody has to look at (S89).

    passes    no connection, a server that starts or stops, no room for another connection, no
              memory or disk, deadlocks, locks that are held, a server that only reads for now
    stays     a login, a database or a right that is refused, a name that is not there, a value
              that does not fit, a row that is there already

A login that is refused has no code in libpq, only text, which is in the server's language: what
is not understood passes, so it is tried again and shown.
"""

from __future__ import annotations

import re

from strandline.errors import SinkError, SinkStoppedError
from strandline.model.ids import printable

_PASSING_CLASSES = ("08", "25", "40", "53", "55", "57", "58", "XX")
_STAYING = ("XX001", "XX002")
_UNCLEAR = ("0A000", "26000")
"""Plans that were made before somebody changed the table: a new session has none."""
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|authentication failed|pg_hba\.conf"
    r"|(role|database) \"[^\"]*\" (does not exist|is not permitted)|is not permitted to log in"
    r"|permission denied|does not support SSL|certificate verify failed|server certificate for"
)
_STARTING = re.compile(r"starting up|shutting down|not accepting|recovery|too many|slots|timeout")


def passes(code: str | None, text: str) -> bool:
    """Whether it is worth trying again.

    >>> passes("57P03", ""), passes("53300", ""), passes("28P01", ""), passes(None, "refused")
    (True, True, False, True)
    """
    if code is None:
        return _STARTING.search(text) is not None or _REFUSED.search(text) is None
    if code in _STAYING:
        return False
    return code in _UNCLEAR or code[:2] in _PASSING_CLASSES


def trouble(code: str | None, text: str, what: str) -> SinkError:
    """The error for a publisher; `text` must hold no secret."""
    told = printable(text.strip(), 300)
    if passes(code, text):
        return SinkError(f"{what}: {told}")
    return SinkStoppedError(f"{what}: {told}; mend it, then let the sink go on")
