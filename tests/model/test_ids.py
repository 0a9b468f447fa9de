"""Tests of names, keys and ids (X1)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from strandline.errors import NameRefusedError
from strandline.model.ids import (
    SeqNo,
    printable,
    valid_id,
    valid_key,
    valid_name,
    valid_prefix,
)

BAD = [
    "",
    "../x",
    "a/b",
    "a b",
    ".a",
    "a.",
    "a..b",
    "-a",
    "1a",
    "a\n",
    "a\0",
    "é",
    "\uff41",
    "x" * 129,
]


@pytest.mark.parametrize("name", ["a", "_a", "Orders-2", "shop.orders", "a.b.c.d", "x" * 128])
def test_good_names(name: str) -> None:
    assert valid_name(name) == name


@pytest.mark.parametrize("name", [*BAD, "'; drop table versions --", None, 7, b"a"])
def test_bad_names_are_refused_and_shown_harmlessly(name: object) -> None:
    with pytest.raises(NameRefusedError) as caught:
        valid_name(name, "hold")
    assert "hold name" in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("key", ["shard/orders", "s1/w2/x.parquet", "pulse/0"])
def test_good_keys(key: str) -> None:
    assert valid_key(key) == key
    assert valid_prefix(key[:3]) == key[:3]
    assert valid_prefix("") == ""
    assert valid_prefix("shard/") == "shard/"


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/../b", "../a", "a/.b", "a\\b", "a/", "ä"])
def test_bad_keys_are_refused(key: str) -> None:
    with pytest.raises(NameRefusedError):
        valid_key(key)


def test_ids_are_ours_or_refused() -> None:
    good = "s" + "0" * 31 + "f"
    assert valid_id(good, "s") == good
    for bad in (good[:-1], good.upper(), "w" + good[1:], good + "0"):
        with pytest.raises(NameRefusedError):
            valid_id(bad, "s")


@given(st.text())
def test_x16_what_is_printed_is_one_printable_line(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text)) <= 80


def test_seqnos_count_and_print() -> None:
    assert str(SeqNo(7)) == "v7"
    assert SeqNo(7).next() == SeqNo(8) > SeqNo(7)
