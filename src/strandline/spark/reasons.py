"""What Spark raises for a row, in the words that all computers use. Pure.

A row for which an expression raises is an error row of its view, and the same one whoever computes
it. So the reason is the kind of trouble and not Spark's sentence, which names values, types and
functions as this release words them. Only trouble with values counts: what says that a machine
failed is nobody's answer, and fails the transaction.
"""

from __future__ import annotations

import re

from strandline.pipeline.meaning import DIVISION, MISFIT

_BY_ZERO = frozenset({"DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO", "INTERVAL_DIVIDED_BY_ZERO"})
_MISFITS = frozenset(
    {
        "ARITHMETIC_OVERFLOW",
        "BINARY_ARITHMETIC_OVERFLOW",
        "CAST_INVALID_INPUT",
        "CAST_OVERFLOW",
        "CAST_OVERFLOW_IN_TABLE_INSERT",
        "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION",
        "INTERVAL_ARITHMETIC_OVERFLOW",
        "NUMERIC_OUT_OF_SUPPORTED_RANGE",
        "NUMERIC_VALUE_OUT_OF_RANGE",
    }
)
_MARKED = re.compile(r"\[([A-Z][A-Z0-9_]*)(?:\.[A-Z0-9_.]+)?\]")
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_DATA = ("22", "P0001")
"""SQL's class of errors that are about values, and what a query raises itself."""


def reason_for(condition: str | None, sqlstate: str | None, text: str) -> str | None:
    """Why a query raised; `None` if it is not about the values of rows.

    >>> reason_for("DIVIDE_BY_ZERO", "22012", "")
    'division by zero'
    >>> reason_for(None, None, "Job aborted … [CAST_INVALID_INPUT] The value … SQLSTATE: 22018")
    'a value does not fit its type'
    >>> reason_for("INVALID_ARRAY_INDEX.WITH_SUGGESTION", "22003", "")
    'INVALID_ARRAY_INDEX'
    """
    found = _STATE.search(text)
    state = sqlstate if _about_values(sqlstate) else found and found[1]
    if not _about_values(state):
        return None
    kind = (condition or "").partition(".")[0]
    if not _about_values(sqlstate) or not kind:
        marked = _MARKED.findall(text)
        kind = marked[-1] if marked else "UNKNOWN"
    if kind in _BY_ZERO:
        return DIVISION
    return MISFIT if kind in _MISFITS else kind


def _about_values(state: str | None) -> bool:
    return state is not None and state.startswith(_DATA)
