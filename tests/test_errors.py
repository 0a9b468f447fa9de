"""The tree in the docstring is the tree of classes, and an invariant says which rule broke."""

import inspect
import re
from pathlib import Path

import pytest

from strandline import errors
from strandline.errors import InvariantError, SinceError, StrandlineError, invariant

ROOT = Path(__file__).parents[1]
CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, StrandlineError)
}


def drawn() -> dict[str, str | None]:
    """Each class of the drawing with the class that it hangs from."""
    parents: dict[int, str] = {}
    tree: dict[str, str | None] = {}
    for line in str(errors.__doc__).splitlines():
        if found := re.match(r"^( {4}[│├└─ ]*)(\w+Error)\b", line):
            depth = (len(found[1]) - 4) // 4
            parents[depth] = found[2]
            tree[found[2]] = parents.get(depth - 1)
    return tree


def test_s92_the_drawing_is_the_tree():
    assert drawn() == {
        name: None if kind is StrandlineError else kind.__bases__[0].__name__
        for name, kind in CLASSES.items()
    }


def test_s92_every_error_that_the_docs_name_is_raised_somewhere():
    told = " ".join(page.read_text() for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
    named = set(re.findall(r"\b[A-Z]\w+Error\b", told))
    code = " ".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    raised = {name for name in CLASSES if re.search(rf"(?<!class )\b{name}\(", code)}
    assert named, "the pages were not found"
    assert named - raised == set()


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_says_what_it_means(name):
    assert CLASSES[name].__doc__


def test_a_since_error_carries_the_oldest_readable_time():
    assert SinceError("too old", oldest=7).oldest == 7
    assert SinceError("too old").oldest is None


def test_a_broken_rule_stops_with_its_name():
    invariant([1], "R0: holds")
    with pytest.raises(InvariantError, match="R0: broken"):
        invariant([], "R0: broken")
