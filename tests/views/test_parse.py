"""The text of a program to a program, or every error in it by line."""

# ruff: noqa: E501, ISC004, SIM905 - a table of programs is easier to read with a program a line
from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import ProgramError
from strandline.views.parse import parse

SHOP = """\
-- A shop.
CREATE TABLE orders (
  id BIGINT,
  customer BIGINT,
  amount DECIMAL(12,2) COMMENT 'with tax',
  weight DOUBLE,
  placed TIMESTAMP NOT NULL,
  place STRUCT<city: STRING, `post code`: STRING>,
  PRIMARY KEY (id)
) USING kafka OPTIONS (
  kafka.bootstrap.servers 'localhost:9092', subscribe 'orders', format 'json', envelope 'upsert',
  sequenceBy 'placed, id', onError 'fail', 'kafka.sasl.password' 'env:KAFKA_PASSWORD'
);
CREATE TABLE visits (page STRING, at TIMESTAMP) USING files OPTIONS (path 'in', format = 'csv');
/* Views may stand before
   what they read. */
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM paid WHERE amount > 100;
CREATE MATERIALIZED VIEW paid AS SELECT * FROM orders WHERE amount > 0;
CREATE MATERIALIZED VIEW revenue REFRESH FULL AS
  SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer;
CREATE SINK out FROM revenue USING files OPTIONS (path 'out');
"""


def test_a_program_is_what_its_text_says():
    program = parse(SHOP, {"retain": "1000"})
    orders, visits = program.tables
    assert orders.columns == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("customer", pa.int64()),
            pa.field("amount", pa.decimal128(12, 2)),
            pa.field("weight", pa.float64()),
            pa.field("placed", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("place", pa.struct([("city", pa.string()), ("post code", pa.string())])),
        ]
    )
    assert (orders.key, orders.connector, orders.envelope) == (("id",), "kafka", "upsert")
    assert (orders.sequence_by, orders.on_error, orders.line) == (("placed", "id"), "fail", 2)
    assert orders.options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "orders",
        "format": "json",
        "kafka.sasl.password": "env:KAFKA_PASSWORD",
    }
    assert (visits.envelope, visits.on_error, visits.key) == ("append", "collect", ())
    assert [(each.name, each.kind, each.reads) for each in program.views] == [
        ("paid", "linear", ("orders",)),
        ("large", "linear", ("paid",)),
        ("revenue", "full", ("orders",)),
    ]
    assert [(each.name, each.source, each.connector) for each in program.sinks] == [
        ("out", "revenue", "files")
    ]
    assert program.settings == {"retain": "1000"}


