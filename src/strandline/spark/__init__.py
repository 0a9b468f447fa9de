"""Spark as the data plane: the only package that imports pyspark.

confs     pure   the settings that were measured to matter, and what they did
java      shell  finds the Java that Spark would run, before Spark does
runtime   pure   what is known of a Java or a pyspark, and what is wrong with it
sessions  shell  builds a session, or prepares one that the user has

The names below are public; `__all__` follows from the table, and a test compares the two. Nothing
of pyspark is loaded before one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.exports import lazy as _lazy

if TYPE_CHECKING:
    from strandline.spark.sessions import (
        register as register,
        session as session,
    )

_HOMES = {
    "register": "strandline.spark.sessions",
    "session": "strandline.spark.sessions",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy(__name__, _HOMES)
