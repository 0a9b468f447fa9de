"""GROUP BY with SUM, COUNT, MIN and MAX, for the reference engine.

A select list over groups becomes one over plain rows: every expression of GROUP BY and every
aggregate in it is computed once a group and put into a column of its own.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as is_
from sqlglot import exp

from strandline.errors import UsageError
from strandline.views.arithmetic import DIGITS_MAX, WIDE, Value, fitted, in_range, sort_key
from strandline.views.expression import Compiled, compile_expression

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Row = Mapping[str, Value]
    Group = Sequence[Row]

_MORE_DIGITS = 10


def grouped(
    query: exp.Select, types: Mapping[str, pa.DataType], rows: Group
) -> tuple[list[str], list[Compiled], list[dict[str, Value]]]:
    """Names, values and rows of a query with groups; HAVING has been applied."""
    keys = [_plain(each) for each in _keys(query)]
    compiled = [compile_expression(each, types) for each in keys]
    groups: dict[tuple[Value, ...], list[Row]] = {} if keys else {(): []}
    firsts: dict[tuple[Value, ...], list[Value]] = {(): []}
    for row in rows:
        found = [_normal(each.run(row)) for each in compiled]
        at = tuple((value is None, sort_key(value)) for value in found)
        groups.setdefault(at, []).append(row)
        firsts.setdefault(at, found)
    outer = _Outer(keys, types)
    trees = [outer.replaced(_plain(each.unalias())) for each in query.expressions]
    having = query.args.get("having")
    condition = None if having is None else outer.replaced(_plain(having.this))
    above = {f"k{place}": each.type for place, each in enumerate(compiled)}
    above.update({f"a{place}": kind for place, (kind, _) in enumerate(outer.aggregates)})
    made = [
        {
            **{f"k{place}": value for place, value in enumerate(firsts[at])},
            **{f"a{place}": fold(group) for place, (_, fold) in enumerate(outer.aggregates)},
        }
        for at, group in groups.items()
    ]
    if condition is not None:
        kept = compile_expression(condition, above)
        made = [row for row in made if kept.run(row) is True]
    names = [each.output_name for each in query.expressions]
    return names, [compile_expression(each, above) for each in trees], made


def _keys(query: exp.Select) -> list[exp.Expr]:
    group = query.args.get("group")
    if group is None:
        return []
    if any(value for name, value in group.args.items() if name != "expressions"):
        raise UsageError("the reference knows GROUP BY with plain expressions only")
    aliases = {
        each.alias.casefold(): each.this
        for each in query.expressions
        if isinstance(each, exp.Alias)
    }
    found: list[exp.Expr] = []
    for each in group.expressions:
        if isinstance(each, exp.Literal) and not each.is_string:
            found.append(query.expressions[int(each.this) - 1].unalias())
        elif isinstance(each, exp.Column) and each.name.casefold() in aliases:
            found.append(aliases[each.name.casefold()])
        else:
            found.append(each)
    return found


def _normal(value: Value) -> Value:
    """Of the two zeros of floats Spark shows the positive one for a group."""
    return value + 0.0 if isinstance(value, float) else value


def _plain(tree: exp.Expr) -> exp.Expr:
    """A copy in which equal expressions are equal however their columns were written."""
    root = exp.Paren(this=tree.copy())
    for column in list(root.find_all(exp.Column)):
        column.replace(exp.column(column.parts[-1].name.casefold(), quoted=True))
    return root.this  # type: ignore[no-any-return]


class _Outer:
    """What a select list asks of its groups."""

    def __init__(self, keys: Sequence[exp.Expr], types: Mapping[str, pa.DataType]) -> None:
        self._keys, self._types = keys, types
        self.aggregates: list[tuple[pa.DataType, Callable[[Group], Value]]] = []

    def replaced(self, tree: exp.Expr) -> exp.Expr:
        """The expression over columns `k0…` of keys and `a0…` of aggregates."""
        root = exp.Paren(this=tree)
        for node in list(root.walk()):
            if node.parent is None or node.find_ancestor(exp.AggFunc) is not None:
                continue
            if node in self._keys:
                node.replace(exp.column(f"k{self._keys.index(node)}", quoted=True))
            elif isinstance(node, exp.AggFunc):
                self.aggregates.append(_aggregate(node, self._types))
                node.replace(exp.column(f"a{len(self.aggregates) - 1}", quoted=True))
        return root.this  # type: ignore[no-any-return]


def _aggregate(
    node: exp.AggFunc, types: Mapping[str, pa.DataType]
) -> tuple[pa.DataType, Callable[[Group], Value]]:
    if isinstance(node, exp.Count):
        return pa.int64(), _count(node, types)
    value = compile_expression(node.this, types)
    if isinstance(node, exp.Min | exp.Max):
        pick = min if isinstance(node, exp.Min) else max
        return value.type, lambda group: pick(_present(value, group), key=sort_key, default=None)
    if isinstance(node, exp.Sum):
        return _sum(value)
    raise UsageError(f"the reference does not know the aggregate {node.sql_name()}")


def _present(value: Compiled, group: Group) -> list[Value]:
    return [found for row in group if (found := value.run(row)) is not None]


def _count(node: exp.Count, types: Mapping[str, pa.DataType]) -> Callable[[Group], int]:
    counted = node.this
    if isinstance(counted, exp.Star) or node.expressions:
        if node.expressions:
            raise UsageError("the reference counts one expression at a time")
        return len
    if isinstance(counted, exp.Distinct):
        if len(counted.expressions) != 1:
            raise UsageError("the reference counts one expression at a time")
        value = compile_expression(counted.expressions[0], types)
        return lambda group: len({sort_key(each) for each in _present(value, group)})
    value = compile_expression(counted, types)
    return lambda group: len(_present(value, group))


def _sum(value: Compiled) -> tuple[pa.DataType, Callable[[Group], Value]]:
    if is_.is_integer(value.type):
        kind = pa.int64()
        return kind, lambda group: _total(value, group, lambda found: in_range(sum(found), kind))
    if is_.is_decimal128(value.type):
        digits = min(DIGITS_MAX, value.type.precision + _MORE_DIGITS)
        wide = pa.decimal128(digits, value.type.scale)
        return wide, lambda group: _total(value, group, lambda found: _decimals(found, wide))
    if value.type == pa.float64():
        # Folded in sorted order, so that the order of the rows has no say.
        ordered = lambda found: sum(sorted(found, key=sort_key))  # noqa: E731
        return pa.float64(), lambda group: _total(value, group, ordered)
    raise UsageError(f"the reference can't sum {value.type}")


def _total(value: Compiled, group: Group, fold: Callable[[list[Value]], Value]) -> Value:
    found = _present(value, group)
    return fold(found) if found else None


def _decimals(found: list[Value], wide: pa.DataType) -> Decimal:
    with localcontext(WIDE):
        return fitted(sum(found, Decimal(0)), wide)
