"""The public names are `__all__` of strandline, its faces below, and nothing else."""

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

FACES = ["strandline", "strandline.ingest", "strandline.spark", "strandline.testing"]


def typed_names(module: ModuleType) -> dict[str, str]:
    """What typing tools see: each name imported from our own modules, with its home."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("strandline.")
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    }


@pytest.mark.parametrize("face", FACES)
def test_the_public_names_are_exactly_all(face):
    module = importlib.import_module(face)
    assert sorted(module.__all__) == sorted(set(module.__all__)), "a name is listed twice"
    assert sorted(dir(module)) == sorted(module.__all__), f"dir({face}) is not its __all__"


@pytest.mark.parametrize("face", FACES)
def test_typing_tools_and_the_run_time_see_the_same_names(face):
    module = importlib.import_module(face)
    typed = typed_names(module)
    assert sorted(typed) == sorted(module.__all__), "the imports and the table of names differ"
    for name, home in typed.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name), name


@pytest.mark.parametrize("face", FACES)
def test_a_name_that_is_not_public_is_refused_by_name(face):
    with pytest.raises(AttributeError, match=f"module '{face}' has no attribute 'opne'"):
        _ = importlib.import_module(face).opne
