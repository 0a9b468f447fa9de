"""A view's query over the relations of one transaction, with its time put in.

    linear   over relations of *changes*, each with `_diff`: the view's changes
    full     over relations of whole collections at a time: the view's rows at that time

Relations are named by the engine; a collection that gets no relation is refused, so none is ever
looked up in a catalog.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.errors import UsageError
from strandline.views.allow import function_name
from strandline.views.linear import quoted, select_of
from strandline.views.scope import with_of
from strandline.views.sqltext import parse_query, tokenize, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.views.declared import View

DIFF = "_diff"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATES = {"current_date", "curdate"}
_STAMPS = {"current_timestamp", "now"}


def delta_sql(view: View, relations: Mapping[str, str]) -> str:
    """The changes of a linear view: its columns and `_diff`, not consolidated.

    `relations` maps each collection it reads to a relation of its changes. All branches are there
    even if only one has changes: Spark decides their common types from all of them.
    """
    if view.kind != "linear":
        raise UsageError(f"view {view.name} is computed in full: use query_sql")
    return " UNION ALL ".join(
        select_of(each, quoted(_relation(each.source, relations)), also=(DIFF,))
        for each in view.branches
    )


def query_sql(sql: str, relations: Mapping[str, str], now_ms: int | None = None) -> str:
    """A checked query over these relations; what it asks of the clock is the time `now_ms`."""
    tree = parse_query(tokenize(sql), sql)
    ctes = {each.alias.casefold() for each in with_of(tree)}
    for table in list(tree.find_all(exp.Table)):
        if table.name.casefold() in ctes:
            continue
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        relation = _relation(table.name, relations)
        table.set("this", exp.to_identifier(relation, quoted=True))
    if now_ms is not None:
        _set_clock(tree, now_ms)
    return write(tree)


def _relation(name: str, relations: Mapping[str, str]) -> str:
    if name not in relations:
        raise UsageError(f"no relation for collection {name}")
    return relations[name]


def _set_clock(tree: exp.Query, now_ms: int) -> None:
    now = _EPOCH + timedelta(milliseconds=now_ms)
    for node in list(tree.walk()):
        name = function_name(node)
        if name in _STAMPS:
            text = now.strftime("%Y-%m-%d %H:%M:%S.") + f"{now.microsecond // 1000:03d}+00:00"
            node.replace(exp.cast(exp.Literal.string(text), "timestamp"))
        elif name in _DATES:
            node.replace(exp.cast(exp.Literal.string(now.date().isoformat()), "date"))
