"""Queries that would answer differently when they are computed again, on other machines.

A view that says `REFRESH FULL` is computed by every replica, and each must get the same rows. What
depends on an order that nobody chose is made canonical or refused:

    LIMIT, OFFSET              need ORDER BY; ties are broken by all columns, which we add to it
    row_number, lag, ROWS …    need the key of their one table in PARTITION BY or ORDER BY
    collect_list, collect_set  need sort_array around them
    sums of floats, of text    refused: rounding shows the order of the rows; sum decimals
    averages of whole numbers  Spark adds them as floats: we let it add decimals instead
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.types as is_
from sqlglot import exp

from strandline.views import functions
from strandline.views.allow import function_name
from strandline.views.sqltext import line_of
from strandline.views.troubles import Refused, named

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_FLOAT, _DECIMAL, _OTHER = 2, 1, 0
_FLOATING = functions.names("""
    acos acosh asin asinh atan atan2 atanh cbrt cos cosh cot csc degrees e exp expm1 hypot ln log
    log1p log2 months_between pi pow power radians rint sec sin sinh sqrt tan tanh
""")
_EXACT = functions.names("""
    approx_count_distinct ceil count count_if date_diff datediff day floor hash hour instr length
    locate minute month second sign signum size xxhash64 year
""")
_WHOLE = _EXACT - {"ceil", "floor", "sign", "signum"} | functions.names("""
    array_position array_size ascii bit_count bit_length cardinality char_length character_length
    crc32 dayofmonth dayofweek dayofyear find_in_set json_array_length levenshtein octet_length
    position quarter regexp_count regexp_instr unix_date unix_micros unix_millis unix_seconds
    unix_timestamp weekday weekofyear
""")
_TEXTUAL = functions.names("""
    base64 bin char chr concat concat_ws conv date_format decode format_number from_unixtime
    get_json_object hex initcap lcase left lower lpad ltrim mask md5 overlay regexp_extract
    regexp_replace regexp_substr repeat replace right rpad rtrim sha sha1 sha2 soundex space
    split_part substr substring substring_index to_json translate trim typeof ucase upper url_decode
    url_encode
