"""Views planned: each checked, linear or full, and hashed with whatever it can see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.views.allow import Allowed, allow
from strandline.views.declared import Branch, Kind, Table, View, ViewQuery
from strandline.views.linear import NotLinear, branches, text_of
from strandline.views.order import cycle_of, in_order
from strandline.views.repeat import Exactness, made_exact, uses_clock
from strandline.views.scope import check_output, output_names
from strandline.views.sqltext import parse_query, rewritten, tokenize
from strandline.views.sqltypes import described, digest_of
from strandline.views.troubles import Refused, Troubles, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Token


@dataclass(slots=True)
class _Known:
    """What is known of the collections so far, under their declared names."""

    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    exact: Exactness = field(default_factory=Exactness)

    def columns(self) -> dict[str, tuple[str, ...]]:
        columns = {name: tuple(each.columns.names) for name, each in self.tables.items()}
        return {**columns, **{name: each.columns for name, each in self.views.items()}}


def planned(
    tables: Sequence[Table],
    queries: Sequence[ViewQuery],
    troubles: Troubles,
    *,
    broken: Sequence[str] = (),
) -> list[View]:
    """The views in an order of computation; what is wrong with others goes to `troubles`.

    A view that reads something broken is not blamed for it.
    """
    known = _Known({each.name: each for each in tables})
    for each in tables:
        known.exact.learn_table(each.name, each.columns, each.key)
    names = [*known.tables, *broken, *(each.name for each in queries)]
    allowed = {each.name: _allowed(each, names, troubles) for each in queries}
    reads = {name: one.reads for name, one in allowed.items() if one is not None}
    order, stuck = in_order(reads)
    by_name = {each.name: each for each in queries}
    if stuck:
        round_trip = cycle_of(stuck, reads)
        troubles.add(
            by_name[round_trip[0]].line,
            f"views read each other in a circle: {named(' -> '.join(round_trip))}",
            "break it",
        )
    for name in order:
        one = allowed[name]
        if one is not None and all(each in known.columns() for each in one.reads):
            _add(by_name[name], one, known, troubles)
    return list(known.views.values())


def query_tokens(query: ViewQuery) -> list[Token]:
    """The tokens of a view's query, on the lines of its program."""
    tokens = tokenize(query.sql)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    return tokens


def _allowed(query: ViewQuery, names: Sequence[str], troubles: Troubles) -> Allowed | None:
    before = len(troubles.found)
    try:
        return allow(query_tokens(query), query.sql, names, troubles=troubles)
    except Refused as refused:
        if len(troubles.found) == before:
            troubles.take(refused, line=query.line)
        return None


def _add(query: ViewQuery, allowed: Allowed, known: _Known, troubles: Troubles) -> None:
    try:
        view = _view(query, allowed, known)
    except Refused as refused:
        troubles.take(refused, line=query.line)
    except NotLinear as found:
        troubles.add(
            found.line or query.line,
            f"view {named(query.name)} can't be computed from changes alone: {found.clause}: "
            f"{found.reason}",
            f"change it, or say CREATE MATERIALIZED VIEW {query.name} REFRESH FULL AS …, which "
            "computes it anew at each transaction",
        )
    except RecursionError:
        troubles.add(query.line, f"view {named(query.name)} is nested too deeply", "simplify it")
    else:
        known.views[view.name] = view


def _view(query: ViewQuery, allowed: Allowed, known: _Known) -> View:
    # First as it was typed: what is wrong is on a line there. What we run comes from our own text.
    _shape(query, allowed.typed, allowed.reads, known)
    try:
        names, tree, sql, found = _shape(query, allowed.tree, allowed.reads, known)
    except (Refused, NotLinear) as again:
        again.line = query.line
        raise
    kind: Kind = "full" if query.refresh_full else "linear"
    sees = _sees(tree, allowed.reads, known)
    # Both kinds may have one text. What their errors say differs, so they share no shard.
    plan_hash = digest_of(["view", kind, sql, list(names), _seen(allowed.reads, sees, known)])
    clock = uses_clock(tree)
    return View(
        query.name, sql, allowed.reads, kind, plan_hash, names, found, clock, query.line, sees
    )  # fmt: skip


def _shape(
    query: ViewQuery, tree: exp.Query, reads: Sequence[str], known: _Known
) -> tuple[tuple[str, ...], exp.Query, str, tuple[Branch, ...]]:
    """Names of columns, tree, text and branches of a view's query."""
    columns = known.columns()
    names = output_names(tree, columns)
    check_output(names, query.line)
    exact = made_exact(tree, known.exact)
    if query.refresh_full:
        return names, *rewritten(exact), ()
    found = branches(tree, {name: columns[name] for name in reads})
    sql = text_of(found)
    return names, parse_query(tokenize(sql), sql), sql, found


def _sees(tree: exp.Query, reads: Sequence[str], known: _Known) -> dict[str, tuple[str, ...]]:
    """By table, the columns that the query can see, and its key: not more, so that a column that is
    added to a table moves no view which does not use it; not less, so that equal hashes mean equal
    rows, and errors that tell of a row by equal words.
    """
    stars = [each for each in tree.find_all(exp.Star) if not _counts(each)]
    words = {each.name.casefold() for each in tree.find_all(exp.Identifier)}
    natural = any(each.method for each in tree.find_all(exp.Join))
    return {
        name: tuple(
            each
            for each in known.tables[name].columns.names
            if stars or natural or each.casefold() in words or each in known.tables[name].key
        )
        for name in reads
        if name in known.tables
    }


def _seen(reads: Sequence[str], sees: Mapping[str, tuple[str, ...]], known: _Known) -> list[object]:
    """What the query can see of what it reads, in full."""
    seen: list[object] = []
    for name in reads:
        table = known.tables.get(name)
        if table is None:
            seen.append([name, known.views[name].plan_hash])
            continue
        fields = [table.columns.field(each) for each in sees[name]]
        used = [[each.name, described(each.type), each.nullable] for each in fields]
        seen.append([name, used, list(table.key)])
    return seen


def _counts(star: exp.Star) -> bool:
    return isinstance(star.parent, exp.Count)
