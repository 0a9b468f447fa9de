"""Who may ask: a token in a header, a Host that is ours, no other site's page. Pure.

    Host is not ours            403   a name that was made to point here (DNS rebinding)
    Origin is not ours          403   a page of another site
    a wrong or missing token    401   and 429 after too many of them

There is no cookie and no CORS, so no browser sends our token on somebody else's behalf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hmac import compare_digest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK = ("localhost", "127.0.0.1", "::1")
WRONG_MAX = 20
"""So many wrong tokens a minute are answered; then nobody is heard who has none."""
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody is not served."""

    status: int
    reason: str


@dataclass
class Guard:
    """The door of one server."""

    token: str
    hosts: frozenset[str] = frozenset(LOOPBACK)
    _wrong: list[int] = field(default_factory=list)

    def refusal(self, headers: Mapping[str, str], now_ms: int) -> Refusal | None:
        """`None` if these headers are welcome; header names are in lower case."""
        if host_of(headers.get("host", "")) not in self.hosts:
            return Refusal(403, "this Host is not served here")
        origin = headers.get("origin")
        if origin is not None and host_of(origin.partition("://")[2]) not in self.hosts:
            return Refusal(403, "pages of other sites are not served")
        if self._is_known(headers.get("authorization", "")):
            return None
        self._wrong = [each for each in self._wrong if now_ms - each < _MINUTE_MS][-WRONG_MAX:]
        if len(self._wrong) >= WRONG_MAX:
            return Refusal(429, "too many wrong tokens: wait a minute")
        self._wrong.append(now_ms)
        return Refusal(401, "send the token: Authorization: Bearer …")

    def _is_known(self, given: str) -> bool:
        scheme, _, token = given.partition(" ")
        right = compare_digest(token.strip().encode(), self.token.encode())
        return right and scheme.lower() == "bearer"


def host_of(given: str) -> str:
    """The name in a Host header, without its port.

    >>> host_of("localhost:8080"), host_of("[::1]:80"), host_of("EVIL.example")
    ('localhost', '::1', 'evil.example')
    """
    if given.startswith("["):
        return given[1:].partition("]")[0].lower()
    return given.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in LOOPBACK
