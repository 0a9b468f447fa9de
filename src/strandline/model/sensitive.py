"""Names that say that a value is a secret: of options, and of settings within a value (S90).

An option is one if a part of its name says so, unless it says where the secret is or what kind it
has. A setting in a URL's query or in a list is one if its name ends so: `access_token`, and not
`max_tokens`, since anybody's server may be told anything there.
"""

from __future__ import annotations

import re

_KEY = r"(?:account|access|shared|sas|master)[._-]?key$|(?:key[._-]?store|ssl)[._-]key$"
_ANYWHERE = (
    r"password|passwd|passphrase|pwd|secret|token|credential|jaas|api[._-]?key|private|\.pem"
    r"|connection[._-]?string|authorization"
)
_OPTION = re.compile(rf"{_ANYWHERE}|{_KEY}")
_NO_OPTION = re.compile(r"location|endpoint|[._-](path|file|url|mechanism|type|provider|class)$")
_SETTING = re.compile(
    rf"(?:{_ANYWHERE}|credentials|jaas[._-]config|(?:private|secret)[._-]?key|signature)$"
    rf"|{_KEY}|(?:^|[._-])sig$"
)


def is_sensitive(option: str) -> bool:
    """Whether an option of this name holds what nobody may see.

    >>> is_sensitive("kafka.sasl.password"), is_sensitive("token.endpoint")
    (True, False)
    """
    name = option.casefold()
    return _OPTION.search(name) is not None and _NO_OPTION.search(name) is None


def is_sensitive_setting(word: str) -> bool:
    """Whether what is set by this word, within a value, is what nobody may see.

    >>> is_sensitive_setting("access_token"), is_sensitive_setting("max_tokens")
    (True, False)
    """
    return _SETTING.search(word.casefold()) is not None
