"""A cursor over the tokens of one statement; every refusal names the line it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType

from strandline.views.troubles import Refused, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

_TEXTS = {TokenType.STRING, TokenType.RAW_STRING}


class Cursor:
    """Reads tokens one by one. Words are compared whatever their case; quoted names are none."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def line(self) -> int:
        """The line of what comes next, or of the last token at the end."""
        if not self._tokens:
            return 1
        return int(self._tokens[min(self._at, len(self._tokens) - 1)].line)

    @property
    def rest(self) -> Sequence[Token]:
        """All that was not read yet."""
        return self._tokens[self._at :]

    def ended(self) -> bool:
        return self._at >= len(self._tokens)

    def accept(self, *words: str) -> bool:
        """Move behind these words if they all come next, one after the other."""
        wanted, at = [word.casefold() for word in words], self._at
        while wanted and at < len(self._tokens):
            token = self._tokens[at]
            if token.token_type in _TEXTS or token.token_type is TokenType.IDENTIFIER:
                return False
            # The tokenizer makes one token of some pairs, like PRIMARY KEY.
            have = token.text.casefold().split() or [""]
            if wanted[: len(have)] != have:
                return False
            wanted, at = wanted[len(have) :], at + 1
        if wanted:
            return False
        self._at = at
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self._missing(" ".join(words))

    def name(self, what: str) -> str:
        """A name, quoted or not."""
        return self._take(what, quoted=True)

    def word(self, what: str) -> str:
        """A name that is not quoted."""
        return self._take(what, quoted=False)

    def text(self, what: str) -> str:
        """The value of a string."""
        if self.ended() or self._tokens[self._at].token_type not in _TEXTS:
            raise self._missing(f"{what} as 'text'")
        return self._next()

    def number(self) -> int:
        if self.ended() or not self._tokens[self._at].text.isdecimal():
            raise self._missing("a whole number")
        text = self._next()
        return int(text) if len(text) < 10 else -1

    def dotted(self, what: str) -> str:
        """A key like `kafka.bootstrap.servers`, or the same as a string."""
        if not self.ended() and self._tokens[self._at].token_type in _TEXTS:
            return self._next()
        key = [self.name(what)]
        while self.accept("."):
            key.append(".")
            key.append(self.name(what))
        return "".join(key)

    def end(self, after: str) -> None:
        """Refuse whatever follows."""
        if not self.ended():
            raise Refused(
                f"{named(self._tokens[self._at].text)} after {after}", "remove it", line=self.line
            )

    def _take(self, what: str, *, quoted: bool) -> str:
        if self.ended():
            raise self._missing(what)
        token = self._tokens[self._at]
        plain = token.text.replace("_", "a").isalnum() and not token.text[:1].isdigit()
        is_quoted = token.token_type is TokenType.IDENTIFIER
        if token.token_type in _TEXTS or (is_quoted and not quoted) or not (is_quoted or plain):
            raise self._missing(what)
        return self._next()

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        return str(token.text)

    def _missing(self, what: str) -> Refused:
        if self.ended():
            return Refused(f"{what} is missing at the end", "add it", line=self.line)
        return Refused(
            f"{what} is missing before {named(self._tokens[self._at].text)}", "add it",
            line=self.line,
        )  # fmt: skip
