"""Answers a small part of SQL over Arrow tables, row by row, for the reference engine.

    SELECT … FROM one collection, query or name of WITH [WHERE …]
    [GROUP BY …] [HAVING …] with SUM, COUNT, MIN and MAX
    UNION ALL of those

What a row raises under ANSI is `Raised`, as it would fail Spark's query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from strandline.errors import UsageError
from strandline.views.arithmetic import Value, converted, wider
from strandline.views.expression import Compiled, compile_expression
from strandline.views.grouping import grouped
from strandline.views.scope import with_of
from strandline.views.sqltext import parse_expression, parse_query, tokenize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.views.declared import Branch, View

DIFF = "_diff"
_CLAUSES = {"expressions", "from_", "where", "group", "having", "with_"}


def answer(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a checked query over whole collections.

    >>> answer("SELECT k + 1 AS n FROM t WHERE k > 1", {"t": pa.table({"k": [1, 2]})}).to_pylist()
    [{'n': 3}]
    """
    tree = parse_query(tokenize(sql), sql)
    known = {name.casefold(): table for name, table in tables.items()}
    for cte in with_of(tree):
        known[cte.alias.casefold()] = _renamed(_query(cte.this, known), cte)
    return _query(tree, known)


def changes_of(view: View, changes: Mapping[str, pa.Table]) -> pa.Table:
    """The changes of a linear view, from those of what it reads; both have `_diff`."""
    if view.kind != "linear":
        raise UsageError(f"view {view.name} is computed in full: use answer")
    return _sum([_branch(each, changes[each.source]) for each in view.branches])


def _branch(branch: Branch, changes: pa.Table) -> pa.Table:
    types = _types(changes)
    values = [compile_expression(parse_expression(sql), types) for _, sql in branch.projections]
    values.append(Compiled(changes.schema.field(DIFF).type, lambda row: row[DIFF]))
    where = None
    if branch.where is not None:
        where = compile_expression(parse_expression(branch.where), types)
    names = [*(name for name, _ in branch.projections), DIFF]
    return projected(names, values, _passing(_rows(changes), where))


def _query(query: exp.Expr, known: Mapping[str, pa.Table]) -> pa.Table:
    if isinstance(query, exp.Subquery):
        return _query(query.this, known)
    if isinstance(query, exp.Union) and not query.args.get("distinct"):
        return _sum([_query(query.this, known), _query(query.expression, known)])
    if not isinstance(query, exp.Select):
        raise UsageError(f"the reference does not know {type(query).__name__}: use Spark for it")
    for name, value in query.args.items():
        if value and name not in _CLAUSES:
            raise UsageError(f"the reference does not know the clause {name}: use Spark for it")
    return _select(query, known)


def _select(query: exp.Select, known: Mapping[str, pa.Table]) -> pa.Table:
    source = _source(query, known)
    types = _types(source)
    where = query.args.get("where")
    condition = None if where is None else compile_expression(where.this, types)
    rows = _passing(_rows(source), condition)
    if query.args.get("group") is not None or query.find(exp.AggFunc) is not None:
        return projected(*grouped(query, types, rows))
    names: list[str] = []
    trees: list[exp.Expr] = []
    for each in query.expressions:
        if each.is_star:
            names.extend(source.column_names)
            trees.extend(exp.column(name, quoted=True) for name in source.column_names)
        else:
            names.append(each.output_name)
            trees.append(each.unalias())
    return projected(names, [compile_expression(each, types) for each in trees], rows)


def _source(query: exp.Select, known: Mapping[str, pa.Table]) -> pa.Table:
    start = query.args.get("from_")
    if start is None:
        raise UsageError("the reference needs FROM")
    source = start.this
    if isinstance(source, exp.Table):
        table = known.get(source.name.casefold())
        if table is None:
            raise UsageError(f"no collection {source.name}")
        return _renamed(table, source)
    if isinstance(source, exp.Subquery):
        return _renamed(_query(source, known), source)
    raise UsageError(f"the reference can't read from {type(source).__name__}")


def _renamed(table: pa.Table, source: exp.Expr) -> pa.Table:
    alias = source.args.get("alias")
    given = [each.name for each in alias.columns] if isinstance(alias, exp.TableAlias) else []
    return table.rename_columns(given) if given else table


def _types(table: pa.Table) -> dict[str, pa.DataType]:
    return {each.name.casefold(): each.type for each in table.schema}


def _rows(table: pa.Table) -> list[dict[str, Value]]:
    lowered = table.rename_columns([name.casefold() for name in table.column_names])
    rows: list[dict[str, Value]] = lowered.to_pylist()
    return rows


def _passing(rows: list[dict[str, Value]], condition: Compiled | None) -> list[dict[str, Value]]:
    return rows if condition is None else [row for row in rows if condition.run(row) is True]


def projected(
    names: Sequence[str], values: Sequence[Compiled], rows: Sequence[Mapping[str, Value]]
) -> pa.Table:
    """A table with these values of each row; a column of NULL alone is one of text."""
    columns = [
        pa.array(
            [each.run(row) for row in rows],
            pa.string() if each.type == pa.null() else each.type,
        )
        for each in values
    ]
    return pa.Table.from_arrays(columns, names=list(names))


def _sum(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of tables of as many columns, each column in the widest type of all."""
    first, *rest = tables
    for other in rest:
        if other.num_columns != first.num_columns:
            raise UsageError("the sides of UNION ALL have different numbers of columns")
    kinds = [table.schema.types for table in tables]
    columns = []
    for place in range(first.num_columns):
        common = kinds[0][place]
        for each in kinds[1:]:
            common = wider(common, each[place])
        values = [
            converted(value, common) if table.schema.types[place] != common else value
            for table in tables
            for value in table.column(place).to_pylist()
        ]
        columns.append(pa.array(values, common))
    return pa.Table.from_arrays(columns, names=first.column_names)
