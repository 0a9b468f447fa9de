"""Errors on their way through Spark: ours come out as themselves, others are left alone."""

import pytest

from strandline import errors
from strandline.spark.relay import unwrapped, wrapped

SPARKS = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\nstrandline.spark.relay.TaskFailedError: {}\n SQLSTATE: 3'
)


@pytest.mark.parametrize(
    "error",
    [
        errors.SchemaError("no column 'x'"),
        errors.CorruptionError("two\nlines [and] brackets"),
        errors.SinceError("too old", oldest=7),
        errors.NotFoundError("not here"),
    ],
)
def test_an_error_of_ours_comes_out_of_sparks_text_as_itself(error):
    found = unwrapped(SPARKS.format(wrapped(error)))
    assert type(found) is type(error)
    assert str(found) == str(error)


def test_what_is_not_ours_is_left_alone():
    assert unwrapped("java.lang.OutOfMemoryError: [strandline] is not a mark") is None


def test_a_class_that_this_version_does_not_know_is_still_named():
    found = unwrapped("[strandline:NewerKindError] what it says [/strandline]")
    assert type(found) is errors.StrandlineError
    assert str(found) == "NewerKindError: what it says"
