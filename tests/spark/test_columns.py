"""Columns that a table takes, and the words in which others are refused."""

import pyarrow as pa
import pytest

from strandline.errors import SchemaError, UsageError
from strandline.model.schema import Schema
from strandline.spark.columns import check_key, check_names, check_types, names_in

SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",))


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("op", {"op"}),
        ("op = 'D'", {"op"}),
        ("`my col` > 1", {"my col"}),
        ("Lower(OP) = \"x y\"", {"lower", "op"}),
        ("a.b + 'it''s c'", {"a", "b"}),
        ("Column<'(flag = true)'>", {"column"}),
    ],
)
def test_names_in_an_expression_are_found_and_text_is_not(expression, names):
    assert names_in(expression) == names


@pytest.mark.parametrize(
    ("have", "used", "refused"),
    [
        (["k", "v"], (), None),
        (["v", "k"], (), None),
        (["k", "v", "op"], {"op"}, None),
        (["k", "v", "OP"], {"op"}, None),
        (["k"], (), "lack 'v'"),
        (["k", "v", "op"], (), "no column 'op'"),
        (["k", "v", "v"], (), "several columns 'v'"),
    ],
)
def test_columns_are_refused_by_name(have, used, refused):
    if refused is None:
        check_names(have, SCHEMA.names, used=used)
        return
    with pytest.raises(SchemaError, match=refused):
        check_names(have, SCHEMA.names, used=used)


@pytest.mark.parametrize(
    ("kind", "fits"),
    [(pa.int32(), True), (pa.int64(), True), (pa.string(), False), (pa.float64(), False)],
)
def test_a_type_with_values_that_do_not_fit_is_refused_before_anything_runs(kind, fits):
    have = pa.schema([("k", kind), ("v", pa.string())])
    if fits:
        check_types(have, SCHEMA, SCHEMA.names)
        return
    with pytest.raises(SchemaError, match="column 'k'"):
        check_types(have, SCHEMA, SCHEMA.names)


def test_a_key_that_is_not_the_tables_is_refused():
    check_key(SCHEMA, None, "t")
    check_key(SCHEMA, ["k"], "t")
    with pytest.raises(UsageError, match="has the key 'k', not 'v'"):
        check_key(SCHEMA, ["v"], "t")
    with pytest.raises(UsageError, match="has no key"):
        check_key(Schema.create(SCHEMA.arrow()), None, "t")
    own = Schema.create(pa.schema([("k", pa.int64()), ("_order0", pa.int64())]), ("k",))
    with pytest.raises(SchemaError, match="_order0"):
        check_key(own, None, "t")
