"""The text of a program to a program, or every error in it by line."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import TokenType

from strandline.views.declared import Sink, Table, ViewQuery
from strandline.views.program import Program
from strandline.views.sqltext import tokenize
from strandline.views.statements import meant_name, read_statement
from strandline.views.troubles import Refused, Troubles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlglot import Token

STATEMENTS_MAX = 1000
_KEPT = 16
"""Programs that are kept as read: replicas, queries and replays ask for the same few for ever."""


def parse(
    text: str, settings: Mapping[str, str] | None = None, *, recorded: bool = False
) -> Program:
    """The program that a text declares; `ProgramError` lists all that is wrong with it.

    What is `recorded` in a journal may hold what is a secret only since: that it is there can't be
    changed, and who can't read it can't go on to a program without.

    >>> parse("CREATE TABLE t (k INT, PRIMARY KEY (k)) USING generator").tables[0].key
    ('k',)
    """
    program = _read(text, recorded=recorded)
    return replace(program, settings=dict(settings)) if settings else program


@lru_cache(maxsize=_KEPT)
def _read(text: str, *, recorded: bool) -> Program:
    troubles = Troubles()
    tables: list[Table] = []
    views: list[ViewQuery] = []
    sinks: list[Sink] = []
    for tokens in _statements(text, troubles):
        try:
            declared = read_statement(tokens, text, recorded=recorded)
        except Refused as refused:
            troubles.take(refused, line=tokens[0].line)
            troubles.unread.extend(meant_name(tokens))
            continue
        if isinstance(declared, Table):
            tables.append(declared)
        elif isinstance(declared, ViewQuery):
            views.append(declared)
        else:
            sinks.append(declared)
    return Program.of(tables, views, sinks, found=troubles, recorded=recorded)


def _statements(text: str, troubles: Troubles) -> Iterator[list[Token]]:
    try:
        tokens = tokenize(text)
    except Refused as refused:
        troubles.take(refused, line=1)
        return
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    filled = [each for each in found if each]
    if len(filled) > STATEMENTS_MAX:
        troubles.add(1, f"{len(filled)} statements", f"use at most {STATEMENTS_MAX}")
    elif not filled:
        troubles.add(1, "the program is empty", "declare a table: CREATE TABLE …")
    else:
        yield from filled
