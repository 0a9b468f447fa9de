"""Reasons: the kind of trouble with values, and nothing for trouble of another kind."""

from __future__ import annotations

import pytest

from strandline.pipeline.meaning import DIVISION, MISFIT
from strandline.spark.reasons import reason_for

ABORTED = "[STAGE_FAILED] Job aborted: [REMAINDER_BY_ZERO] Remainder by zero. SQLSTATE: 22012"


@pytest.mark.parametrize(
    ("condition", "state", "text", "reason"),
    [
        ("DIVIDE_BY_ZERO", "22012", "", DIVISION),
        ("REMAINDER_BY_ZERO", "22012", "", DIVISION),
        ("ARITHMETIC_OVERFLOW", "22003", "", MISFIT),
        ("CAST_INVALID_INPUT", "22018", "", MISFIT),
        ("NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION", "22003", "", MISFIT),
        ("INVALID_ARRAY_INDEX", "22003", "", "INVALID_ARRAY_INDEX"),
        ("USER_RAISED_EXCEPTION", "P0001", "", "USER_RAISED_EXCEPTION"),
        ("STAGE_FAILED", "XXKDA", ABORTED, DIVISION),
        (None, None, ABORTED, DIVISION),
        ("TABLE_OR_VIEW_NOT_FOUND", "42P01", "", None),
        (None, None, "Connection refused", None),
    ],
)
def test_reasons_are_kinds_of_trouble(condition, state, text, reason):
    assert reason_for(condition, state, text) == reason
