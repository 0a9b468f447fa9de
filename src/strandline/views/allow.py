"""The only statements, clauses and functions that a program or a query may use (X8).

SQL is data and Spark is no sandbox: whatever is not known here to be harmless is refused, by name.

    tables      names of registered collections, or of a WITH at the start; nothing with a dot
    nodes       the kinds of clause and operator in `_NODES`, with no arguments but the known ones
    functions   those in `functions.LISTED`; only a query may use those of `QUERY_ONLY`
    text        what Spark gets is written from the checked tree, never what was typed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.errors import InvariantError
from strandline.views import functions
from strandline.views.scope import check_tables
from strandline.views.sqltext import line_of, parse_query, rewritten, tokenize
from strandline.views.troubles import Refused, Troubles, named

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlglot import Token

_NODES: frozenset[type[exp.Expr]] = frozenset({
    # the shape of a query
    exp.Select, exp.From, exp.Where, exp.Join, exp.Group, exp.Having, exp.Order, exp.Ordered,
    exp.Limit, exp.Offset, exp.Distinct, exp.Union, exp.Intersect, exp.Except, exp.With, exp.CTE,
    exp.Subquery, exp.Table, exp.TableAlias, exp.Identifier, exp.Column, exp.Star, exp.Alias,
    exp.Lateral, exp.Values, exp.Tuple, exp.Paren, exp.Cube, exp.Rollup, exp.GroupingSets,
    exp.Window, exp.WindowSpec, exp.Filter,
    # values, types and operators
    exp.Literal, exp.Boolean, exp.Null, exp.HexString, exp.RawString, exp.Var, exp.Interval,
    exp.IntervalSpan, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Dot, exp.Bracket,
    exp.Lambda, exp.PropertyEQ,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseAnd, exp.BitwiseOr,
    exp.BitwiseXor, exp.BitwiseNot,
    exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.JSONPath, exp.JSONPathRoot, exp.JSONPathKey,
    exp.JSONPathSubscript, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between,
    exp.Like, exp.ILike, exp.Escape, exp.RegexpLike, exp.Exists, exp.Any, exp.All, exp.Case, exp.If,
    exp.Cast, exp.TryCast, exp.DPipe,
})  # fmt: skip

_ARGS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: frozenset(
        {
            "expressions",
            "from_",
            "where",
            "joins",
            "group",
            "having",
            "order",
            "limit",
            "offset",
            "distinct",
            "with_",
            "laterals",
            "windows",
        }
    ),
    exp.Table: frozenset({"this", "alias", "db", "catalog"}),
    exp.Join: frozenset({"this", "side", "kind", "method", "on", "using"}),
    exp.Lateral: frozenset({"this", "view", "outer", "alias", "cross_apply", "ordinality"}),
    exp.Star: frozenset({"except_"}),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.Subquery: frozenset({"this", "alias", "with_"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Limit: frozenset({"expression"}),
    exp.Offset: frozenset({"expression"}),
}
"""What else may hang on a node: other arguments are clauses that nobody thought about."""

_CALLED = {
    "sample": "TABLESAMPLE", "pivots": "PIVOT", "version": "VERSION AS OF", "hint": "a hint",
    "hints": "a hint", "qualify": "QUALIFY", "locks": "FOR UPDATE", "into": "INTO",
    "cluster": "CLUSTER BY", "distribute": "DISTRIBUTE BY", "sort": "SORT BY",
    "recursive": "WITH RECURSIVE", "settings": "SETTINGS", "kind": "SELECT AS STRUCT",
    "fetch": "FETCH", "match": "MATCH_RECOGNIZE", "replace": "* REPLACE", "rename": "* RENAME",
    "changes": "CHANGES", "when": "AS OF", "only": "ONLY", "match_condition": "MATCH_CONDITION",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z0-9_]*")
_HEAD = re.compile(r"([A-Za-z_]\w*)\(")
_CLOCK_WORDS = {"localtimestamp", "current_time", "localtime"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """A query that passed: its tree and its text as we write it, and the collections it reads.

    `typed` is the tree of what was typed: it knows the lines, for what is found wrong later on.
    """

    typed: exp.Query
    tree: exp.Query
    sql: str
    reads: tuple[str, ...]


def check_query(sql: str, collections: Collection[str]) -> str:
    """The text of an ad-hoc query that Spark may be given, or `ProgramError` with every reason.

    >>> check_query("select A from orders -- all of it", ["orders"])
    'SELECT `A` FROM `orders`'
    """
    return allow_query(sql, collections).sql


def allow_query(sql: str, collections: Collection[str]) -> Allowed:
    """An ad-hoc query that Spark may be given, and what it reads; or `ProgramError`."""
    troubles = Troubles()
    try:
        tokens = tokenize(sql)
        while tokens and tokens[-1].text == ";":
            tokens.pop()
        return allow(tokens, sql, collections, troubles=troubles, adhoc=True)
    except Refused as refused:
        troubles.take(refused, line=1)
    troubles.raise_any("the query")
    raise InvariantError("a query was refused for no reason")


def allow(
    tokens: Sequence[Token],
    text: str,
    collections: Collection[str],
    *,
    troubles: Troubles,
    adhoc: bool = False,
) -> Allowed:
    """Check one query, or raise `Refused`; what can be named one by one goes to `troubles`.

    The tree is checked twice: as it was typed, for the lines, and as it is read back from the text
    that Spark gets. The second is the one that counts.
    """
    typed = parse_query(tokens, text)
    first = tokens[0].line
    before = len(troubles.found)
    for one in _refusals(typed, adhoc=adhoc):
        troubles.take(one, line=first)
    try:
        check_tables(typed, collections)
    except Refused as refused:
        troubles.take(refused, line=first)
    if len(troubles.found) > before:
        raise troubled(troubles)
    tree, sql = rewritten(typed)
    for again in _refusals(tree, adhoc=adhoc):
        raise Refused(again.what, again.todo, line=first)
    reads = check_tables(tree, collections)
    _name_as_declared(tree, collections)
    tree, sql = rewritten(tree)
    return Allowed(typed, tree, sql, reads)


def troubled(troubles: Troubles) -> Refused:
    """The last trouble again, to end the check of a statement; it is listed once."""
    last = troubles.found[-1]
    return Refused(last.what, last.todo, line=last.line)


def function_name(node: exp.Expr) -> str | None:
    """The name under which Spark would call a function, in lower case; `None` for other nodes."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).casefold()
    if not isinstance(node, exp.Func) or type(node) in _NODES:
        return None
    written = node.sql(dialect="spark")
    head = _HEAD.match(written)
    return (head.group(1) if head else str(node.sql_name())).casefold()