HEAD = """CREATE TABLE t (k INT, v STRING, n DECIMAL(10,2), x DOUBLE, PRIMARY KEY (k)) USING generator;
CREATE TABLE log (a INT, b STRING) USING generator;
"""
# What follows HEAD, the line of the trouble in the whole, and a phrase of its text.
REFUSED = [
    # statements
    ("SELECT 1", 3, "'SELECT' is no statement"),
    ("DROP TABLE t", 3, "'DROP' is no statement"),
    ("SET spark.sql.ansi.enabled = false", 3, "'SET"),
    ("CREATE VIEW v AS SELECT k FROM t", 3, "CREATE 'VIEW' is refused"),
    ("CREATE TEMPORARY VIEW v AS SELECT k FROM t", 3, "CREATE 'TEMPORARY' is refused"),
    ("CREATE OR REPLACE TABLE u (k INT) USING generator", 3, "CREATE 'OR' is refused"),
    ("CREATE FUNCTION f AS 'a.B'", 3, "CREATE 'FUNCTION' is refused"),
    ("CREATE", 3, "is missing at the end"),
    ("CREATE TABLE IF NOT EXISTS u (k INT) USING generator", 3, "IF NOT EXISTS is refused"),
    # tables
    ("CREATE TABLE t (k INT) USING generator", 3, "has the name of table t"),
    ("CREATE TABLE T (k INT) USING generator", 3, "has the name of table t"),
    ("CREATE TABLE a.b (k INT) USING generator", 3, "names have one part"),
    ("CREATE TABLE `a-b` (k INT) USING generator", 3, "table name 'a-b' is refused"),
    ("CREATE TABLE _u (k INT) USING generator", 3, "table name '_u' is refused"),
    ("CREATE TABLE t_errors (k INT) USING generator", 1, "the error collection of table t"),
    ("CREATE TABLE u (k INT)", 3, "using is missing"),
    ("CREATE TABLE u (k INT) LOCATION '/etc'", 3, "LOCATION"),
    ("CREATE TABLE u (k INT) USING parquet", 3, "no connector 'parquet'"),
    ("CREATE TABLE u (k INT) USING kafka OPTIONS (subscribe 'x')", 3, "kafka.bootstrap.servers"),
    ("CREATE TABLE u (k INT) USING files", 3, "files needs the option path"),
    ("CREATE TABLE u () USING generator", 3, "a column is missing"),
    ("CREATE TABLE u (\nk INT,\nv CHAR(3)) USING generator", 5, "no type 'char'"),
    ("CREATE TABLE u (k WHATEVER) USING generator", 3, "no type 'whatever'"),
    ("CREATE TABLE u (k DECIMAL(39,2)) USING generator", 3, "no type DECIMAL(39, 2)"),
    ("CREATE TABLE u (k DECIMAL(3,4)) USING generator", 3, "no type DECIMAL(3, 4)"),
    ("CREATE TABLE u (k INTERVAL YEAR TO MONTH) USING generator", 3, "not DAY TO SECOND"),
    ("CREATE TABLE u (k ARRAY<INT) USING generator", 3, "> is missing"),
    ("CREATE TABLE u (k INT DEFAULT 3) USING generator", 3, "DEFAULT of column 'k'"),
    ("CREATE TABLE u (k INT, K INT) USING generator", 3, "are the same"),
    ("CREATE TABLE u (_k INT) USING generator", 3, "starts with '_'"),
    ("CREATE TABLE u (k INT, PRIMARY KEY (z)) USING generator", 3, "the key names no column"),
    ("CREATE TABLE u (k DOUBLE PRIMARY KEY) USING generator", 3, "can't be part of a key"),
    ("CREATE TABLE u (k INT PRIMARY KEY, PRIMARY KEY (k)) USING generator", 3, "a second PRIMARY"),
    ("CREATE TABLE u (k INT, CHECK (k > 1)) USING generator", 3, "a constraint"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (envelope 'upsert')", 3, "there is none"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (envelope 'debezium')", 3, "there is none"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (envelope 'x')", 3, "envelope 'x' is unknown"),
    ("CREATE TABLE u (k INT PRIMARY KEY) USING generator OPTIONS (envelope 'append')", 3, "one a key"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (sequenceBy 'k')", 3, "has no keys"),
    ("CREATE TABLE u (k INT PRIMARY KEY) USING generator OPTIONS (sequenceBy 'z')", 3, "no column"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (onError 'skip')", 3, "onError 'skip'"),
    ("CREATE TABLE u (k INT) USING files OPTIONS (path 'x', format 'xml')", 3, "format 'xml'"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (\na 'b',\nA 'c')", 5, "is given twice"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (a b)", 3, "the value of option 'a'"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (\nssl.key.password 'x')", 4, "holds a secret"),
    ("CREATE TABLE u (k INT) USING generator OPTIONS (url 'http://u:p@h/')", 3, "holds a secret"),
    ("CREATE TABLE u (k INT) USING generator PARTITIONED BY (k)", 3, "after the table"),
    # views
    ("CREATE MATERIALIZED VIEW v AS", 3, "there is no query"),
    ("CREATE MATERIALIZED VIEW v AS SELEC k FROM t", 3, "starts no query"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM", 3, "can't be read"),
    ("CREATE MATERIALIZED VIEW v AS VALUES (1)", 3, "starts no query"),
    ("CREATE MATERIALIZED VIEW v REFRESH NEVER AS SELECT k FROM t", 3, "full is missing"),
    ("CREATE MATERIALIZED VIEW v AS\nSELECT k\nFROM nowhere", 5, "no table or view 'nowhere'"),
    ("CREATE MATERIALIZED VIEW v AS\nSELECT z\nFROM t", 4, "no column 'z'"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k + 1 FROM t", 3, "has no name"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k, k FROM t", 3, "two columns 'k'"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k AS _k FROM t", 3, "starts with '_'"),
    ("CREATE MATERIALIZED VIEW t AS SELECT a FROM log", 3, "has the name of table t"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM v", 3, "'v -> v'"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM w;\n"
     "CREATE MATERIALIZED VIEW w AS SELECT k FROM v", 3, "'v -> w -> v'"),
    # views that are not linear
    ("CREATE MATERIALIZED VIEW v AS\nSELECT k FROM t\nGROUP BY k", 5, "GROUP BY: a change"),
    ("CREATE MATERIALIZED VIEW v AS SELECT DISTINCT k FROM t", 3, "DISTINCT: "),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM t ORDER BY k", 3, "ORDER BY: "),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM t ORDER BY k LIMIT 1", 3, "LIMIT"),
    ("CREATE MATERIALIZED VIEW v AS SELECT t.k FROM t\nJOIN log ON k = a", 4, "JOIN: "),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM t, log", 3, "JOIN: "),
    ("CREATE MATERIALIZED VIEW v AS SELECT SUM(k) AS n FROM t", 3, "sum: an aggregate"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM t UNION SELECT a FROM log", 3, "UNION: "),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM t EXCEPT SELECT a FROM log", 3, "EXCEPT: "),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM t WHERE k IN\n(SELECT a FROM log)", 4, "subquery"),
    ("CREATE MATERIALIZED VIEW v AS SELECT RANK() OVER (ORDER BY k) AS r FROM t", 3, "OVER: "),
    ("CREATE MATERIALIZED VIEW v AS SELECT k FROM t WHERE n >\ncurrent_timestamp()", 4, "rows would"),
    ("CREATE MATERIALIZED VIEW v AS SELECT 1 AS one", 3, "SELECT without FROM"),
    ("CREATE MATERIALIZED VIEW v AS SELECT EXPLODE(ARRAY(k)) AS e FROM t", 3, "one row becomes"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k + 1 AS k FROM "
     "(SELECT k FROM t UNION ALL SELECT a FROM log)", 3, "an expression over a UNION ALL"),
    ("CREATE MATERIALIZED VIEW v AS SELECT k, v FROM t UNION ALL SELECT a FROM log", 3, "columns"),
    # views that would answer differently when they are computed again
    ("CREATE MATERIALIZED VIEW v AS SELECT k,\nRAND() AS r FROM t", 4, "function 'rand' is refused"),
    ("CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT UUID() AS u FROM t", 3, "function 'uuid'"),
    ("CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT SHUFFLE(ARRAY(k)) AS u FROM t", 3, "shuffle"),
    ("CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT FIRST(k) AS u FROM t", 3, "the order of"),
    ("CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT k FROM t LIMIT 3", 3, "without ORDER BY"),
    ("CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT * FROM t ORDER BY k LIMIT 3", 3, "with *"),
    ("CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT SUM(x) AS s FROM t", 3, "sum over floats"),
    ("CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT COLLECT_LIST(k) AS s FROM t", 3, "nobody chose"),
    ("CREATE MATERIALIZED VIEW v REFRESH FULL AS\n"
     "SELECT ROW_NUMBER() OVER (ORDER BY v) AS r FROM t", 4, "tied rows"),
    ("CREATE MATERIALIZED VIEW v AS SELECT LOCALTIMESTAMP AS n FROM t", 3, "localtimestamp"),
    # sinks
    ("CREATE SINK s FROM nowhere USING files OPTIONS (path 'x')", 3, "no table or view 'nowhere'"),
    ("CREATE SINK s FROM t USING kafka OPTIONS (topic 'x')", 3, "kafka needs the option kafka.bootstrap.servers"),
    ("CREATE SINK s FROM t USING postgresql", 3, "postgresql needs the option url"),
    ("CREATE SINK s FROM t USING iceberg", 3, "iceberg needs the option table"),
    ("CREATE SINK s FROM t USING email", 3, "connector 'email' is unknown"),
    ("CREATE SINK s FROM t USING files", 3, "files needs the option path"),
    ("CREATE SINK t FROM t USING files OPTIONS (path 'x')", 3, "has the name of table t"),
    ("CREATE SINK s USING files", 3, "from is missing"),
    # text
    ("CREATE TABLE u (k INT) USING generator OPTIONS (a 'b", 3, "has no end"),
    ("CREATE MATERIALIZED VIEW v AS SELECT 'a\\0' AS s FROM t", 3, "an escape"),
    ("CREATE MATERIALIZED VIEW v AS SELECT 'it''s' AS s FROM t", 3, "two strings side by side"),
    ("CREATE MATERIALIZED VIEW v AS SELECT '${env:HOME}' AS s FROM t", 3, "substitution"),
    ("CREATE MATERIALIZED VIEW v AS SELECT :p AS s FROM t", 3, "a colon"),
    ("CREATE MATERIALIZED VIEW v AS SELECT ? AS s FROM t", 3, "a placeholder"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "phrase"), REFUSED, ids=[each[0][:60] for each in REFUSED]
)
def test_a_refused_program_says_where_and_why_and_what_to_do(text, line, phrase):
    with pytest.raises(ProgramError) as refused:
        parse(HEAD + text)
    assert [
        trouble for trouble in refused.value.troubles if trouble[0] == line and phrase in trouble[1]
    ], str(refused.value)
    assert all(todo for _, _, todo in refused.value.troubles)


def test_all_errors_are_reported_at_once_in_order_of_lines():
    bad = [each for each in REFUSED if "\n" not in each[0] and not each[0].endswith("'b")][:30]
    text = HEAD + ";\n".join(f"{statement}" for statement, _, _ in bad)
    with pytest.raises(ProgramError) as refused:
        parse(text)
    lines = [line for line, _, _ in refused.value.troubles]
    assert lines == sorted(lines)
    assert set(range(3, 3 + len(bad))) - {3 + 14} <= set(lines)
    assert f"{len(lines)} errors" in str(refused.value)


def test_who_uses_a_statement_that_cant_be_read_is_not_blamed_for_it():
    with pytest.raises(ProgramError) as refused:
        parse(
            "CREATE TABLE u (k WHATEVER) USING generator;"
            "CREATE MATERIALIZED VIEW v AS SELECT k FROM u;"
            "CREATE SINK s FROM v USING files OPTIONS (path 'x')"
        )
    assert len(refused.value.troubles) == 1


@pytest.mark.parametrize("text", ["", " ;; \n", "-- nothing\n", "/* nothing */"])
def test_an_empty_program_is_refused(text):
    with pytest.raises(ProgramError, match="the program is empty"):
        parse(text)


def test_too_many_statements_are_refused():
    with pytest.raises(ProgramError, match="1001 statements"):
        parse("X;" * 1001)


PIECES = """
    ( ) , ; ' " ` < > . * = + - / | & ! ~ ^ % { } [ ] : ? @ # $ ${ -- /* */ /*+ |> -> := :: \\
    WITH RECURSIVE UNION ALL CASE WHEN END OVER CAST AS INTERVAL LATERAL VALUES 1e9 0x1 X'
""".split()
WORDS = [
    *HEAD.split(),
    *SHOP.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(),
    *PIECES,
]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_any_words_are_a_program_or_a_program_error(text):
    try_to_parse(text)
    try_to_parse(f"{HEAD}CREATE MATERIALIZED VIEW v AS SELECT {text}")


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, len(SHOP)),
    st.integers(0, 40),
    st.one_of(st.text(max_size=10), st.sampled_from(WORDS)),
)
def test_any_damage_to_a_program_leaves_a_program_or_a_program_error(at, length, put):
    try_to_parse(SHOP[:at] + put + SHOP[at + length :])


@settings(deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_a_program_or_a_program_error(text):
    try_to_parse(text)


@pytest.mark.parametrize(
    "deep",
    [
        "(" * 5000, "NOT " * 5000, "- " * 5000, "1 + " * 5000 + "1", "f(" * 3000, "[" * 3000,
        "CASE WHEN " * 3000, "ARRAY<" * 3000, "1 AND " * 5000 + "1", "a." * 5000 + "b",
        "1 AS a FROM t UNION ALL SELECT " * 500 + "1 AS a FROM t",
    ],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_a_program_as_deep_as_you_like_is_refused_and_never_breaks_us(deep):
    assert try_to_parse(f"{HEAD}CREATE MATERIALIZED VIEW v AS SELECT {deep}") is None
    assert try_to_parse(f"CREATE TABLE u (k {deep}) USING generator") is None


def try_to_parse(text):
    try:
        return parse(text)
    except ProgramError:
        return None


def test_what_is_on_record_is_read_with_its_secrets_and_nothing_else_is_let_pass():
    text = (
        "CREATE TABLE t (k INT) USING generator OPTIONS (password 'x');"
        "CREATE SINK s FROM t USING files OPTIONS (path 's3://u:x@h/')"
    )
    with pytest.raises(ProgramError, match="holds a secret"):
        parse(text)
    program = parse(text, recorded=True)
    assert program.tables[0].options == {"password": "x"}
    assert program.sinks[0].options == {"path": "s3://u:x@h/"}
    with pytest.raises(ProgramError, match="is given twice"):
        parse("CREATE TABLE t (k INT) USING generator OPTIONS (a 'x', A 'y')", recorded=True)
