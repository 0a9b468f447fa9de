"""Which collections a query reads, and what its columns are called.

`WITH` is allowed once, at the start, under names that no collection has: so a name in `FROM` means
the same wherever it stands, and none is ever left for an engine's catalog to find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.views.sqltext import line_of
from strandline.views.troubles import Refused, named

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

Names = tuple[str, ...]


def check_tables(tree: exp.Query, collections: Collection[str]) -> Names:
    """The collections that a query reads, sorted, under their declared names; or `Refused`."""
    declared = {name.casefold(): name for name in collections}
    ctes = _check_with(tree, declared)
    reads: set[str] = set()
    for table in tree.find_all(exp.Table):
        name = _plain_name(table)
        if name in ctes:
            _check_earlier(table, name, ctes)
        elif name in declared:
            reads.add(declared[name])
        else:
            raise Refused(
                f"no table or view {named(table.name)}",
                f"declare it, or read one of: {named(', '.join(sorted(collections)) or 'none')}",
                line=line_of(table),
            )
    return tuple(sorted(reads))


def with_of(tree: exp.Query) -> list[exp.CTE]:
    """The named queries at the start of a query, in order."""
    found = tree.args.get("with_")
    return list(found.expressions) if found is not None else []


def output_names(tree: exp.Query, columns: Mapping[str, Names]) -> Names:
    """What the columns of a query are called, given those of the collections it may read."""
    known = {name.casefold(): names for name, names in columns.items()}
    for cte in with_of(tree):
        known[cte.alias.casefold()] = _renamed(cte, _names(cte.this, known))
    return _names(tree, known)


def check_output(names: Iterable[str], line: int) -> None:
    """Refuse columns of a view that could not be kept or told apart."""
    seen: set[str] = set()
    for name in names:
        if name.startswith("_"):
            raise Refused(
                f"column {named(name)} starts with '_', which is ours",
                "give it another name with AS",
                line=line,
            )
        if name.casefold() in seen:
            raise Refused(f"two columns {named(name)}", "rename one with AS", line=line)
        seen.add(name.casefold())


def _check_with(tree: exp.Query, declared: Mapping[str, str]) -> dict[str, int]:
    ctes: dict[str, int] = {}
    if any(each.parent is not tree for each in tree.find_all(exp.With)):
        raise Refused("WITH inside of a query", "move it to the start of the whole query")
    for place, cte in enumerate(with_of(tree)):
        name = cte.alias.casefold()
        if name in declared or name in ctes or not name:
            raise Refused(
                f"WITH {named(cte.alias)}: the name is taken", "rename it", line=line_of(cte)
            )
        ctes[name] = place
    return ctes


def _plain_name(table: exp.Table) -> str:
    if not isinstance(table.this, exp.Identifier) or table.args.get("db") is not None:
        whole = ".".join(part.name for part in table.parts)
        raise Refused(
            f"table {named(whole)} is refused: only tables and views of the program can be read, "
            "by their plain names",
            "no files, databases or functions after FROM",
            line=line_of(table),
        )
    return table.name.casefold()


def _check_earlier(table: exp.Table, name: str, ctes: Mapping[str, int]) -> None:
    inside = table.find_ancestor(exp.CTE)
    if inside is not None and ctes[inside.alias.casefold()] <= ctes[name]:
        raise Refused(
            f"{named(table.name)} is read before it is defined in WITH",
            "define it earlier; a query can't read itself",
            line=line_of(table),
        )


def _names(query: exp.Expr, known: Mapping[str, Names], *, needed: bool = True) -> Names:
    """Names of a query's columns; empty ones are all right where none are `needed`."""
    if isinstance(query, exp.Subquery):
        return _names(query.this, known, needed=needed)
    if isinstance(query, exp.SetOperation):
        left = _names(query.this, known, needed=needed)
        right = _names(query.expression, known, needed=False)
        if len(left) != len(right):
            raise Refused(
                f"one side has {len(left)} columns and the other {len(right)}",
                "make them equal",
                line=line_of(query),
            )
        return left
    if not isinstance(query, exp.Select):
        raise Refused("a query inside is no SELECT", "write SELECT … FROM …", line=line_of(query))
    sources = _sources(query, known)
    names: list[str] = []
    for each in query.expressions:
        names.extend(_projected(each, query, sources, needed=needed))
    return tuple(names)


def _projected(
    each: exp.Expr, query: exp.Select, sources: list[tuple[str, Names]], *, needed: bool
) -> Names:
    star = each.this if isinstance(each, exp.Column) else each
    if not isinstance(star, exp.Star):
        name = each.output_name
        if needed and not name:
            raise Refused(
                f"the column {named(each.sql(dialect='spark'))} has no name",
                "give it one: … AS name",
                line=line_of(each),
            )
        return (name,)
    if any(join.args.get("using") or join.method for join in query.args.get("joins") or []):
        raise Refused(
            "* over JOIN … USING or NATURAL JOIN", "list the columns", line=line_of(query)
        )
    wanted = each.table.casefold() if isinstance(each, exp.Column) else None
    chosen = [names for alias, names in sources if wanted in (None, alias)]
    if not chosen:
        raise Refused(f"no table {named(wanted)} for *", "name one of FROM", line=line_of(each))
    dropped = {name.name.casefold() for name in star.args.get("except_") or []}
    return tuple(name for names in chosen for name in names if name.casefold() not in dropped)


def _sources(query: exp.Select, known: Mapping[str, Names]) -> list[tuple[str, Names]]:
    found: list[tuple[str, Names]] = []
    start = query.args.get("from_")
    if start is not None:
        found.append(_source(start.this, known))
    joined = [join for join in query.args.get("joins") or [] if join.kind not in {"SEMI", "ANTI"}]
    found.extend(_source(join.this, known) for join in joined)
    found.extend(_source(each, known) for each in query.args.get("laterals") or [])
    return found


def _source(source: exp.Expr, known: Mapping[str, Names]) -> tuple[str, Names]:
    alias = source.alias_or_name.casefold()
    if isinstance(source, exp.Table):
        return alias, _renamed(source, known.get(source.name.casefold(), ()))
    if isinstance(source, exp.Lateral) and isinstance(source.this, exp.Subquery):
        return alias, _renamed(source, _names(source.this, known))
    if isinstance(source, exp.Lateral | exp.Values):
        return alias, _alias_columns(source)
    return alias, _renamed(source, _names(source, known))


def _renamed(source: exp.Expr, names: Names) -> Names:
    given = _alias_columns(source)
    if given and len(given) != len(names):
        raise Refused(
            f"{named(source.alias)} names {len(given)} columns of {len(names)}",
            "name all of them or none",
            line=line_of(source),
        )
    return given or names


def _alias_columns(source: exp.Expr) -> Names:
    alias = source.args.get("alias")
    return tuple(each.name for each in alias.columns) if isinstance(alias, exp.TableAlias) else ()
