"""What we write for Spark and what was typed: Spark gives both the same answer and types."""

# ruff: noqa: E501 - expressions are easier to read on one line
from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from strandline.views import functions
from strandline.views.allow import check_query

pytestmark = pytest.mark.spark

ROWS = """
SELECT * FROM VALUES
  (1, 2L, 1.50, 0.5D, 'a_b%c', true, DATE '2024-02-29', TIMESTAMP '2024-02-29 12:34:56.789', array(3, 1, 2), map('x', 1), named_struct('f', 1, 'g', 'y')),
  (-7, -3L, -2.25, 1e10D, 'It\\'s "q" \\\\ \\n', false, DATE '1999-12-31', TIMESTAMP '1970-01-01 00:00:00', array(5), map('y', 2), named_struct('f', 2, 'g', 'z')),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
  AS v(i, l, d, x, s, b, day, at, arr, m, st)
"""
EXPRESSIONS = r"""
'it\'s'; "double"; 'a\\b'; 'a\tb\nc'; '\u0041\u00e9'; r'a\nb'; s LIKE 'a\_b\%c'; s LIKE 'a!_%' ESCAPE '!'; s LIKE '%\\\\%'
s RLIKE '^a'; s ILIKE 'A%'; s LIKE ANY ('a%', 'b%'); s NOT LIKE 'x'; s || 'x'; concat(s, 'x', 'y'); concat_ws('-', s, 'x')
substr(s, 2); substring(s, 1, 2); substring(s FROM 2 FOR 1); left(s, 1); right(s, 1); upper(s); ucase(s); lower(s); lcase(s); initcap(s)
trim(s); trim(BOTH 'a' FROM s); ltrim(s); rtrim(s); lpad(s, 8, '*'); rpad(s, 8, '*'); length(s); char_length(s); len(s); octet_length(s); bit_length(s)
replace(s, 'a', 'z'); translate(s, 'ab', 'yz'); reverse(s); repeat(s, 2); instr(s, 'b'); locate('b', s); locate('b', s, 2); position('b' IN s); position('b', s)
split(s, '_'); split_part(s, '_', 1); regexp_replace(s, '[ab]', '#'); regexp_extract(s, '(.)_(.)', 2); regexp_extract(s, '(.)_(.)'); regexp_like(s, 'a'); regexp_count(s, 'a')
ascii(s); chr(65); hex(s); unhex('4142'); base64(s); md5(s); sha1(s); sha(s); sha2(s, 256); crc32(s); hash(s, i); xxhash64(s, i); soundex(s); levenshtein(s, 'ab')
startswith(s, 'a'); endswith(s, 'c'); contains(s, '_'); find_in_set('a', 'b,a'); format_number(d, 1); space(3); elt(1, 'a', 'b'); overlay(s PLACING 'zz' FROM 2); encode(s, 'utf-8')
i + 1; i - 1; i * 2; i / 2; i % 2; i DIV 2; -i; - -i; +i; ~i; i & 3; i | 8; i ^ 1; i << 2; i >> 1; shiftleft(i, 1); mod(i, 3); pmod(i, 3); abs(i); sign(i); negative(i); positive(i)
1L; 2S; 3Y; 1.5BD; 1.25D; 2.5F; 1e3; .5; 0.10; 10000000000; X'1F'; 1 + 2 * 3 - 4 / 2; (1 + 2) * 3; 2 - (3 - 4); NOT b AND b OR b; NOT (b AND b)
ceil(d); floor(d); ceil(x); floor(x, 0); round(d, 1); round(x); bround(d, 1); sqrt(abs(x)); cbrt(x); power(i, 2); pow(i, 2); exp(1); ln(abs(x)); log(2, 8); log2(8); log1p(1); greatest(i, l, 0); least(i, l); bin(i); conv('ff', 16, 10); factorial(5); hypot(3, 4); pi(); e(); width_bucket(3, 0, 10, 5)
i = 1; i == 1; i <> 1; i != 1; i <=> NULL; i IS NULL; i IS NOT NULL; b IS TRUE; b IS NOT FALSE; i IS DISTINCT FROM 1; i IN (1, 2); i NOT IN (1, 2); i BETWEEN 0 AND 5; i NOT BETWEEN 0 AND 5
CASE i WHEN 1 THEN 'a' ELSE 'b' END; CASE WHEN b THEN 1 END; if(b, 1, 2); nvl(i, 0); ifnull(i, 0); nvl2(i, 1, 2); nullif(i, 1); coalesce(i, l, 0); isnull(i); isnotnull(i); nanvl(x, 0); zeroifnull(i); equal_null(i, 1)
CAST(i AS STRING); CAST(d AS INT); i::BIGINT; TRY_CAST(s AS INT); CAST(s AS BINARY); CAST(d AS DECIMAL(20, 4)); CAST(arr AS ARRAY<STRING>); CAST(st AS STRUCT<f: STRING, g: STRING>); try_add(i, 1); try_divide(i, 0)
date_add(day, 1); date_sub(day, 1); datediff(day, DATE '2024-01-01'); date_diff(day, DATE '2024-01-01'); add_months(day, 1); last_day(day); next_day(day, 'MO'); months_between(day, DATE '2024-01-15'); trunc(day, 'MM'); date_trunc('hour', at); date_trunc('week', at)
year(day); quarter(day); month(day); day(day); dayofmonth(day); dayofweek(day); dayofyear(day); weekday(day); weekofyear(day); hour(at); minute(at); second(at); extract(YEAR FROM at); extract(SECOND FROM at); extract(WEEK FROM day)
date_format(at, 'yyyy-MM-dd HH:mm'); to_date('2024-03-01'); to_date('01/03/2024', 'dd/MM/yyyy'); to_timestamp('2024-03-01 10:00:00'); to_timestamp('01.03.2024', 'dd.MM.yyyy'); unix_timestamp(at); from_unixtime(0); timestamp_seconds(1); timestamp_millis(1); unix_millis(at); make_date(2024, 2, 29); make_timestamp(2024, 2, 29, 1, 2, 3)
at + INTERVAL 1 DAY; at - INTERVAL '1 2' DAY TO HOUR; day + INTERVAL 2 MONTHS; day + 1; day - DATE '2024-01-01'; timestampadd(HOUR, 1, at); dateadd(DAY, 1, day); timestampdiff(DAY, TIMESTAMP '2024-01-01 00:00:00', at); TIMESTAMP_NTZ '2024-01-01 00:00:00'
arr[0]; element_at(arr, 1); size(arr); cardinality(arr); array_contains(arr, 1); sort_array(arr); sort_array(arr, false); array_sort(arr); array_max(arr); array_min(arr); array_distinct(arr); array_position(arr, 1); array_remove(arr, 1); array_join(arr, ','); array_union(arr, array(9)); array_except(arr, array(1)); array_intersect(arr, array(1)); array_append(arr, 4); array_prepend(arr, 4); array_repeat(i, 2); arrays_zip(arr, arr); slice(arr, 1, 2); flatten(array(arr, arr)); sequence(1, 5, 2); reverse(arr); array_compact(arr); array_insert(arr, 1, 7); get(arr, 0)
transform(arr, x -> x + 1); transform(arr, (x, n) -> x * n); filter(arr, x -> x > 1); exists(arr, x -> x > 4); forall(arr, x -> x > 0); aggregate(arr, 0, (a, x) -> a + x); aggregate(arr, 0, (a, x) -> a + x, a -> a * 2); zip_with(arr, arr, (a, c) -> a + c); map_filter(m, (k, v) -> v > 1); transform_values(m, (k, v) -> v + 1); transform_keys(m, (k, v) -> upper(k))
m['x']; map_keys(m); map_values(m); map_entries(m); map_contains_key(m, 'x'); map_from_arrays(array('a'), array(1)); map_concat(m, map('z', 3)); map('a', 1, 'b', 2); array(1, 2); struct(i, l); named_struct('a', i); st.f; st.g; v.st.f; str_to_map('a:1,b:2', ',', ':')
get_json_object('{"a": {"b": [1, 2]}}', '$.a.b[1]'); to_json(st); json_array_length('[1, 2]'); url_encode('a b'); url_decode('a+b'); typeof(i); luhn_check('79927398713'); mask('Ab1'); to_number('12', '99'); try_to_number('x', '99')
acos(0.5); acosh(2); asin(0.5); asinh(1); atan(1); atan2(1, 2); atanh(0.5); cos(1); cosh(1); cot(1); csc(1); sec(1); sin(1); sinh(1); tan(1); tanh(1); degrees(1); radians(1); expm1(1); rint(x); signum(x); isnan(x); nullifzero(i); ceiling(d)
arrays_overlap(arr, array(1)); bit_count(i); char(65); character_length(s); date_from_unix_date(1); decode(encode('a', 'utf-8'), 'utf-8'); decode(i, 1, 'one', 'other'); map_from_entries(array(struct('a', 1))); reduce(arr, 0, (a, x) -> a + x); regexp_extract_all(s, '([a-z])', 1); regexp_instr(s, 'b'); regexp_substr(s, '[a-z]'); shiftright(i, 1); shiftrightunsigned(i, 1); substring_index(s, '_', 1)
timestamp_micros(1); try_element_at(arr, 9); try_multiply(i, 2); try_subtract(i, 2); try_to_timestamp('x'); unbase64('YQ=='); unix_micros(at); unix_seconds(at)
""".replace("\n", ";")
LISTED = [each.strip() for each in EXPRESSIONS.split(";") if each.strip()]
QUERIES = [
    "SELECT b, COUNT(*) AS n, COUNT(DISTINCT i) AS u, SUM(d) AS s, AVG(d) AS a, MIN(s) AS lo, MAX(day) AS hi, count_if(b) AS c, bool_and(b) AS e, every(b) AS f, some(b) AS g, bit_xor(i) AS h FROM v GROUP BY b ORDER BY b",
    "SELECT b, SUM(i) FILTER (WHERE i > 0) AS s FROM v GROUP BY b HAVING COUNT(*) > 0 ORDER BY b NULLS LAST",
    "SELECT b, i, GROUPING(b) AS g, COUNT(*) AS n FROM v GROUP BY ROLLUP (b, i) ORDER BY b, i, g",
    "SELECT b, i, COUNT(*) AS n FROM v GROUP BY GROUPING SETS ((b), (i), ()) ORDER BY b, i",
    "SELECT b, COUNT(*) AS n FROM v GROUP BY b WITH CUBE ORDER BY b, n",
    "SELECT i, ROW_NUMBER() OVER (ORDER BY i DESC NULLS LAST) AS r, LAG(i, 1, 0) OVER (ORDER BY i) AS p, SUM(i) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s, RANK() OVER (PARTITION BY b ORDER BY i) AS k FROM v ORDER BY i",
    "SELECT i, LEAD(i) OVER (ORDER BY i) AS a, NTILE(2) OVER (ORDER BY i) AS b, FIRST_VALUE(i) OVER (ORDER BY i) AS c, LAST_VALUE(i) OVER (ORDER BY i) AS d, NTH_VALUE(i, 2) OVER (ORDER BY i) AS e, DENSE_RANK() OVER (ORDER BY b) AS f, PERCENT_RANK() OVER (ORDER BY b) AS g, CUME_DIST() OVER (ORDER BY b) AS h FROM v ORDER BY i",
    "SELECT BIT_AND(i) AS a, BIT_OR(i) AS b, BOOL_OR(b) AS c, MEAN(d) AS d FROM v",
    "SELECT b, GROUPING_ID(b) AS g FROM v GROUP BY CUBE (b) ORDER BY b, g",
    "SELECT e FROM v LATERAL VIEW EXPLODE_OUTER(arr) t AS e ORDER BY e", "SELECT p, e FROM v LATERAL VIEW POSEXPLODE_OUTER(arr) t AS p, e ORDER BY e",
    "SELECT a.i, c.l FROM v AS a LEFT JOIN v AS c ON a.i = c.i AND c.b ORDER BY 1, 2",
    "SELECT i FROM v AS a LEFT ANTI JOIN v AS c ON a.i = c.i ORDER BY i",
    "SELECT i FROM v LEFT SEMI JOIN (SELECT i AS j FROM v) AS w ON i = j ORDER BY i",
    "SELECT i, y.l FROM v JOIN v AS y USING (i) ORDER BY i",
    "SELECT e, p FROM v LATERAL VIEW POSEXPLODE(arr) z AS p, e ORDER BY e",
    "SELECT e FROM v LATERAL VIEW OUTER EXPLODE(arr) AS e ORDER BY e",
    "SELECT i, w.q FROM v, LATERAL (SELECT v.i + 1 AS q) AS w ORDER BY i",
    "WITH w (k) AS (SELECT i FROM v WHERE i IS NOT NULL), z AS (SELECT k + 1 AS k FROM w) SELECT * FROM w UNION ALL SELECT * FROM z ORDER BY k",
    "SELECT i FROM v INTERSECT SELECT 1 ORDER BY i", "SELECT i FROM v EXCEPT ALL SELECT 1 ORDER BY i", "SELECT i FROM v MINUS SELECT 1 ORDER BY i",
    "SELECT i FROM v UNION SELECT l FROM v ORDER BY i", "(SELECT i FROM v) UNION ALL (SELECT 1) ORDER BY i LIMIT 3 OFFSET 1",
    "SELECT i FROM v WHERE i IN (SELECT l - 1 FROM v) OR EXISTS (SELECT 1 FROM v AS q WHERE q.i = v.i) ORDER BY i",
    "SELECT (SELECT MAX(i) FROM v) AS m, i FROM v WHERE i >= ALL (SELECT 1) IS NOT TRUE ORDER BY i".replace(" WHERE i >= ALL (SELECT 1) IS NOT TRUE", ""),
    "SELECT * EXCEPT (m) FROM v ORDER BY i", "SELECT DISTINCT b FROM v ORDER BY b", "SELECT v.* FROM v ORDER BY i DESC", "SELECT i AS `a b`, l `c``d` FROM v ORDER BY i",
    "SELECT i, i + 1 AS j, j * 2 AS k FROM v ORDER BY i", "SELECT ALL i FROM v ORDER BY i ASC NULLS LAST", "SELECT k FROM VALUES (1), (2) AS w (k) ORDER BY k",
    "SELECT SORT_ARRAY(COLLECT_SET(i)) AS c, COLLECT_LIST(i)[0] IS NULL AS n, approx_count_distinct(i) AS a FROM v",
]  # fmt: skip


