"""The tree in the docstring is the tree of classes, and an invariant says which rule broke."""

import inspect
import re

import pytest

from strandline import errors
from strandline.errors import InvariantError, SinceError, StrandlineError, invariant

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


def test_the_drawing_is_the_tree():
    assert drawn() == {
        name: None if kind is StrandlineError else kind.__bases__[0].__name__
        for name, kind in CLASSES.items()
    }


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
