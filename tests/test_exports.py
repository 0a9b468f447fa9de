"""Names are imported when they are first used, and not before."""

import json
import subprocess
import sys

import pytest

from strandline.exports import lazy

HEAVY = ["duckdb", "hypothesis", "numpy", "pandas", "polars", "pyarrow", "pyspark", "rich", "typer"]


def loaded_after(statement: str) -> list[str]:
    """The heavy packages that a fresh interpreter has loaded after one statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    return sorted(set(json.loads(answer.stdout)) & set(HEAVY))


@pytest.mark.process
@pytest.mark.parametrize(
    "statement",
    [
        "import strandline",
        "import strandline; strandline.Frontier(7)",
        "from strandline import LeaseLostError",
        "import strandline.store.sqlite",
        "import strandline.heart",
        "import strandline.spark",
    ],
)
def test_a_process_that_needs_little_loads_little(statement):
    assert loaded_after(statement) == []


def test_a_name_is_found_at_home_and_bound_on_first_use(monkeypatch):
    package = type(sys)("pretend")
    monkeypatch.setitem(sys.modules, "pretend", package)
    find, names = lazy("pretend", {"sqrt": "math", "ceil": "math"})
    assert names() == ["ceil", "sqrt"]
    assert not hasattr(package, "sqrt")
    assert find("sqrt") is package.sqrt


def test_an_unknown_name_is_an_attribute_error():
    find, _ = lazy("pretend", {"sqrt": "math"})
    with pytest.raises(AttributeError, match="module 'pretend' has no attribute 'sin'"):
        find("sin")
