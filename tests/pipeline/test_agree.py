"""Digests agree only if both sides name the same things and mean the same rows."""

from __future__ import annotations

import pytest

from strandline.journal import record as r
from strandline.journal.sealed import Sealed
from strandline.model.digest import Digest
from strandline.pipeline.agree import (
    differences,
    divergence,
    packed,
    same_versions,
    unfinished,
    unpacked,
    unreadable,
    versions_text,
)

ONE, TWO = Digest(1, 5, 7), Digest(1, 5, 8)


@pytest.mark.parametrize(
    ("recorded", "computed", "phrases"),
    [
        ({}, {}, []),
        ({"a": ONE}, {"a": ONE}, []),
        ({"a": ONE}, {"a": TWO}, ["a is 1:"]),
        ({"a": ONE, "b": ONE}, {"a": ONE}, ["b is recorded"]),
        ({"a": ONE}, {"a": ONE, "c": ONE}, ["c was computed"]),
        ({"b": ONE}, {"c": ONE}, ["b is recorded", "c was computed"]),
        ({"a": Digest.ZERO}, {}, ["a is recorded"]),
    ],
)
def test_differences_are_named(
    recorded: dict[str, Digest], computed: dict[str, Digest], phrases: list[str]
) -> None:
    found = differences("endpoint", recorded, computed)
    assert len(found) == len(phrases)
    for sentence, phrase in zip(found, phrases, strict=True):
        assert sentence.startswith("endpoint ")
        assert phrase in sentence


def test_digests_survive_the_record() -> None:
    digests = {"b": ONE, "a": TWO}
    assert unpacked(packed(digests)) == digests
    assert list(packed(digests)) == ["a", "b"]


def test_the_error_names_pipeline_time_and_both_digests() -> None:
    text = divergence("shop", 7, differences("view", {"v": ONE}, {"v": TWO}))
    for phrase in ("pipeline shop", "transaction 7", "view v", str(ONE), str(TWO)):
        assert phrase in text


def test_versions_are_equal_only_as_a_whole() -> None:
    assert same_versions({"spark": "4.3"}, {"spark": "4.3"})
    assert not same_versions({"spark": "4.3"}, {"spark": "4.3", "arrow": "26"})


def test_versions_are_told_in_one_order() -> None:
    assert versions_text({"spark": "4.3", "arrow": "26"}) == "arrow 26, spark 4.3"
    assert versions_text({}) == "no versions"


def test_who_can_t_finish_names_who_can() -> None:
    text = unfinished("shop", 7, ({"spark": "4.2"}, {"spark": "4.3"}), ["collection v is gone"])
    for phrase in ("pipeline shop", "7", "spark 4.2, and", "spark 4.3, can't", "collection v"):
        assert phrase in text
    assert text.endswith("Finish 7 with a replica of those versions")


@pytest.mark.parametrize(
    ("endpoint", "answered", "phrase"),
    [
        ("orders", False, "transaction amend STORE 7 orders --empty --reason TEXT --name shop"),
        ("", False, "transaction amend STORE 7 ENDPOINT --empty"),
        ("orders", True, "It is answered, so it can't be amended"),
    ],
)
def test_rows_that_are_gone_come_with_the_next_command(
    endpoint: str, *, answered: bool, phrase: str
) -> None:
    answer = r.Answer(7, 1, {}, {}, {}) if answered else None
    sealed = Sealed(r.Begin(7, 1, "p", 0, {}, None), (), answer=answer)
    text = unreadable("shop", sealed, endpoint, "a.json was taken")
    assert "pipeline shop: transaction 7 can't be computed: a.json was taken" in text
    assert phrase in text
    assert ("strandline transaction amend" in text) != answered
