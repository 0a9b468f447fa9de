"""Every kind of error ends with the right code and a next step."""

from __future__ import annotations

import pytest

from strandline import errors as e
from strandline.cli.advice import exit_code, next_step


@pytest.mark.parametrize(
    ("error", "code", "step"),
    [
        (e.NotFoundError("x"), 2, "strandline shards ./lake"),
        (e.SinceError("x"), 2, "strandline history ./lake orders"),
        (e.SchemaError("x"), 2, ""),
        (e.NewerFormatError("x"), 1, "upgrade strandline"),
        (e.CorruptionError("x"), 1, "strandline fsck ./lake"),
        (e.ReplicaDivergedError("x"), 1, "strandline fsck ./lake"),
        (e.LeaseLostError("x"), 1, "run it again"),
        (e.NotAppliedError("x"), 1, "strandline doctor ./lake"),
        (e.ConflictError("x"), 1, ""),
    ],
)
def test_an_error_has_a_code_and_a_next_step(error, code, step):
    assert exit_code(error) == code
    found = next_step(error, "./lake", "orders", found=True)
    assert found.startswith(step)
    assert bool(found) == bool(step)


def test_without_a_store_there_are_no_shards_to_list():
    step = next_step(e.NotFoundError("x"), "./lake", None, found=False)
    assert "strandline.open()" in step


def test_a_shard_that_was_not_named_is_left_open():
    assert next_step(e.SinceError("x"), "./lake", None, found=True).endswith("SHARD")