""")
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Neg, exp.IntDiv)
_WHOLE_TYPES = {
    exp.DataType.Type.TINYINT, exp.DataType.Type.SMALLINT, exp.DataType.Type.INT,
    exp.DataType.Type.BIGINT,
}  # fmt: skip
_AVERAGED = "DECIMAL(38, 6)"
_FLOAT_TYPES = {exp.DataType.Type.FLOAT, exp.DataType.Type.DOUBLE}
_ADDED_ORDER = "a LIMIT with * can't be made exact"


@dataclass(slots=True)
class Exactness:
    """Which names of columns mean floats, and which decimals; keys of tables by their names."""

    floats: set[str] = field(default_factory=set)
    decimals: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    wholes: set[str] = field(default_factory=set)
    keys: dict[str, frozenset[str]] = field(default_factory=dict)

    def learn_table(self, name: str, columns: pa.Schema, key: tuple[str, ...]) -> None:
        for column in columns:
            if _holds(column.type, is_.is_floating):
                self.floats.add(column.name.casefold())
            elif _holds(column.type, is_.is_decimal):
                self.decimals.add(column.name.casefold())
            elif is_.is_string(column.type) or is_.is_large_string(column.type):
                self.texts.add(column.name.casefold())
            elif is_.is_integer(column.type):
                self.wholes.add(column.name.casefold())
        if key:
            self.keys[name.casefold()] = frozenset(each.casefold() for each in key)

    def learn_names(self, tree: exp.Expr) -> None:
        """Take note of what aliases stand for; again, since they may stand for each other."""
        aliases = list(tree.find_all(exp.Alias))
        for _ in aliases:
            before = self._learned()
            for each in aliases:
                self._learn_name(each.alias.casefold(), each.this)
            if before == self._learned():
                return

    def _learned(self) -> tuple[int, ...]:
        return tuple(map(len, (self.floats, self.decimals, self.texts, self.wholes)))

    def _learn_name(self, name: str, value: exp.Expr) -> None:
        kind = self.kind(value)
        if kind == _FLOAT:
            self.floats.add(name)
        elif kind == _DECIMAL:
            self.decimals.add(name)
        elif self.is_text(value):
            self.texts.add(name)
        elif self.is_whole(value):
            self.wholes.add(name)

    def is_text(self, value: exp.Expr) -> bool:
        """Whether a value is text for sure."""
        if isinstance(value, exp.Cast):
            return value.to.this in exp.DataType.TEXT_TYPES
        if isinstance(value, exp.Column):
            return value.name.casefold() in self.texts - self.wholes
        if isinstance(value, exp.DPipe) or function_name(value) in _TEXTUAL:
            return True
        return any(self.is_text(each) for each in _alternatives(value))

    def is_whole(self, value: exp.Expr) -> bool:
        """Whether a value is a whole number for sure."""
        if isinstance(value, exp.Cast):
            return value.to.this in _WHOLE_TYPES
        if isinstance(value, exp.Column):
            names = {part.name.casefold() for part in value.parts}
            other = self.floats | self.decimals | self.texts
            return value.name.casefold() in self.wholes and not names & other
        if isinstance(value, exp.Literal):
            return value.is_int
        if function_name(value) in _WHOLE:
            return True
        parts: list[exp.Expr]
        if isinstance(value, _ARITHMETIC):
            parts = list(value.iter_expressions())
        else:
            parts = [each for each in _alternatives(value) if not isinstance(each, exp.Null)]
        return bool(parts) and all(self.is_whole(each) for each in parts)

    def kind(self, value: exp.Expr) -> int:
        """Whether a value may be a float, or a decimal, or neither; floats when in doubt."""
        match value:
            case exp.Cast():
                return _kind_of_type(value.to)
            case exp.Column():
                return self._kind_of_name(value)
            case exp.Literal():
                return _kind_of_literal(value)
            case _:
                pass
        name = function_name(value)
        if name in _FLOATING:
            return _FLOAT
        if name in _EXACT or isinstance(value, exp.Predicate | exp.Connector | exp.Not):
            return _OTHER
        return self._kind_of_parts(value, name)

    def _kind_of_parts(self, value: exp.Expr, name: str | None) -> int:
        inner = max((self.kind(each) for each in value.iter_expressions()), default=_OTHER)
        divides = isinstance(value, exp.Div) or name in {"avg", "mean", "try_divide"}
        return _FLOAT if divides and inner == _OTHER else inner

    def _kind_of_name(self, column: exp.Column) -> int:
        names = {part.name.casefold() for part in column.parts}
        if names & self.floats:
            return _FLOAT
        return _DECIMAL if names & self.decimals else _OTHER


def made_exact(tree: exp.Query, exact: Exactness) -> exp.Query:
    """The query with one answer only, or `Refused` with what has several."""
    tree = tree.copy()
    exact.learn_names(tree)
    for node in list(tree.walk()):
        _check_aggregate(node, exact)
        if isinstance(node, exp.Window):
            _check_window(node, exact.keys)
        if isinstance(node, exp.Query) and _is_cut(node):
            _break_ties(node)
    averages = [each for each in tree.walk() if function_name(each) in {"avg", "mean"}]
    for each in reversed(averages):
        _add_decimals(each, exact)
    return tree


def uses_clock(tree: exp.Expr) -> bool:
    """Whether a query asks for the time."""
    return any(function_name(node) in functions.CLOCK for node in tree.walk())


def _holds(kind: pa.DataType, test: object) -> bool:
    if callable(test) and test(kind):
        return True
    if is_.is_nested(kind):
        return any(_holds(kind.field(at).type, test) for at in range(kind.num_fields))
    return False


def _kind_of_type(kind: exp.DataType) -> int:
    if any(each.this in _FLOAT_TYPES for each in kind.find_all(exp.DataType)):
        return _FLOAT
    return _DECIMAL if kind.this == exp.DataType.Type.DECIMAL else _OTHER


def _kind_of_literal(value: exp.Literal) -> int:
    if value.is_string:
        return _OTHER
    text = value.this.casefold()
    return _FLOAT if "e" in text else _DECIMAL if "." in text else _OTHER


def _check_aggregate(node: exp.Expr, exact: Exactness) -> None:
    name = function_name(node)
    if name in functions.SORTED_ONLY:
        around = function_name(node.parent) if node.parent is not None else None
        if around not in {"sort_array", "array_sort"}:
            raise Refused(
                f"{name} gives its values in an order that nobody chose",
                f"write sort_array({name}(…))",
                line=line_of(node),
            )
    if name not in functions.FOLDING:
        return
    if any(exact.is_text(each) for each in node.iter_expressions()):
        raise Refused(
            f"{name} over text: it is added as floats, whose rounding depends on the order of the "
            "rows, which nobody promises",
            f"make numbers of it first: {name}(CAST(… AS DECIMAL(38, 6)))",
            line=line_of(node),
        )
    if max((exact.kind(each) for each in node.iter_expressions()), default=0) == _FLOAT:
        raise Refused(
            f"{name} over floats: rounding depends on the order of the rows, which nobody promises",
            f"make them exact first: {name}(CAST(… AS DECIMAL(38, 6)))",
            line=line_of(node),
        )


def _alternatives(value: exp.Expr) -> list[exp.Expr]:
    """What a value may be one of, as it is."""
    match value:
        case exp.Paren():
            return [value.this]
        case exp.Distinct():
            return list(value.expressions)
        case exp.Coalesce():
            return list(value.iter_expressions())
        case exp.If():
            given = value.args.get("true"), value.args.get("false")
        case exp.Case():
            branches = [each.args.get("true") for each in value.args.get("ifs") or []]
            given = *branches, value.args.get("default")
        case _:
            return []
    return [each for each in given if each is not None]


def _add_decimals(average: exp.Expr, exact: Exactness) -> None:
    """Whole numbers that are added as floats are rounded once their sum has 54 bits: then it shows
    in which order that was."""
    added = average.this if isinstance(average, exp.Avg) else average.expressions[0]
    if not exact.is_whole(added):
        return
    if isinstance(added, exp.Distinct):
        added = added.expressions[0]
    added.replace(exp.cast(added.copy(), _AVERAGED, dialect="spark"))
    whole: exp.Expr = average
    while isinstance(whole.parent, exp.Filter | exp.Window) and whole.arg_key == "this":
        whole = whole.parent
    whole.replace(exp.cast(whole.copy(), "DOUBLE", dialect="spark"))


def _check_window(node: exp.Window, keys: Mapping[str, frozenset[str]]) -> None:
    if node.args.get("alias") is not None:
        raise Refused(
            f"a window by name ({named(node.alias)})",
            "write it out: OVER (PARTITION BY … ORDER BY …)",
            line=line_of(node),
        )
    name = function_name(node.this)
    frame = node.args.get("spec")
    rows = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
    if name not in functions.PLACING and not rows:
        return
    key = _key_below(node, keys)
    order = node.args.get("order")
    chosen = [*(node.args.get("partition_by") or []), *(order.expressions if order else [])]
    plain = {each.this if isinstance(each, exp.Ordered) else each for each in chosen}
    have = {each.name.casefold() for each in plain if isinstance(each, exp.Column)}
    if key is None or not key <= have:
        raise Refused(
            f"{name} tells tied rows apart, and nobody chose their order",
            "read one table with a PRIMARY KEY, and put its key into the ORDER BY of OVER",
            line=line_of(node),
        )


def _key_below(node: exp.Window, keys: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
    select = node.find_ancestor(exp.Select)
    start = select.args.get("from_") if select is not None else None
    if select is None or start is None or not isinstance(start.this, exp.Table):
        return None
    if any(select.args.get(each) for each in ("joins", "laterals", "group")):
        return None
    return keys.get(start.this.name.casefold())


def _is_cut(node: exp.Query) -> bool:
    return any(node.args.get(each) is not None for each in ("limit", "offset"))


def _break_ties(query: exp.Query) -> None:
    order = query.args.get("order")
    if order is None:
        raise Refused(
            "LIMIT without ORDER BY gives whichever rows come first", "add ORDER BY",
            line=line_of(query),
        )  # fmt: skip
    chosen = query.selects
    if not chosen or any(each.is_star for each in chosen):
        raise Refused(_ADDED_ORDER, "list the columns", line=line_of(query))
    there = {each.this.name for each in order.expressions if isinstance(each.this, exp.Literal)}
    for place in (each for each in range(1, len(chosen) + 1) if str(each) not in there):
        order.append("expressions", exp.Ordered(this=exp.Literal.number(place), nulls_first=True))