@pytest.fixture(scope="module")
def v(spark):
    spark.sql(ROWS).coalesce(1).createOrReplaceTempView("v")
    yield
    spark.catalog.dropTempView("v")


def answers(spark, sql):
    try:
        found = spark.sql(sql)
        return [each.dataType.simpleString() for each in found.schema], repr(found.collect())
    except PySparkException as error:
        return f"{sql} raises {error}"[:500]


def test_every_expression_means_what_was_typed(spark, v):
    wrong = []
    for start in range(0, len(LISTED), 20):
        some = LISTED[start : start + 20]
        if differs(spark, some):
            wrong.extend(each for each in some if differs(spark, [each]))
    assert not wrong


def differs(spark, expressions):
    listed = ", ".join(f"{each} AS c{place}" for place, each in enumerate(expressions))
    typed = f"SELECT {listed} FROM v"
    return answers(spark, typed) != answers(spark, check_query(typed, ["v"]))


def test_every_query_means_what_was_typed(spark, v):
    for sql in QUERIES:
        typed = answers(spark, sql)
        assert not isinstance(typed, str), typed
        assert answers(spark, check_query(sql, ["v"])) == typed, sql


def test_every_listed_function_is_one_of_sparks(spark):
    own = {"cast", "try_cast", "not", "extract", "timestampadd", "timestampdiff", "any", "div"}
    asked = sorted(functions.LISTED - own)
    known = {each.name for each in spark.catalog.listFunctions()}
    assert [name for name in asked if name not in known] == []
