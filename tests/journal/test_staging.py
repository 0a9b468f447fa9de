"""Objects that records refer to are what the records say, or are refused by name (S59)."""

from __future__ import annotations

import pytest

from strandline.errors import CorruptionError, NewerFormatError
from strandline.journal.log import Journal
from strandline.journal.staging import (
    INLINE_MAX,
    fetch,
    load_snapshot,
    program_record,
    program_text,
    put_snapshot,
    snapshots,
    stage,
)
from strandline.testing.damage import DamagedBlob
from strandline.testing.journals import founded
from strandline.testing.lab import Lab


def damaged_env(lab: Lab):
    env = lab.env()
    object.__setattr__(env, "blob", DamagedBlob(env.blob))
    return env


def test_what_was_staged_is_there_with_its_digest(lab: Lab) -> None:
    env = lab.env()
    ref = stage(env, "shop", b"rows", rows=2)
    assert (ref.rows, ref.size, ref.key.startswith("journal/shop/")) == (2, 4, True)
    assert fetch(env, "shop", ref) == b"rows"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda blob, key: blob.flip_bit(key, 3), "damaged"),
        (lambda blob, key: blob.cut(key, -1), "damaged"),
        (lambda blob, key: blob.replace(key, b"sowr"), "damaged"),
        (lambda blob, key: blob.lose(key), "missing"),
    ],
)
def test_a_staged_object_that_is_not_what_was_sealed_is_named(lab: Lab, harm, message) -> None:
    env = damaged_env(lab)
    ref = stage(env, "shop", b"rows")
    harm(env.blob, ref.key)
    with pytest.raises(CorruptionError, match=f"{ref.key} of pipeline shop is {message}"):
        fetch(env, "shop", ref)


@pytest.mark.parametrize(
    ("size", "inline"), [(10, True), (INLINE_MAX, True), (INLINE_MAX + 1, False)]
)
def test_a_long_program_is_staged(lab: Lab, size, inline) -> None:
    env = lab.env()
    record = program_record(env, "shop", "p1", "x" * size)
    assert (record.text is not None, record.staged is None) == (inline, inline)
    assert program_text(env, "shop", record) == "x" * size


def test_a_staged_program_that_is_no_text_is_refused(lab: Lab) -> None:
    env = lab.env()
    record = program_record(env, "shop", "p1", "x" * (INLINE_MAX + 1))
    wrong = type(record)("p1", None, stage(env, "shop", b"\xff\xfe"))
    with pytest.raises(CorruptionError, match="p1 of pipeline shop is no text"):
        program_text(env, "shop", wrong)


def test_a_snapshot_comes_back_and_belongs_to_its_record(lab: Lab) -> None:
    env = damaged_env(lab)
    standing = founded(Journal(env, "shop"))
    ref = put_snapshot(env, standing)
    lsn = standing.lsn + 1
    assert load_snapshot(env, "shop", lsn, ref) == standing
    assert snapshots(env, "shop") == {ref.key: lsn}
    for pipeline, number in (("shop", lsn + 1), ("other", lsn)):
        with pytest.raises(CorruptionError, match=f"checkpoint #{number} of pipeline {pipeline}"):
            load_snapshot(env, pipeline, number, ref)
    env.blob.lose(ref.key)
    with pytest.raises(CorruptionError, match=f"checkpoint #{lsn} of pipeline shop .* missing"):
        load_snapshot(env, "shop", lsn, ref)


def test_a_snapshot_of_a_newer_format_is_not_taken_for_damage(lab: Lab) -> None:
    env = lab.env()
    ref = put_snapshot(env, founded(Journal(env, "shop")))
    data = env.blob.get(ref.key)
    newer = stage(env, "shop", data[:4] + (2).to_bytes(2, "big") + data[6:])
    with pytest.raises(NewerFormatError, match="upgrade"):
        load_snapshot(env, "shop", 4, newer)
