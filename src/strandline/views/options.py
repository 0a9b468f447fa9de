"""What may be said in `OPTIONS`, and secrets that may not.

The text of a program is journaled, so a secret in it would be there for ever (S90). Its place is
the environment or a file, and the option's value is `env:NAME` or `file:/path`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from strandline.views.declared import ENVELOPES, ON_ERROR
from strandline.views.troubles import Refused, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OURS = ("envelope", "onerror", "sequenceby")
FORMATS = ("avro", "csv", "json", "parquet")
REQUIRED = {
    "files": ("path",),
    "generator": (),
    "http": (),
    "kafka": ("kafka.bootstrap.servers", "subscribe"),
    "strandline": ("shard",),
}
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*(\.[A-Za-z0-9_\-]+)*")
_SECRET = re.compile(r"password|passwd|secret|token|credential|jaas|api[._-]?key|private|\.pem")
_NO_SECRET = re.compile(r"location|endpoint|\.(path|file|url|mechanism|type)$")
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+")
_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")
VALUE_MAX = 4096


def check_options(options: Iterable[tuple[str, str]], what: str) -> None:
    """Refuse keys that are none, that are said twice, and values that hold a secret."""
    seen: set[str] = set()
    for key, value in options:
        if not all(isinstance(each, str) for each in (key, value)):
            raise Refused(f"{what}: option {named(key)} is no text", "write it as 'text'")
        if len(value) > VALUE_MAX or "\x00" in value or "${" in value:
            raise Refused(f"{what}: the value of option {named(key)} is too long or not plain",
                          f"use up to {VALUE_MAX} characters, no NUL and no '${{'")  # fmt: skip
        if not _KEY.fullmatch(key):
            raise Refused(f"{what}: {named(key)} is no option", "use letters, digits, '.' and '_'")
        if key.casefold() in seen:
            raise Refused(f"{what}: option {named(key)} is given twice", "keep one")
        seen.add(key.casefold())
        _check_secret(key, value, what)


def _check_secret(key: str, value: str, what: str) -> None:
    lowered = key.casefold()
    secret = _SECRET.search(lowered) and not _NO_SECRET.search(lowered)
    if (secret and not _REFERENCE.fullmatch(value)) or _IN_URL.search(value):
        # The value itself is never printed: errors reach logs.
        raise Refused(
            f"{what}: option {named(key)} holds a secret, and programs are journaled",
            "give a reference: 'env:NAME' or 'file:/path'",
        )


def split_ours(
    options: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """Options of Strandline under their lower-case names, and those of the connector."""
    ours = {key.casefold(): value for key, value in options.items() if key.casefold() in OURS}
    rest = {key: value for key, value in options.items() if key.casefold() not in OURS}
    return ours, rest


def check_choice(value: str, among: tuple[str, ...], what: str) -> str:
    """`value` in lower case if it is one of those, or `Refused`."""
    if value.casefold() not in among:
        raise Refused(f"{what} {named(value)} is unknown", f"use one of: {', '.join(among)}")
    return value.casefold()


def envelope_of(value: str) -> str:
    return check_choice(value, ENVELOPES, "envelope")


def on_error_of(value: str) -> str:
    return check_choice(value, ON_ERROR, "onError")


def check_required(connector: str, options: Mapping[str, str]) -> None:
    """Refuse a table whose connector could not even start to look for its rows."""
    have = {key.casefold() for key in options}
    for key in REQUIRED.get(connector, ()):
        if key.casefold() not in have:
            raise Refused(f"{connector} needs the option {key}", f"add: {key} '…'")
    chosen = next((value for key, value in options.items() if key.casefold() == "format"), None)
    if chosen is not None:
        check_choice(chosen, FORMATS, "format")
