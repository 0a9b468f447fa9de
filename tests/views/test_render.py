"""A program back to text that parses to the same program."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.views.declared import Table
from strandline.views.parse import parse
from strandline.views.program import Program
from strandline.views.render import render
from strandline.views.troubles import Refused

PROGRAMS = [
    "CREATE TABLE t (`a b` INT, `c``d` MAP<STRING, ARRAY<STRUCT<`x y`: TIME>>>) USING http",
    """CREATE TABLE t (k INT, s STRING, PRIMARY KEY (k, s)) USING files
       OPTIONS (path 'it\\'s \\\\ here\\n', sequenceBy 's', onError 'fail', envelope 'upsert');
       CREATE MATERIALIZED VIEW v AS WITH w AS (SELECT * FROM t WHERE k > 1 OR s = 'a\\'b')
         SELECT K, K + 1 AS n FROM w AS x WHERE x.k IS NULL OR s LIKE '%\\_'
         UNION ALL SELECT k, k FROM u;
       CREATE MATERIALIZED VIEW u AS SELECT k FROM T
         WHERE NOT (k < 1 AND k > -5) AND k - (1 - k) = 2;
       CREATE MATERIALIZED VIEW f REFRESH FULL AS
         SELECT s, COUNT(*) AS n, MAX(now()) AS m FROM T GROUP BY s ORDER BY n DESC LIMIT 3;
       CREATE SINK o FROM f USING files OPTIONS (path 'x');""",
]


@pytest.mark.parametrize("text", PROGRAMS)
def test_text_and_program_are_worth_each_other(text):
    program = parse(text)
    written = render(program)
    again = parse(written)
    assert again.hash == program.hash
    assert again.tables == program.tables
    assert again.views == program.views
    assert again.sinks == program.sinks
    assert render(again) == written


def test_a_type_that_sql_has_no_words_for_is_refused():
    program = Program.of([Table("t", pa.schema([("k", pa.uint64())]), "http")])
    with pytest.raises(Refused, match="no type uint64"):
        render(program)
