"""Queries whose changes are a map of their inputs' changes: filter, project, `UNION ALL`.

For such a query q and any two multisets of rows, q(a + b) = q(a) + q(b). So the changes of the
view at a time are q of the changes of what it reads, every `_diff` unchanged, and nothing else is
looked at. Queries inside of `FROM` and `WITH` are substituted, until each branch reads one
collection. What depends on other rows or on the time is `NotLinear`, with clause and reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.views import functions
from strandline.views.allow import function_name
from strandline.views.declared import Branch
from strandline.views.scope import with_of
from strandline.views.sqltext import line_of, write
from strandline.views.troubles import Refused, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Projections = list[tuple[str, exp.Expr]]

_CLAUSES = {
    "limit": ("LIMIT", "which rows are among the first depends on all of them"),
    "offset": ("OFFSET", "which rows are among the first depends on all of them"),
    "joins": ("JOIN", "a change on one side meets all rows of the other"),
    "group": ("GROUP BY", "a change in one row changes the answer for its group"),
    "having": ("HAVING", "a change in one row changes the answer for its group"),
    "distinct": ("DISTINCT", "whether a row is new depends on all the others"),
    "order": ("ORDER BY", "a view is a set of rows and has no order"),
    "laterals": ("LATERAL VIEW", "one row becomes several"),
    "windows": ("WINDOW", "a row's answer depends on other rows"),
}
BRANCHES_MAX = 256


class NotLinear(Exception):  # noqa: N818 - an answer, not an error
    """The clause that makes a query depend on more than each row alone, and why."""

    def __init__(self, clause: str, reason: str, *, line: int = 0) -> None:
        super().__init__(clause)
        self.clause, self.reason, self.line = clause, reason, line


@dataclass(frozen=True, slots=True)
class _Rows:
    """A branch while it is built: its condition and projections as trees over `source`."""

    source: str
    where: exp.Expr | None
    projections: Projections

    def names(self) -> list[str]:
        return [name for name, _ in self.projections]


def branches(tree: exp.Query, columns: Mapping[str, Sequence[str]]) -> tuple[Branch, ...]:
    """The branches of a linear query over collections with these columns.

    Raises `NotLinear`, or `Refused` if it names a column that is not there.
    """
    known = {name: _whole(name, names) for name, names in columns.items()}
    for cte in with_of(tree):
        known[cte.alias] = _renamed(_query(cte.this, known), cte)
    found = _query(tree, known)
    if len(found) > BRANCHES_MAX:
        raise Refused(f"{len(found)} branches", f"use views in between; at most {BRANCHES_MAX}")
    return tuple(
        Branch(
            each.source,
            None if each.where is None else write(each.where),
            tuple((name, write(value)) for name, value in each.projections),
        )
        for each in found
    )


def text_of(found: Sequence[Branch]) -> str:
    """The query of these branches, as an engine is given it."""
    return " UNION ALL ".join(select_of(each, quoted(each.source)) for each in found)


def select_of(branch: Branch, relation: str, *, also: Sequence[str] = ()) -> str:
    """One branch over a relation, with these columns of it passed on."""
    items = [f"{value} AS {quoted(name)}" for name, value in branch.projections]
    chosen = ", ".join([*items, *(quoted(name) for name in also)])
    where = "" if branch.where is None else f" WHERE {branch.where}"
    return f"SELECT {chosen} FROM {relation}{where}"  # noqa: S608 - all of it was written by us


def quoted(name: str) -> str:
    """A name as Spark takes it whatever it is called.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def _whole(source: str, names: Sequence[str]) -> list[_Rows]:
    return [_Rows(source, None, [(name, _column(name)) for name in names])]


