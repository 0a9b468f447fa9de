"""Digests agree only if both sides name the same things and mean the same rows."""

from __future__ import annotations

import pytest

from strandline.model.digest import Digest
from strandline.pipeline.agree import differences, divergence, packed, same_versions, unpacked

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
