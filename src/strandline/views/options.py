"""What may be said in `OPTIONS`, and secrets that may not.

The text of a program is journaled, so a secret in it would be there for ever (S90). Its place is
the environment or a file, and the option's value is `env:NAME` or `file:/path`.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

from strandline.model.sensitive import is_sensitive, is_sensitive_setting
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
SINK_REQUIRED = {
    "callback": ("delivery",),
    "files": ("path",),
    "iceberg": ("table",),
    "kafka": ("kafka.bootstrap.servers", "topic"),
    "postgresql": ("url", "table"),
}
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_\-]*(\.[A-Za-z0-9_\-]+)*")
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+")
_IPV6 = re.compile(r"(?<=[/@,])\[[0-9A-Fa-f:.]+(?:%\w+)?\](?=[:/?#,]|$)")
_IN_URL = re.compile(r"://[^/@?#]*:(?!//|\d{1,5}(?:[/?#,]|$)).+@", re.DOTALL)
"""A password may hold what ends a host (`u:p/w@h`): clients differ in what they make of that. What
looks like a port (`h:8181/@me`) is one, and `//` begins another URL of a list."""
_WORD = re.compile(r"(?:^|[?&#;,'\"\s])([A-Za-z][A-Za-z0-9_.\-]*)(?=\s*=\s*[^\s&;,])")
"""What a query (`?user=u&password=x`) or a list of settings (`host=h password=x`) names."""
_IN_JSON = re.compile(r'"([^"\\]+)"\s*:\s*"[^"]')
_PEM = "PRIVATE KEY-----"
_NESTED = re.compile(r"catalog\.(auth|ssl)(\..*)?", re.IGNORECASE)
"""Where pyiceberg takes a mapping, of logins, keys, classes to load and hosts to ask: as text they
say nothing to it, and would be kept with the program."""
VALUE_MAX = 4096


def check_options(options: Iterable[tuple[str, str]], what: str, *, recorded: bool = False) -> None:
    """Refuse keys that are none, that are said twice, and values that hold a secret, unless it is
    on record already."""
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
        if not recorded:
            _check_secret(key, value, what)


def _check_secret(key: str, value: str, what: str) -> None:
    # The value itself is never printed: errors reach logs.
    told = f"{what}: option {named(key)} holds a secret, and programs are journaled"
    if _NESTED.fullmatch(key):
        raise Refused(
            f"{what}: option {named(key)} says nothing to pyiceberg, which takes no text there",
            "write catalog.credential or catalog.token as a reference, or configure the catalog in "
            "pyiceberg's own file .pyiceberg.yaml, under the name of catalog.name",
        )
    if is_sensitive(key) and not _REFERENCE.fullmatch(value):
        raise Refused(told, "give a reference: 'env:NAME' or 'file:/path'")
    if _holds_secret(value):
        raise Refused(
            told,
            "leave the password out and give it as an option of its own, or give the whole value, "
            "as a reference: 'env:NAME' or 'file:/path'",
        )


def _holds_secret(value: str) -> bool:
    """Whether there is a password in a URL, its query, a list of settings or JSON, or a key.

    >>> _holds_secret("postgresql://u@h:5432/db"), _holds_secret("host=h user=u password=x")
    (False, True)
    """
    # Clients decode names, too: `pass%77ord=x` is a password.
    words = (_WORD.findall(each) for each in (value, unquote(value)))
    if any(map(is_sensitive_setting, chain(*words, _IN_JSON.findall(value)))) or _PEM in value:
        return True
    # The colons of an address in brackets are none before a password.
    return _IN_URL.search(_IPV6.sub("h", value)) is not None


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


def check_required(
    connector: str, options: Mapping[str, str], required: Mapping[str, tuple[str, ...]] = REQUIRED
) -> None:
    """Refuse what could not even start to look for its rows, or for its target."""
    have = {key.casefold() for key in options}
    for key in required.get(connector, ()):
        if key.casefold() not in have:
            raise Refused(f"{connector} needs the option {key}", f"add: {key} '…'")
    chosen = next((value for key, value in options.items() if key.casefold() == "format"), None)
    if chosen is not None:
        check_choice(chosen, FORMATS, "format")