def _refusals(tree: exp.Query, *, adhoc: bool) -> Iterator[Refused]:
    for node in tree.walk():
        refused = _refusal(node, adhoc=adhoc)
        if refused is not None:
            refused.line = line_of(node)
            yield refused


def _refusal(node: exp.Expr, *, adhoc: bool) -> Refused | None:
    if isinstance(node, exp.Column) and _is_clock_word(node):
        return Refused(f"{node.name.casefold()} is refused", functions.refusal(node.name))
    name = function_name(node)
    if name is not None:
        return _function_refusal(node, name, adhoc=adhoc)
    if type(node) not in _NODES:
        if node.arg_key in _CALLED:
            return None  # Its parent is refused for having it.
        called = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()
        return Refused(f"{called} is not allowed here", "leave it out")
    return _argument_refusal(node)


def _function_refusal(node: exp.Expr, name: str, *, adhoc: bool) -> Refused | None:
    quoted = isinstance(node, exp.Anonymous) and not isinstance(node.this, str)
    if quoted or isinstance(node.parent, exp.Dot):
        return Refused(
            f"function {named(name)} is refused: it is called by a quoted or qualified name",
            "call a listed function by its plain name",
        )
    if isinstance(node.parent, exp.Table):
        return Refused(
            f"table function {named(name)} is refused: it reads what is no collection",
            "read a table or a view of the program",
        )
    if name in functions.LISTED or (adhoc and name in functions.QUERY_ONLY):
        return None
    what = f"function {named(name)} is refused: {functions.refusal(name)}"
    return Refused(what, "use a listed function")


def _argument_refusal(node: exp.Expr) -> Refused | None:
    known = _ARGS.get(type(node))
    for name, value in node.args.items():
        if known is None or name in known or value in (None, False, []):
            continue
        return Refused(f"{_CALLED.get(name, name.upper())} is not allowed here", "leave it out")
    return _lateral_refusal(node) if isinstance(node, exp.Lateral) else None


def _lateral_refusal(node: exp.Lateral) -> Refused | None:
    if not isinstance(node.this, exp.Subquery):
        generator = function_name(node.this)
        if generator not in functions.GENERATING:
            return Refused(f"LATERAL {named(generator)} is refused", "use explode or posexplode")
    if not _WORD.fullmatch(node.alias):
        # The writer puts this one name into the text as it is, without quotes.
        return Refused(f"LATERAL VIEW … {named(node.alias)}: no plain name", "use letters")
    return None


def _is_clock_word(node: exp.Column) -> bool:
    plain = not node.table and isinstance(node.this, exp.Identifier) and not node.this.quoted
    return plain and node.name.casefold() in _CLOCK_WORDS


def _name_as_declared(tree: exp.Query, collections: Collection[str]) -> None:
    """Write names of collections as they were declared, so that their case has no meaning."""
    declared = {name.casefold(): name for name in collections}
    for table in tree.find_all(exp.Table):
        name = declared.get(table.name.casefold())
        if name is not None:
            if not table.alias and name != table.name:
                table.set("alias", exp.TableAlias(this=table.this.copy()))
            table.set("this", exp.to_identifier(name, quoted=True))
