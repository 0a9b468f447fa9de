"""Compiles one SQL expression to a function over rows, for the reference engine.

It knows columns, fields of structs, literals, + - * / % div, comparisons, AND, OR, NOT, IS, IN,
BETWEEN, CASE, IF, COALESCE, NULLIF and CAST, with Spark's types, nulls and ANSI errors. Whatever
else is asked of it is refused, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as is_
from sqlglot import exp

from strandline.errors import UsageError
from strandline.views.arithmetic import (
    Value,
    binary,
    compared,
    converted,
    in_range,
    numeric,
    wider,
)
from strandline.views.casts import cast
from strandline.views.sqltext import tokenize
from strandline.views.sqltypes import read_type
from strandline.views.tokens import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Row = Mapping[str, Value]

_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div",
}  # fmt: skip
_COMPARES: dict[type[exp.Expr], frozenset[int]] = {
    exp.EQ: frozenset({0}),
    exp.NEQ: frozenset({-1, 1}),
    exp.LT: frozenset({-1}),
    exp.LTE: frozenset({-1, 0}),
    exp.GT: frozenset({1}),
    exp.GTE: frozenset({0, 1}),
}
_BOOL = pa.bool_()
_RIGHT_FIRST = frozenset({"/", "%", "div"})
"""Spark computes what it divides by before what it divides, so one that raises raises, whatever is
null on the left; and a null on the right is the answer, whatever raises on the left."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression that was typed: `run` gives its value for a row, or raises `Raised`.

    A row maps lower-case names of columns to values. `literal` is the value of a literal number,
    whose digits Spark counts.
    """

    type: pa.DataType
    run: Callable[[Row], Value]
    literal: Value = None


def compile_expression(tree: exp.Expr, types: Mapping[str, pa.DataType]) -> Compiled:
    """Compile over columns of these types, under their lower-case names."""
    return _Compiler(types).compile(tree)


class _Compiler:
    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self._types = types
        self._rules: dict[type[exp.Expr], Callable[[Value], Compiled]] = {
            exp.Paren: lambda tree: _unmarked(self.compile(tree.this)),
            exp.Alias: lambda tree: self.compile(tree.this),
            exp.Column: self._column,
            exp.Dot: self._dot,
            exp.Literal: _literal,
            exp.Boolean: lambda tree: _constant(_BOOL, bool(tree.this)),
            exp.Null: lambda _: _constant(pa.null(), None),
            exp.Neg: self._negative,
            exp.Not: self._not,
            exp.And: lambda tree: self._connected(tree, stop=False),
            exp.Or: lambda tree: self._connected(tree, stop=True),
            exp.Is: self._is,
            exp.NullSafeEQ: self._null_safe,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Coalesce: self._coalesce,
            exp.Nullif: self._nullif,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
        }

    def compile(self, tree: exp.Expr) -> Compiled:
        kind = type(tree)
        if kind in self._rules:
            return self._rules[kind](tree)
        if kind in _ARITHMETIC:
            return self._arithmetic(tree, _ARITHMETIC[kind])
        if kind in _COMPARES:
            return self._compare(tree.this, tree.expression, _COMPARES[kind])
        raise UsageError(f"the reference does not know {kind.__name__}: use Spark for this query")

    def _column(self, tree: exp.Column) -> Compiled:
        parts = [part.name for part in tree.parts]
        if parts[0].casefold() not in self._types and len(parts) > 1:
            parts = parts[1:]
        name = parts[0].casefold()
        if name not in self._types:
            raise UsageError(f"no column {parts[0]}: there are {', '.join(self._types)}")
        found = Compiled(self._types[name], lambda row: row[name])
        for field in parts[1:]:
            found = _field(found, field)
        return found

    def _dot(self, tree: exp.Dot) -> Compiled:
        return _field(self.compile(tree.this), tree.expression.name)

    def _negative(self, tree: exp.Neg) -> Compiled:
        one = self.compile(tree.this)
        if one.literal is not None and isinstance(tree.this, exp.Literal):
            return _number(f"-{tree.this.this}")
        if not numeric(one.type):
            raise UsageError(f"the reference can't negate {one.type}")
        if is_.is_integer(one.type):
            return Compiled(one.type, _on_one(one, lambda a: in_range(-a, one.type)))
        return Compiled(
            one.type, _on_one(one, lambda a: a.copy_negate() if isinstance(a, Decimal) else -a)
        )

    def _not(self, tree: exp.Not) -> Compiled:
        one = self._boolean(tree.this)
        return Compiled(_BOOL, _on_one(one, lambda a: not a))

    def _boolean(self, tree: exp.Expr) -> Compiled:
        one = self.compile(tree)
        if one.type != _BOOL and not is_.is_null(one.type):
            raise UsageError(f"{one.type} is no condition")
        return one

    def _connected(self, tree: exp.Connector, *, stop: bool) -> Compiled:
        """AND stops at the first false, OR at the first true; nulls remain unknown."""
        one, other = self._boolean(tree.this), self._boolean(tree.expression)

        def run(row: Row) -> Value:
            left = one.run(row)
            if left is stop:
                return stop
            right = other.run(row)
            if right is stop:
                return stop
            return None if left is None or right is None else not stop

        return Compiled(_BOOL, run)

    def _arithmetic(self, tree: exp.Expr, op: str) -> Compiled:
        one, other = self.compile(tree.this), self.compile(tree.expression)
        if is_.is_null(one.type) or is_.is_null(other.type):
            raise UsageError("the reference can't compute with NULL alone: cast it to a type")
        kind, compute = binary(op, one.type, other.type, (one.literal, other.literal))
        if op == "div":
            if not (is_.is_integer(one.type) and is_.is_integer(other.type)):
                raise UsageError("the reference knows div for whole numbers only")
            kind, compute = pa.int64(), binary(op, pa.int64(), pa.int64())[1]
        if op in _RIGHT_FIRST:
            return Compiled(kind, _on_two(other, one, lambda b, a: compute(a, b)))
        return Compiled(kind, _on_two(one, other, compute))

    def _compare(self, left: exp.Expr, right: exp.Expr, wanted: frozenset[int]) -> Compiled:
        one, other = self._alike([left, right])
        return Compiled(_BOOL, _on_two(one, other, lambda a, b: compared(a, b) in wanted))

    def _alike(self, trees: Sequence[exp.Expr]) -> list[Compiled]:
        """Expressions in their common type."""
        found = [self.compile(each) for each in trees]
        common = found[0].type
        for each in found[1:]:
            common = wider(common, each.type)
        if is_.is_nested(common):
            raise UsageError(f"the reference can't compare {common}")
        return [_widened(each, common) for each in found]

    def _is(self, tree: exp.Is) -> Compiled:
        if isinstance(tree.expression, exp.Null):
            inner = tree.this.unnest()
            if not isinstance(inner, exp.Literal | exp.Null) and inner.find(exp.Column) is None:
                # Spark knows that it is not null before it computes it, and so never raises.
                raise UsageError(
                    "the reference can't tell of what has no column whether it is null"
                )
            one = self.compile(tree.this)
            return Compiled(_BOOL, lambda row: one.run(row) is None)
        if isinstance(tree.expression, exp.Boolean):
            one, wanted = self._boolean(tree.this), bool(tree.expression.this)
            return Compiled(_BOOL, lambda row: one.run(row) is wanted)
        raise UsageError("the reference knows IS NULL, IS TRUE and IS FALSE")

    def _null_safe(self, tree: exp.NullSafeEQ) -> Compiled:
        one, other = self._alike([tree.this, tree.expression])

        def run(row: Row) -> bool:
            left, right = one.run(row), other.run(row)
            if left is None or right is None:
                return left is right
            return compared(left, right) == 0

        return Compiled(_BOOL, run)

    def _in(self, tree: exp.In) -> Compiled:
        if tree.args.get("query") is not None or not tree.expressions:
            raise UsageError("the reference knows IN with a list of values only")
        value, *listed = self._alike([tree.this, *tree.expressions])

        def run(row: Row) -> Value:
            wanted = value.run(row)
            if wanted is None:
                return None
            unknown = False
            for each in listed:
                have = each.run(row)
                if have is None:
                    unknown = True
                elif compared(wanted, have) == 0:
                    return True
            return None if unknown else False

        return Compiled(_BOOL, run)

    def _between(self, tree: exp.Between) -> Compiled:
        low, high = tree.args["low"], tree.args["high"]
        both = exp.And(
            this=exp.GTE(this=tree.this.copy(), expression=low.copy()),
            expression=exp.LTE(this=tree.this.copy(), expression=high.copy()),
        )
        return self.compile(both)

    def _case(self, tree: exp.Case) -> Compiled:
        subject = tree.args.get("this")
        whens = [
            when.this if subject is None else exp.EQ(this=subject.copy(), expression=when.this)
            for when in tree.args["ifs"]
        ]
        values = [when.args["true"] for when in tree.args["ifs"]]
        return self._chosen(whens, values, tree.args.get("default"))

    def _if(self, tree: exp.If) -> Compiled:
        return self._chosen([tree.this], [tree.args["true"]], tree.args.get("false"))

    def _chosen(
        self, whens: Sequence[exp.Expr], values: Sequence[exp.Expr], default: exp.Expr | None
    ) -> Compiled:
        conditions = [self._boolean(each) for each in whens]
        *results, otherwise = self._alike([*values, default or exp.Null()])

        def run(row: Row) -> Value:
            for condition, result in zip(conditions, results, strict=True):
                if condition.run(row) is True:
                    return result.run(row)
            return otherwise.run(row)

        return Compiled(results[0].type, run)

    def _coalesce(self, tree: exp.Coalesce) -> Compiled:
        found = self._alike([tree.this, *tree.expressions])

        def run(row: Row) -> Value:
            for each in found:
                value = each.run(row)
                if value is not None:
                    return value
            return None

        return Compiled(found[0].type, run)

    def _nullif(self, tree: exp.Nullif) -> Compiled:
        equal = self._compare(tree.this, tree.expression, _COMPARES[exp.EQ])
        one = self.compile(tree.this)
        return Compiled(one.type, lambda row: None if equal.run(row) is True else one.run(row))

    def _cast(self, tree: exp.Cast) -> Compiled:
        if tree.args.get("safe"):
            raise UsageError("the reference does not know TRY_CAST: use Spark for this query")
        want = read_type(Cursor(tokenize(tree.to.sql(dialect="spark"))))
        one = self.compile(tree.this)
        return Compiled(want, _on_one(one, cast(one.type, want)))


def _unmarked(one: Compiled) -> Compiled:
    return Compiled(one.type, one.run, one.literal)


def _constant(kind: pa.DataType, value: Value) -> Compiled:
    return Compiled(kind, lambda _row: value)


def _literal(tree: exp.Literal) -> Compiled:
    if tree.is_string:
        return _constant(pa.string(), str(tree.this))
    return _number(str(tree.this))


def _number(text: str) -> Compiled:
    """A literal in the type that Spark gives it."""
    if "e" in text.casefold():
        return _constant(pa.float64(), float(text))
    if "." in text:
        value = Decimal(text)
        scale = max(0, -int(value.as_tuple().exponent))
        digits = max(len(value.as_tuple().digits), scale)
        return _constant(pa.decimal128(digits, scale), value)
    whole = int(text)
    for kind in (pa.int32(), pa.int64()):
        limit = 1 << (kind.bit_width - 1)
        if -limit <= whole < limit:
            return Compiled(kind, lambda _row: whole, whole)
    return _constant(pa.decimal128(len(str(abs(whole))), 0), Decimal(whole))


def _field(one: Compiled, name: str) -> Compiled:
    if not is_.is_struct(one.type):
        raise UsageError(f"{one.type} has no field {name}")
    found = next((each for each in one.type if each.name.casefold() == name.casefold()), None)
    if found is None:
        raise UsageError(f"{one.type} has no field {name}")
    return Compiled(found.type, _on_one(one, lambda value: value[found.name]))


def _widened(one: Compiled, common: pa.DataType) -> Compiled:
    if one.type == common:
        return one
    return Compiled(common, lambda row: converted(one.run(row), common))


def _on_one(one: Compiled, compute: Callable[[Value], Value]) -> Callable[[Row], Value]:
    def run(row: Row) -> Value:
        value = one.run(row)
        return None if value is None else compute(value)

    return run


def _on_two(
    one: Compiled, other: Compiled, compute: Callable[[Value, Value], Value]
) -> Callable[[Row], Value]:
    def run(row: Row) -> Value:
        left = one.run(row)
        if left is None:
            return None
        right = other.run(row)
        return None if right is None else compute(left, right)

    return run
