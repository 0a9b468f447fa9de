"""Public names that are imported when they are first used.

A package lists its names and their homes once. Typing tools read the imports beside the list;
at run time nothing is loaded before it is asked for, so `import strandline` costs milliseconds.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, for names that live in the modules `homes` gives.

    A name is bound in the package on first use, so that later uses cost nothing extra.
    """

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted(homes)