def _column(name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _query(query: exp.Expr, known: Mapping[str, list[_Rows]]) -> list[_Rows]:
    for name in ("limit", "offset", "order"):
        if query.args.get(name) is not None:
            raise NotLinear(*_CLAUSES[name], line=line_of(query.args[name]))
    if isinstance(query, exp.Subquery):
        return _query(query.this, known)
    if isinstance(query, exp.Union):
        return _union(query, known)
    if isinstance(query, exp.SetOperation):
        clause = type(query).__name__.upper()
        raise NotLinear(
            clause, "whether a row stays depends on the other side", line=line_of(query)
        )
    if isinstance(query, exp.Select):
        return _select(query, known)
    raise NotLinear("VALUES", "it reads no collection", line=line_of(query))


def _union(query: exp.Union, known: Mapping[str, list[_Rows]]) -> list[_Rows]:
    if query.args.get("distinct"):
        raise NotLinear(
            "UNION", "it drops duplicates; say UNION ALL to keep them", line=line_of(query)
        )
    if query.args.get("by_name"):
        raise NotLinear("UNION ALL BY NAME", "columns are matched by place", line=line_of(query))
    left, right = _query(query.this, known), _query(query.expression, known)
    names = left[0].names()
    if len(names) != len(right[0].names()):
        raise Refused(
            f"one side of UNION ALL has {len(names)} columns and the other {len(right[0].names())}",
            "make them equal",
            line=line_of(query),
        )
    renamed = [_with_names(each, names) for each in right]
    return left + renamed


def _with_names(rows: _Rows, names: Sequence[str]) -> _Rows:
    values = [value for _, value in rows.projections]
    return _Rows(rows.source, rows.where, list(zip(names, values, strict=True)))


def _renamed(found: list[_Rows], source: exp.Expr) -> list[_Rows]:
    alias = source.args.get("alias")
    given = [each.name for each in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not given:
        return found
    if len(given) != len(found[0].projections):
        raise Refused(
            f"{named(source.alias)} names {len(given)} columns of {len(found[0].projections)}",
            "name all of them or none",
            line=line_of(source),
        )
    return [_with_names(each, given) for each in found]


def _select(query: exp.Select, known: Mapping[str, list[_Rows]]) -> list[_Rows]:
    for name, (clause, reason) in _CLAUSES.items():
        part = query.args.get(name)
        if part:
            at = part[0] if isinstance(part, list) else part
            raise NotLinear(clause, reason, line=line_of(at))
    start = query.args.get("from_")
    if start is None:
        raise NotLinear("SELECT without FROM", "it reads no collection", line=line_of(query))
    source = start.this
    if isinstance(source, exp.Table):
        inner = known[_declared(source.name, known)]
    elif isinstance(source, exp.Subquery):
        inner = _query(source, known)
    else:
        raise NotLinear("FROM", "it reads no collection", line=line_of(source))
    inner = _renamed(inner, source)
    alias = source.alias_or_name
    if len(inner) > 1:
        _check_passes_on(query)
    return [_mapped(query, each, alias) for each in inner]


def _declared(name: str, known: Mapping[str, list[_Rows]]) -> str:
    return next(each for each in known if each.casefold() == name.casefold())


def _check_passes_on(query: exp.Select) -> None:
    """Over several branches only columns may be passed on.

    Spark gives a column of a union the widest type of its branches, and an expression computes in
    that type: put into a branch, it would compute in the branch's own.
    """
    plain = all(isinstance(each.unalias(), exp.Column | exp.Star) for each in query.expressions)
    if not plain or query.args.get("where") is not None:
        raise NotLinear(
            "an expression over a UNION ALL",
            "its types are those of the whole union; move it into the branches, or make the union "
            "a view of its own",
            line=line_of(query),
        )


def _mapped(query: exp.Select, inner: _Rows, alias: str) -> _Rows:
    values = {name.casefold(): value for name, value in inner.projections}
    projections: Projections = []
    for each in query.expressions:
        if each.is_star:
            projections.extend(_starred(each, inner, alias))
            continue
        value = _substituted(each.unalias(), values, alias)
        projections.append((each.output_name, value))
        # Spark lets later columns use earlier ones, unless the table has one of that name.
        values.setdefault(each.output_name.casefold(), value)
    own = {name.casefold(): value for name, value in inner.projections}
    where = query.args.get("where")
    condition = None if where is None else _substituted(where.this, own, alias)
    return _Rows(inner.source, _both(inner.where, condition), projections)


def _starred(each: exp.Expr, inner: _Rows, alias: str) -> Projections:
    star = each.this if isinstance(each, exp.Column) else each
    if isinstance(each, exp.Column) and each.table.casefold() != alias.casefold():
        raise Refused(
            f"no table {named(each.table)} for *", "name that of FROM", line=line_of(each)
        )
    dropped = {name.name.casefold() for name in star.args.get("except_") or []}
    return [pair for pair in inner.projections if pair[0].casefold() not in dropped]


def _both(one: exp.Expr | None, other: exp.Expr | None) -> exp.Expr | None:
    if one is None or other is None:
        return other if one is None else one
    return exp.And(this=exp.paren(one.copy()), expression=exp.paren(other))


def _substituted(value: exp.Expr, values: Mapping[str, exp.Expr], alias: str) -> exp.Expr:
    for node in value.walk():
        _check_row_alone(node)
    root = exp.Paren(this=value.copy())
    for column in list(root.find_all(exp.Column)):
        bound = _parameters_around(column)
        if column.parts[0].name.casefold() in bound:
            continue
        resolved = _resolved(column, values, alias)
        _refuse_captured(column, resolved, bound)
        column.replace(resolved)
    return root.this  # type: ignore[no-any-return]


def _parameters_around(column: exp.Column) -> set[str]:
    """The parameters of the lambdas that a name stands in; elsewhere it means a column."""
    found, node = set(), column.parent
    while node is not None:
        if isinstance(node, exp.Lambda):
            found |= {name.name.casefold() for name in node.expressions}
        node = node.parent
    return found


def _refuse_captured(column: exp.Column, value: exp.Expr, bound: set[str]) -> None:
    """What a column stands for must not mean something else where it is put."""
    names = {each.parts[0].name.casefold() for each in value.find_all(exp.Column)}
    if names & bound:
        raise Refused(
            f"{named(column.name)} is computed from a column of the same name as a parameter of "
            f"the lambda that uses it: {named(', '.join(sorted(names & bound)))}",
            "give the parameter another name",
            line=line_of(column),
        )


def _resolved(column: exp.Column, values: Mapping[str, exp.Expr], alias: str) -> exp.Expr:
    """The value behind `column`, `alias.column` or `column.field`."""
    parts = [part.name for part in column.parts]
    if len(parts) > 1 and parts[0].casefold() == alias.casefold():
        parts = parts[1:]
    found = values.get(parts[0].casefold())
    if found is None:
        raise Refused(
            f"no column {named('.'.join(part.name for part in column.parts))}",
            f"there are: {named(', '.join(values))}",
            line=line_of(column),
        )
    value = found.copy()
    if isinstance(value, exp.Binary | exp.Unary | exp.Predicate | exp.Interval):
        value = exp.paren(value)
    for field in parts[1:]:
        value = exp.Dot(this=value, expression=exp.to_identifier(field, quoted=True))
    return value


def _check_row_alone(node: exp.Expr) -> None:
    found = _beyond_row(node)
    if found is not None:
        raise NotLinear(*found, line=line_of(node))


def _beyond_row(node: exp.Expr) -> tuple[str, str] | None:
    """What makes a value depend on more than its row, and why; `None` if nothing does."""
    if isinstance(node, exp.Query | exp.Exists) and not _is_array_exists(node):
        return "a subquery", "a row's answer depends on other rows"
    if isinstance(node, exp.Window):
        return "OVER", "a row's answer depends on other rows"
    name = function_name(node) or ""
    if name in functions.AGGREGATE:
        return name, "an aggregate depends on all rows"
    if name in functions.GENERATING:
        return name, "one row becomes several"
    if name in functions.CLOCK:
        return name, "rows would change without a change in what they are made of"
    return None


def _is_array_exists(node: exp.Expr) -> bool:
    return isinstance(node, exp.Exists) and not isinstance(node.this, exp.Query)
