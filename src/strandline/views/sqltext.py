"""Text to tokens and trees and back, so that nothing else needs to know the parser.

An engine is only ever given text that `write` made from a tree that was checked, never what a
person typed: where two parsers would read one text in two ways, ours has decided. Literals that
Spark and our parser read differently are refused here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, TokenError

from strandline.views.troubles import Refused, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

TEXT_MAX = 256 * 1024
DEPTH_MAX = 60
_SPARK = Dialect.get_or_raise("spark")
_BROKEN = (
    SqlglotError, RecursionError, ArithmeticError, AssertionError, AttributeError, LookupError,
    NotImplementedError, TypeError, ValueError,
)  # fmt: skip
"""What a parser may raise on text that nobody meant: it is a guest here, and gets no further."""

_ESCAPES = re.compile(r"""\\(?:[\\'"nrt%_]|u[0-9a-fA-F]{4})""")
_LINE = re.compile(r"[Ll]ine (\d+)")
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
_STARTS = {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN}
_STRINGS = {TokenType.STRING, TokenType.RAW_STRING}
_NO_TOKENS = {
    TokenType.PARAMETER: "a parameter or a variable",
    TokenType.PLACEHOLDER: "a placeholder",
    TokenType.L_BRACE: "a brace",
    TokenType.HINT: "a hint",
    TokenType.PIPE_GT: "the pipe operator |>",
    TokenType.COLON: "a colon",
    TokenType.BLOCK_START: "a template",
    TokenType.BLOCK_END: "a template",
}


def tokenize(text: str) -> list[Token]:
    """The tokens of a text, each with the line it is on; comments are gone."""
    if len(text) > TEXT_MAX:
        raise Refused(f"the text has {len(text)} characters", f"keep it below {TEXT_MAX}", line=1)
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise Refused("the text has a NUL character", "remove it", line=line)
    try:
        tokens = _SPARK.tokenize(text)
    except TokenError as error:
        raise Refused(
            "a quoted string, a name or a comment has no end", "close it", line=_line(error, text)
        ) from error
    except _BROKEN as error:
        raise Refused("the text can't be read", "simplify it", line=1) from error
    for token in tokens:
        _check_string(token, text)
    return list(tokens)


def parse_query(tokens: Sequence[Token], text: str) -> exp.Query:
    """The tree of one query, whose tokens may come from the middle of a text."""
    if not tokens:
        raise Refused("there is no query", "write one: SELECT … FROM …")
    first = tokens[0]
    if first.token_type not in _STARTS:
        raise Refused(
            f"{named(first.text)} starts no query", "start with SELECT or WITH", line=first.line
        )
    _check_tokens(tokens)
    try:
        trees = _SPARK.parser(error_level=ErrorLevel.IMMEDIATE).parse(list(tokens), text)
    except ParseError as error:
        raise _parse_trouble(error, first.line) from error
    except _BROKEN as error:
        raise Refused("the query can't be read", "simplify it", line=first.line) from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query):
        raise Refused("this is no single query", "write one SELECT", line=first.line)
    return tree


@lru_cache(maxsize=1024)
def parse_expression(text: str) -> exp.Expr:
    """The tree of one expression that `write` wrote; for everybody who asks, so read it only."""
    tree = parse_query(tokenize(f"SELECT {text}"), f"SELECT {text}")
    return tree.expressions[0]  # type: ignore[no-any-return]


def write(tree: exp.Expr) -> str:
    """The one way to write a tree: names quoted, keywords in capitals, no comments.

    What would not be read back as it was written is refused.
    """
    try:
        text: str = tree.sql(
            dialect=_SPARK, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE
        )
    except _BROKEN as error:
        raise Refused("the query can't be written for Spark", "simplify it") from error
    if "${" in text:
        # Spark replaces `${env:NAME}` by the variable, also inside of strings, before it parses.
        raise Refused("'${' is a substitution to Spark, even in strings", "write it without")
    return text


def rewritten(tree: exp.Query) -> tuple[exp.Query, str]:
    """The tree as it is after one way to text and back, and that text, which must not change."""
    text = write(tree)
    again = parse_query(tokenize(text), text)
    if write(again) != text:
        raise Refused("the query can't be written in one way for Spark", "simplify it")
    return again, text


def line_of(node: exp.Expr, default: int = 0) -> int:
    """The line of a node of a tree: its own, or that of the nearest name below or above."""
    try:
        below = [each.meta["line"] for each in node.walk() if "line" in each.meta]
    except RecursionError:
        return default
    if below:
        return int(min(below))
    above: exp.Expr | None = node.parent
    while above is not None:
        if "line" in above.meta:
            return int(above.meta["line"])
        above = above.parent
    return default


def line_of_word(tokens: Sequence[Token], word: str, default: int) -> int:
    """The line of the first token that is this word, whatever its case."""
    wanted = word.casefold()
    return next((each.line for each in tokens if each.text.casefold() == wanted), default)


def _check_tokens(tokens: Sequence[Token]) -> None:
    depth = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        kind = token.token_type
        if kind in _NO_TOKENS and not (kind is TokenType.COLON and _in_type(tokens, token)):
            raise Refused(
                f"{_NO_TOKENS[kind]} ({named(token.text)}) is refused",
                "write the value itself, or leave it out",
                line=token.line,
            )
        if before is not None and kind in _STRINGS and before.token_type in _STRINGS:
            raise Refused(
                "two strings side by side mean different things to different versions of Spark",
                r"write one string, a quote inside of it as \'",
                line=token.line,
            )
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth > DEPTH_MAX:
            raise Refused("the query is nested too deeply", "simplify it", line=token.line)


def _in_type(tokens: Sequence[Token], colon: Token) -> bool:
    """Whether a colon is that of `STRUCT<name: type>`."""
    opened = [each for each in tokens if each.token_type is TokenType.LT and each.end < colon.start]
    return bool(opened) and any(each.token_type is TokenType.STRUCT for each in tokens)


def _check_string(token: Token, text: str) -> None:
    if token.token_type is not TokenType.STRING:
        return
    written = text[token.start : token.end + 1]
    if "\\" in _ESCAPES.sub("", written):
        raise Refused(
            f"the string {named(written)} has an escape that is not one of \\\\ \\' \\\" \\n \\r "
            "\\t \\% \\_ \\uXXXX",
            "write the character itself, or as \\uXXXX",
            line=token.line,
        )


def _parse_trouble(error: ParseError, default: int) -> Refused:
    first = error.errors[0] if error.errors else {}
    near = first.get("highlight") or ""
    what = f"the query can't be read near {named(near)}" if near else "the query can't be read"
    return Refused(what, "see Spark's SQL reference", line=int(first.get("line") or default))


def _line(error: TokenError, text: str) -> int:
    found = _LINE.search(str(error))
    return int(found.group(1)) if found else text.count("\n") + 1
