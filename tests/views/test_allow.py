"""The only clauses and functions that a query may use; tests/threats has the attacks (X8)."""

from __future__ import annotations

import pytest

from strandline.errors import ProgramError
from strandline.views.allow import check_query

ALLOWED = {
    "select A from ORDERS": "SELECT `A` FROM `orders` AS `ORDERS`",
    "select orders.a from orders;": "SELECT `orders`.`a` FROM `orders`",
    "select Orders.a from Orders": "SELECT `Orders`.`a` FROM `orders` AS `Orders`",
    "select rand() as r from orders": "SELECT RAND() AS `r` FROM `orders`",
    "select now() as n": "SELECT NOW() AS `n`",
    "select first(a) as f from orders": "SELECT FIRST(`a`) AS `f` FROM `orders`",
    "select a from orders order by a limit 3": "SELECT `a` FROM `orders` ORDER BY `a` LIMIT 3",
    "select a, sum(b) over (partition by a) as s from orders": (
        "SELECT `a`, SUM(`b`) OVER (PARTITION BY `a`) AS `s` FROM `orders`"
    ),
    "select case when a then 1 else 2 end as c from orders": (
        "SELECT CASE WHEN `a` THEN 1 ELSE 2 END AS `c` FROM `orders`"
    ),
    "select transform(a, x -> x + 1) as t from orders": (
        "SELECT TRANSFORM(`a`, `x` -> `x` + 1) AS `t` FROM `orders`"
    ),
    "select a['k'].b as c from orders lateral view explode(z) e as y": (
        "SELECT `a`['k'].`b` AS `c` FROM `orders` LATERAL VIEW EXPLODE(`z`) e AS `y`"
    ),
    "select get_json_object(a, '$.x') as j from orders": (
        "SELECT GET_JSON_OBJECT(`a`, '$.x') AS `j` FROM `orders`"
    ),
    "select count(distinct a) as n from orders group by cube (a)": (
        "SELECT COUNT(DISTINCT `a`) AS `n` FROM `orders` GROUP BY CUBE (`a`)"
    ),
    "select a from orders except select a from orders": (
        "SELECT `a` FROM `orders` EXCEPT SELECT `a` FROM `orders`"
    ),
}


@pytest.mark.parametrize("sql", ALLOWED)
def test_what_spark_gets_is_written_by_us(sql):
    assert check_query(sql, ["orders"]) == ALLOWED[sql]
    assert check_query(check_query(sql, ["orders"]), ["orders"]) == check_query(sql, ["orders"])


@pytest.mark.parametrize(
    ("sql", "line", "phrase"),
    [
        ("SELECT a,\nfrobnicate(a) AS b FROM orders", 2, "function 'frobnicate' is refused"),
        ("SELECT a FROM orders\nQUALIFY ROW_NUMBER() OVER (ORDER BY a) = 1", 1, "QUALIFY"),
        ("SELECT a FROM\norders TABLESAMPLE (1 ROWS)", 2, "TABLESAMPLE"),
        ("SELECT y FROM orders LATERAL VIEW INLINE(z) e AS y", 1, "LATERAL 'inline'"),
        ("SELECT * REPLACE (1 AS a) FROM orders", 1, "REPLACE"),
        ("SELECT 1; SELECT 2", 1, ""),
        ("", 1, "there is no query"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name_with_its_line(sql, line, phrase):
    with pytest.raises(ProgramError, match="the query has") as refused:
        check_query(sql, ["orders"])
    assert any(at == line and phrase in what for at, what, _ in refused.value.troubles), str(
        refused.value
    )


def test_every_reason_is_told_at_once():
    sql = "SELECT f(a) AS x,\n g(a) AS y FROM orders\nJOIN nowhere ON h(a)"
    with pytest.raises(ProgramError) as refused:
        check_query(sql, ["orders"])
    assert [line for line, _, _ in refused.value.troubles] == [1, 2, 3, 3]
