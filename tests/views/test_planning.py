"""Views planned: each checked, linear or full, and hashed with whatever it can see."""

from __future__ import annotations

import pytest

from strandline.views.parse import parse

TABLES = """
CREATE TABLE t (k INT, v STRING, PRIMARY KEY (k)) USING http;
CREATE TABLE u (a INT, b STRING) USING http;
"""


def view(query, tables=TABLES, how=""):
    return parse(f"{tables}CREATE MATERIALIZED VIEW w {how}AS {query}").view("w")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT k FROM t", "select  k\nfrom t -- all of it"),
        ("SELECT k FROM t", "SELECT K AS k FROM T AS x"),
        ("SELECT k, v FROM t", "SELECT * FROM t"),
        ("SELECT k FROM t WHERE k > 1", "WITH c AS (SELECT * FROM t) SELECT k FROM c WHERE k > 1"),
        ("SELECT k AS a FROM t", "SELECT a FROM (SELECT k AS a, v FROM t) AS x"),
    ],
)
def test_how_a_linear_query_is_written_has_no_say_in_its_hash(one, other):
    if "K AS k" in other:
        assert view(one).sql == view(other).sql
    assert view(one).plan_hash == view(other).plan_hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT COUNT(*) AS n FROM t", "select count(*) n\nfrom t /* all */"),
        ("SELECT k FROM t GROUP BY k", "SELECT\tk FROM t group by (k)".replace("(k)", "k")),
    ],
)
def test_how_keywords_of_a_full_query_are_written_has_no_say_in_its_hash(one, other):
    full = "REFRESH FULL "
    assert view(one, how=full).plan_hash == view(other, how=full).plan_hash


@pytest.mark.parametrize(
    "other", ["SELECT k + 1 AS k FROM t", "SELECT k AS K FROM t", "SELECT a AS k FROM u"]
)
def test_another_meaning_has_another_hash(other):
    assert view("SELECT k FROM t").plan_hash != view(other).plan_hash


def test_a_column_that_is_added_moves_only_the_views_that_see_it():
    wider = TABLES.replace("v STRING", "v STRING, z STRING")
    for query, same in [("SELECT k FROM t", True), ("SELECT * FROM t", False)]:
        assert (view(query).plan_hash == view(query, wider).plan_hash) is same
    counted = "SELECT COUNT(*) AS n FROM t"
    full = "REFRESH FULL "
    assert view(counted, how=full).plan_hash == view(counted, wider, full).plan_hash


def test_another_type_moves_a_view():
    other = TABLES.replace("k INT", "k BIGINT")
    assert view("SELECT k FROM t").plan_hash != view("SELECT k FROM t", other).plan_hash


def test_a_view_moves_with_the_view_that_it_reads():
    def stacked(condition):
        below = f"CREATE MATERIALIZED VIEW x AS SELECT k FROM t WHERE {condition};"
        return view("SELECT k FROM x", TABLES + below)

    assert stacked("k > 1").sql == stacked("k > 2").sql
    assert stacked("k > 1").plan_hash != stacked("k > 2").plan_hash


def test_a_view_that_asks_for_the_time_says_so():
    full = "REFRESH FULL "
    assert view("SELECT k, now() AS n FROM t", how=full).uses_now
    assert not view("SELECT k FROM t", how=full).uses_now


def test_linear_is_full_if_the_words_are_said():
    found = view("SELECT k FROM t", how="REFRESH FULL ")
    assert (found.kind, found.branches) == ("full", ())


@pytest.mark.parametrize("query", ["SELECT k, v FROM t", "SELECT k AS k, 10 / k AS q FROM t"])
def test_both_kinds_of_one_query_share_no_shard(query):
    linear, full = view(query), view(query, how="REFRESH FULL ")
    assert linear.plan_hash != full.plan_hash


@pytest.mark.parametrize(
    ("query", "sees"),
    [
        ("SELECT v FROM t", {"t": ("k", "v")}),
        ("SELECT k FROM t", {"t": ("k",)}),
        ("SELECT * FROM t", {"t": ("k", "v")}),
        ("SELECT a FROM u UNION ALL SELECT k AS a FROM t", {"t": ("k",), "u": ("a",)}),
    ],
)
def test_a_view_sees_keys_and_what_its_query_names(query, sees):
    assert view(query).sees == sees


def test_another_type_of_a_key_moves_a_view_whose_errors_tell_of_it():
    other = TABLES.replace("k INT", "k BIGINT")
    assert view("SELECT v FROM t").plan_hash != view("SELECT v FROM t", other).plan_hash
