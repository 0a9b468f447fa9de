"""X8: SQL that reads or writes files, runs code or changes the session: refused before Spark."""

# ruff: noqa: E501 - a corpus is easier to read with an attack a line
from __future__ import annotations

import random

import pytest

from strandline.errors import ProgramError
from strandline.views.allow import check_query
from strandline.views.parse import parse

SEED = 8
MUTATIONS = 10_000
COLLECTIONS = ["orders", "customers"]
TABLES = """
CREATE TABLE orders (id BIGINT, amount DECIMAL(12, 2), PRIMARY KEY (id)) USING generator;
CREATE TABLE customers (id BIGINT, name STRING, PRIMARY KEY (id)) USING generator;
"""
# Each of the first lines was measured to work on Spark with default settings.
ATTACKS = [
    # files by path
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM TeXt . `/etc/passwd`",
    "SELECT * FROM/**/text/**/./**/`/etc/passwd`",
    "SELECT * FROM csv.`file:///etc/passwd`",
    "SELECT * FROM parquet.`/data`",
    "SELECT * FROM delta.`/data`",
    "SELECT * FROM binaryFile.`/etc/shadow`",
    "SELECT * FROM `text`.`/etc/passwd`",
    "SELECT * FROM `/etc/passwd`",
    "SELECT * FROM spark_catalog.default.orders",
    "SELECT * FROM default.orders",
    "SELECT id FROM orders UNION ALL SELECT value FROM text.`/etc/passwd`",
    "SELECT id FROM orders WHERE id IN (SELECT value FROM text.`/etc/passwd`)",
    "SELECT (SELECT MAX(value) FROM text.`/etc/passwd`) AS x FROM orders",
    "WITH c AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM c",
    "WITH c AS (SELECT * FROM d), d AS (SELECT id FROM orders) SELECT * FROM c",
    "SELECT * FROM (WITH c AS (SELECT 1 AS a) SELECT * FROM c) AS x CROSS JOIN c",
    "SELECT * FROM orders, LATERAL (SELECT * FROM text.`/etc/passwd`) AS x",
    "SELECT * FROM orders JOIN text.`/etc/passwd` AS t ON TRUE",
    "SELECT * FROM (SELECT * FROM (SELECT * FROM text.`/etc/passwd`))",
    "CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')",
    "CREATE TABLE v USING text LOCATION '/etc/passwd'",
    "CREATE TABLE v (value STRING) USING text OPTIONS (path '/etc/passwd')",
    "CREATE EXTERNAL TABLE v (value STRING) LOCATION '/etc'",
    "TABLE orders",
    "FROM text.`/etc/passwd` SELECT *",
    "SELECT * FROM read_files('/etc/passwd')",
    "SELECT * FROM identifier('text.`/etc/passwd`')",
    "SELECT * FROM IDENTIFIER('ord' || 'ers')",
    "EXECUTE IMMEDIATE 'SELECT * FROM text.`/etc/passwd`'",
    "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE orders",
    # writing
    "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/out' USING text SELECT name FROM customers",
    "INSERT OVERWRITE DIRECTORY '/tmp/out' SELECT name FROM customers",
    "INSERT INTO orders VALUES (1, 2)",
    "FROM orders INSERT INTO customers SELECT *",
    "WITH c AS (SELECT 1) INSERT INTO orders SELECT * FROM c",
    "MERGE INTO orders USING customers ON TRUE WHEN MATCHED THEN DELETE",
    "DELETE FROM orders", "UPDATE orders SET id = 1", "TRUNCATE TABLE orders",
    "DROP TABLE orders", "ALTER TABLE orders RENAME TO x", "CREATE DATABASE d LOCATION '/tmp'",
    "EXPORT TABLE orders TO '/tmp'", "SELECT id INTO x FROM orders",
    # code
    "SELECT TRANSFORM(id) USING 'sh -c id' FROM orders",
    "SELECT TRANSFORM(id) USING 'sh -c id' AS (x STRING) FROM orders",
    "FROM orders MAP id USING 'cat'", "FROM orders REDUCE id USING 'cat'",
    "MAP id USING 'cat' FROM orders",
    "SELECT TRANSFORM(id) ROW FORMAT SERDE 'a.B' USING 'cat' FROM orders",
    "SELECT reflect('java.lang.System', 'getenv', 'HOME') AS x FROM orders",
    "SELECT REFLECT/**/('java.lang.System', 'getenv') AS x FROM orders",
    "SELECT try_reflect('java.lang.System', 'getenv') AS x FROM orders",
    "SELECT java_method('java.lang.System', 'exit', 0) AS x FROM orders",
    "SELECT Java_Method('java.lang.Runtime', 'getRuntime') AS x FROM orders",
    "SELECT `reflect`('java.lang.System', 'getenv') AS x FROM orders",
    "SELECT system.builtin.reflect('java.lang.System', 'getenv') AS x FROM orders",
    "SELECT id FROM orders WHERE reflect('a', 'b') = 'c'",
    "SELECT id FROM orders ORDER BY reflect('a', 'b')",
    "SELECT COUNT(*) AS n FROM orders GROUP BY reflect('a', 'b')",
    "SELECT SUM(id) OVER (PARTITION BY reflect('a', 'b')) AS x FROM orders",
    "SELECT transform(array(1), x -> reflect('a', 'b')) AS x FROM orders",
    "SELECT CASE WHEN TRUE THEN reflect('a', 'b') END AS x FROM orders",
    "SELECT * FROM orders LATERAL VIEW explode(array(reflect('a', 'b'))) t AS x",
    "SELECT * FROM orders JOIN customers ON reflect('a', 'b') = name",
    "CREATE TEMPORARY FUNCTION f AS 'com.example.F'",
    "CREATE FUNCTION f AS 'a.B' USING JAR '/tmp/x.jar'",
    "CREATE FUNCTION f() RETURNS INT RETURN 1",
    "SELECT my_udf(id) AS x FROM orders", "SELECT hive.f(id) AS x FROM orders",
    "ADD JAR '/tmp/x.jar'", "ADD FILE '/etc/passwd'", "ADD ARCHIVE '/tmp/x.zip'", "LIST JARS",
    "SELECT xpath_string('<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>', 'a') AS x FROM orders",
    "SELECT from_xml(name, 'a STRING') AS x FROM customers",
    "SELECT schema_of_json(name) AS x FROM customers",
    "SELECT aes_decrypt(name, 'k') AS x FROM customers",
    "SELECT raise_error('x') AS x FROM orders", "SELECT assert_true(FALSE) AS x FROM orders",
    "SELECT ai_query('model', name) AS x FROM customers", "SELECT http_get('http://127.0.0.1') AS x FROM orders",
    # the session and the machine
    "SET spark.sql.runSQLOnFiles = true", "SET", "RESET", "SET TIME ZONE LOCAL", "USE default",
    "SET VAR x = 1", "DECLARE VARIABLE x INT", "BEGIN SET x = 1; END", "BEGIN SELECT 1; END",
    "SELECT current_user() AS x FROM orders", "SELECT current_user AS x FROM orders", "SELECT user() AS x FROM orders",
    "SELECT session_user() AS x FROM orders", "SELECT current_database() AS x FROM orders",
    "SELECT current_schema() AS x FROM orders", "SELECT current_catalog() AS x FROM orders",
    "SELECT input_file_name() AS x FROM orders", "SELECT input_file_block_start() AS x FROM orders",
    "SELECT spark_partition_id() AS x FROM orders", "SELECT monotonically_increasing_id() AS x FROM orders",
    "SELECT version() AS x FROM orders", "SELECT current_timezone() AS x FROM orders",
    "SELECT '${env:HOME}' AS x FROM orders", "SELECT ${system:user.name} AS x FROM orders",
    "SELECT `${env:HOME}` AS x FROM orders", "SELECT id AS `${spark.app.name}` FROM orders",
    "SELECT '$\\u007Benv:HOME}' AS x FROM orders",
    "SELECT '${en' 'v:HOME}' AS x FROM orders",
    "SELECT :x AS x FROM orders", "SELECT ? AS x FROM orders", "SELECT @x AS x FROM orders",
    "SELECT @@version AS x FROM orders", "SELECT {{ x }} AS x FROM orders",
    "SHOW TABLES", "SHOW FUNCTIONS", "DESCRIBE orders", "DESCRIBE FUNCTION reflect", "EXPLAIN SELECT 1",
    "CACHE TABLE orders", "REFRESH '/etc'", "ANALYZE TABLE orders COMPUTE STATISTICS", "MSCK REPAIR TABLE orders",
    "GRANT ALL ON orders TO x", "CALL p()", "KILL 1", "!ls", "source /etc/passwd",
    # tables that are none, hints, and what hangs on a table
    "SELECT * FROM range(1000000000000)", "SELECT * FROM explode(array(1))", "SELECT * FROM nowhere",
    "SELECT /*+ BROADCAST(orders) */ * FROM orders", "SELECT /*+ RANGE_JOIN(orders, 1) */ id FROM orders",
    "SELECT * FROM orders TABLESAMPLE (10 PERCENT)", "SELECT * FROM orders VERSION AS OF 1",
    "SELECT * FROM orders TIMESTAMP AS OF '2020-01-01'", "SELECT * FROM orders@v1",
    "SELECT * FROM orders PIVOT (SUM(id) FOR amount IN (1, 2))", "SELECT * FROM orders FOR UPDATE",
    "SELECT * FROM orders DISTRIBUTE BY id", "SELECT id FROM orders |> SELECT id",
    "SELECT * FROM orders WITH (path = '/etc/passwd')", "SELECT * FROM STREAM orders", "SELECT * FROM STREAM(orders)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r",
    "WITH orders AS (SELECT 1 AS a) SELECT * FROM orders",
    "SELECT y FROM orders LATERAL VIEW explode(array(1)) `e AS y JOIN text.``/etc/passwd`` --` AS y",
    "SELECT * FROM orders AS `o JOIN text.``/etc/passwd`` AS x --` JOIN nowhere",
    # several statements in one
    "SELECT id FROM orders; SET x = 1", "SELECT id FROM orders; SELECT * FROM text.`/etc/passwd`",
    "SELECT id FROM orders;\nDROP TABLE orders", "; SET x = 1", "SELECT 1 /* ; */ ; ADD JAR '/x'",
    # text that two parsers might read differently
    "SELECT id /* /* */ FROM orders */ FROM text.`/etc/passwd`",
    "SELECT id FROM orders -- \n FROM text.`/etc/passwd`",
    "SELECT 'a\\x27' AS x FROM orders", "SELECT 'a\\0' AS x FROM orders", "SELECT id FROM orders\x00",
    "SELECT id FROM orders WHERE name = 'a'' UNION SELECT value FROM text.`/etc/passwd` --'",
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_as_a_query(attack):
    with pytest.raises(ProgramError) as refused:
        check_query(attack, COLLECTIONS)
    assert refused.value.troubles


@pytest.mark.parametrize("how", ["", "REFRESH FULL "])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_inside_of_a_view(attack, how):
    with pytest.raises(ProgramError):
        parse(f"{TABLES}CREATE MATERIALIZED VIEW v {how}AS {attack}")


@pytest.mark.parametrize(
    "attack", [each for each in ATTACKS if not each.startswith("CREATE TABLE v (")]
)
def test_an_attack_is_refused_as_a_statement_of_a_program(attack):
    with pytest.raises(ProgramError):
        parse(f"{TABLES}{attack};")


HARMLESS = [
    "SELECT 'a\\' FROM text.`/etc/passwd` -- ' AS x FROM orders",
    "SELECT * FROM orders",
    "SELECT o.id, c.name FROM orders AS o JOIN customers AS c ON o.id = c.id WHERE c.name LIKE 'a%'",
    "WITH c AS (SELECT id FROM orders) SELECT COUNT(*) AS n FROM c",
    "SELECT 'DROP TABLE orders; -- text.`/etc/passwd`' AS x FROM orders",
    "SELECT id AS `reflect('a', 'b')` FROM orders",
]
DANGERS = ("reflect(", "java_method(", "using '", "set ", "add jar", "text.", "input_file", "${")


def test_what_an_attack_talks_about_is_harmless_as_a_value():
    for sql in HARMLESS:
        assert check_query(sql, COLLECTIONS)


def test_thousands_of_mutated_attacks_are_refused_or_have_lost_their_sting():
    """What passes, passes as text of ours that names none of the dangers outside of quotes."""
    chance = random.Random(SEED)
    passed = 0
    for _ in range(MUTATIONS):
        text = mutated(chance, chance.choice(ATTACKS), chance.choice(ATTACKS + HARMLESS))
        try:
            safe = check_query(text, COLLECTIONS)
        except ProgramError:
            continue
        passed += 1
        bare = unquoted(safe).casefold()
        assert safe.startswith(("SELECT ", "WITH ", "(")), text
        assert ";" not in bare, text
        assert not [each for each in DANGERS if each in bare], f"{text!r} became {safe!r}"
    assert passed < MUTATIONS / 4


def mutated(chance, attack, other):
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(attack))
        to, cut = at + chance.randint(0, 6), chance.randint(0, len(other))
        before, here, after = attack[:at], attack[at:to], attack[to:]
        attack = chance.choice(
            [
                before + after,
                before + chance.choice(" \n\t()`'\";,.*/-+\\") + here + after,
                before + here.swapcase() + after,
                before + "/**/" + here + after,
                before + other[cut : cut + 12] + here + after,
                attack.replace("text.", chance.choice(["", "orders.", "`"]), 1),
            ]
        )
    return attack


def unquoted(text):
    """The text without what is in quotes; a quote inside is doubled or has a backslash."""
    kept, inside, place = [], "", 0
    while place < len(text):
        at = text[place]
        if inside and at == "\\" and inside == "'":
            place += 1
        elif inside:
            inside = "" if at == inside else inside
        elif at in "'`":
            inside = at
            kept.append("'")
        else:
            kept.append(at)
        place += 1
    return "".join(kept)
