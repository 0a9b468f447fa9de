"""The house rules that a machine can check; each failure is the sentence to act on.

Every check takes the root of a tree and returns what is wrong with it, so the tests at the end
can plant each violation in a tree of their own and see it caught.
"""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "strandline"
LINES_MAX = 500

# Packages with public names: their maps hold the table of them as well.
FACES = {PACKAGE, f"{PACKAGE}.ingest", f"{PACKAGE}.spark", f"{PACKAGE}.testing"}

# Modules that only declare a port: the conformance checks of their backends test them.
PORTS = {"model.clock", "model.tasks", "model.timeline", "store.blob", "store.consensus"}

# fmt: off
AMBIENT = {
    "asyncio", "concurrent", "fcntl", "glob", "logging", "mmap", "multiprocessing", "os", "pathlib",
    "queue", "random", "secrets", "select", "shutil", "signal", "socket", "sqlite3", "subprocess",
    "tempfile", "threading", "time", "uuid",
}
PICKLES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
REFUSED = {
    "common", "data", "do", "helper", "helpers", "info", "manager", "managers", "misc",
    "process", "processes", "util", "utils",
}
# fmt: on
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
SQL = re.compile(
    r"\s*(select\b.*\b(from|where)\b|insert\s+(or\s+\w+\s+)?into\b|update\b.*\bset\b|delete\s+from\b"
    r"|(create|drop|alter)\s+(unique\s+)?(table|index|view|trigger)\b|pragma\b|attach\b)",
    re.IGNORECASE | re.DOTALL,
)
MAP_LINE = re.compile(r"^(\w+) +(pure|shell) +\S", re.MULTILINE)
MAP_FOLDER = re.compile(r"^(\w+)/ +\S", re.MULTILINE)
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
RULE = re.compile(r"\bR\d+\b")
UNNUMBERED = re.compile(r"\bTODO\b(?!\(#\d+\))|\bFIXME\b|\bXXX\b")
PRIVATE = re.compile(
    r"(?<![\w.:>-])/(?:root|work|home)/\w+|pythonhoste[d]|--(?:extra-)?index-ur[l][ =]"
)
UNREAD = {
    ".git",
    ".hypothesis",
    ".venv",
    ".venv-floor",
    ".peers",
    ".broker",
    ".reader",
    "build",
    "dist",
    "__pycache__",
}


# ---- what the checks look at


def modules(root: Path) -> dict[str, Path]:
    """Every module below the package by its dotted name, without maps (`__init__.py`)."""
    base = root / "src" / PACKAGE
    return {
        ".".join((PACKAGE, *path.relative_to(base).with_suffix("").parts)): path
        for path in sorted(base.rglob("*.py"))
        if path.name not in {"__init__.py", "__main__.py"}
    }


def packages(root: Path) -> dict[str, Path]:
    """Every folder with modules by its dotted name."""
    base = root / "src" / PACKAGE
    folders = {path.parent for path in base.rglob("*.py")}
    return {".".join((PACKAGE, *at.relative_to(base).parts)): at for at in sorted(folders)}


def purity(root: Path) -> dict[str, str]:
    """`pure` or `shell` for every module that its folder's map lists."""
    return {
        f"{package}.{name}": kind
        for package, folder in packages(root).items()
        for name, kind in MAP_LINE.findall(map_of(folder))
    }


def map_of(folder: Path) -> str:
    path = folder / "__init__.py"
    return (ast.get_docstring(parsed(path)) or "") if path.exists() else ""


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(root: Path, module: str, path: Path) -> Iterator[str]:
    """Dotted names of all that a module imports; `from package import module` is followed."""
    known = modules(root).keys() | packages(root).keys()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            home = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{home}.{alias.name}"
                yield whole if whole in known else home


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Every text file of the tree that people or git would look at."""
    for folder, inside, names in os.walk(root):
        inside[:] = sorted(at for at in inside if at not in UNREAD and not at.endswith("_cache"))
        for path in (Path(folder, name) for name in sorted(names) if name not in UNREAD):
            try:
                yield str(path.relative_to(root)), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


# ---- the checks


def maps_list_every_module_once(root: Path) -> Iterator[str]:
    for package, folder in packages(root).items():
        listed = [name for name, _ in MAP_LINE.findall(map_of(folder))]
        present = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
        for name in sorted(present - set(listed)):
            yield f"add a line `{name}  pure|shell  what it does` to the map of {package}"
        for name in sorted(set(listed) - present):
            yield f"remove {name} from the map of {package}: there is no such module"
        for name in sorted({name for name in listed if listed.count(name) > 1}):
            yield f"list {name} once in the map of {package}"
    folders = {name.split(".")[1] for name in packages(root) if "." in name}
    in_map = set(MAP_FOLDER.findall(map_of(root / "src" / PACKAGE)))
    for name in sorted(folders ^ in_map):
        verb = "add" if name in folders else "remove"
        yield f"{verb} the line `{name}/  what it holds` in the map of {PACKAGE}"


def maps_hold_nothing_else(root: Path) -> Iterator[str]:
    for package, folder in packages(root).items():
        if package in FACES or not (folder / "__init__.py").exists():
            continue
        if len(parsed(folder / "__init__.py").body) > 1:
            yield f"move the code out of {package}/__init__.py: it is a map and nothing else"


def pure_modules_import_only_pure_ones(root: Path) -> Iterator[str]:
    kinds, folders = purity(root), packages(root)
    for module, path in modules(root).items():
        if kinds.get(module) != "pure":
            continue
        for name in sorted(set(imported(root, module, path))):
            if name.split(".")[0] in AMBIENT:
                yield f"{module} is pure and imports {name}: pass the value in, or call it shell"
            elif name in folders:
                yield f"{module} imports the package {name}: import the module that it means"
            elif kinds.get(name) == "shell":
                yield f"{module} is pure and imports {name}, which is shell: turn it round"
        if any(
            isinstance(n, ast.Name) and n.id in {"open", "print"} for n in ast.walk(parsed(path))
        ):
            yield f"{module} is pure and opens files or prints: return the value instead"


def modules_are_short(root: Path) -> Iterator[str]:
    for folder in ("src", "tests", "examples", "benchmarks"):
        for path in sorted((root / folder).rglob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > LINES_MAX:
                where = path.relative_to(root)
                yield f"split {where}: {lines} lines hold two ideas (at most {LINES_MAX})"


def names_carry_meaning(root: Path) -> Iterator[str]:
    for module, path in modules(root).items():
        named = [(path.stem, "module", path.stem)]
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                kind = "class" if isinstance(node, ast.ClassDef) else "function"
                named.append((node.name, kind, f"{module}.{node.name}"))
        for name, kind, whole in named:
            yield from name_troubles(name, kind, whole)


def name_troubles(name: str, kind: str, whole: str) -> Iterator[str]:
    words = [word.lower() for word in WORD.findall(name)]
    if refused := REFUSED.intersection(words):
        yield f"rename the {kind} {whole}: `{min(refused)}` says nothing about what it is"
    if kind == "function" and words[:1] == ["handle"]:
        yield f"rename the function {whole}: say what it does instead of `handle`"
    if re.search(r"(_v|V)\d+$", name):
        yield f"rename the {kind} {whole}: a change that replaces replaces, no version in names"


def modules_have_a_test_of_their_name(root: Path) -> Iterator[str]:
    for module, path in modules(root).items():
        inside = path.relative_to(root / "src" / PACKAGE)
        test = Path("tests") / inside.parent / f"test_{inside.name}"
        if module.removeprefix(f"{PACKAGE}.") not in PORTS and not (root / test).exists():
            yield f"write {test}: {module} has no test of its name"


def rules_are_promised_and_tested(root: Path) -> Iterator[str]:
    promises = root / "docs" / "guarantees.md"
    promised = RULE.findall(promises.read_text(encoding="utf-8")) if promises.exists() else []
    tested = {
        rule
        for path in (root / "tests").rglob("test_*.py")
        if path.name != Path(__file__).name
        for rule in RULE.findall(path.read_text(encoding="utf-8"))
    }
    for module, path in modules(root).items():
        for rule in sorted(set(RULE.findall(path.read_text(encoding="utf-8")))):
            if rule not in promised:
                yield f"add {rule} to docs/guarantees.md: {module} cites it"
            if rule not in tested:
                yield f"name {rule} in the test that would catch its loss: {module} cites it"


def decisions_are_numbered_without_gaps(root: Path) -> Iterator[str]:
    names = sorted(path.name for path in (root / "docs" / "decisions").glob("*.md"))
    for expected, name in enumerate(names):
        if not re.fullmatch(rf"{expected:04d}-[a-z0-9-]+\.md", name):
            yield f"renumber docs/decisions/{name}: expected {expected:04d}-some-words.md"
            return


def leftovers_have_an_issue(root: Path) -> Iterator[str]:
    for name, text in texts(root):
        if name.endswith(".py") and UNNUMBERED.search(text):
            yield f"finish what {name} leaves to do, or give it an issue number: (#123)"


def nothing_is_pickled(root: Path) -> Iterator[str]:
    for module, path in modules(root).items():
        for name in sorted(set(imported(root, module, path))):
            if name.split(".")[0] in PICKLES:
                yield f"{module} imports {name}: encode with msgspec or Arrow, never pickle"


def sql_is_never_put_together(root: Path) -> Iterator[str]:
    for module, path in modules(root).items():
        if not module.startswith(f"{PACKAGE}.store."):
            continue
        for node in ast.walk(parsed(path)):
            if is_built_sql(node):
                yield f"{module} line {node.lineno} builds SQL from pieces: bind parameters (X2)"


def is_built_sql(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return is_sql("".join(str(getattr(piece, "value", "")) for piece in node.values))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return False
    if node.func.attr == "format":
        return isinstance(node.func.value, ast.Constant) and is_sql(node.func.value.value)
    built = isinstance(node.args[0], ast.JoinedStr | ast.BinOp | ast.Call)
    return node.func.attr in {"execute", "executemany", "executescript"} and built


def is_sql(text: object) -> bool:
    return isinstance(text, str) and SQL.match(text) is not None


def no_text_names_a_private_place(root: Path) -> Iterator[str]:
    for name, text in texts(root):
        for found in sorted(set(PRIVATE.findall(text))):
            yield f"remove `{found}` from {name}: it names a place on somebody's machine"


def links_lead_somewhere(root: Path) -> Iterator[str]:
    for name, text in texts(root):
        if name.endswith(".md"):
            for target in sorted(set(LINK.findall(text))):
                if not (root / name).parent.joinpath(target).exists():
                    yield f"mend the link to {target} in {name}: there is no such file"


CHECKS = [
    maps_list_every_module_once,
    maps_hold_nothing_else,
    pure_modules_import_only_pure_ones,
    modules_are_short,
    names_carry_meaning,
    modules_have_a_test_of_their_name,
    rules_are_promised_and_tested,
    decisions_are_numbered_without_gaps,
    leftovers_have_an_issue,
    nothing_is_pickled,
    sql_is_never_put_together,
    no_text_names_a_private_place,
    links_lead_somewhere,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_house_rules_hold(check):
    wrong = list(check(ROOT))
    assert not wrong, "\n".join(["", *wrong])


# ---- the checks themselves: a clean tree passes, and each planted violation is caught

CLEAN = {
    "src/strandline/__init__.py": '"""Map.\n\nerrors  pure  the tree\n\nstore/  bytes\n"""\n',
    "src/strandline/errors.py": '"""R1 holds."""\n',
    "src/strandline/store/__init__.py": '"""Map.\n\nblob  pure   port\ndisk  shell  files\n"""\n',
    "src/strandline/store/blob.py": '"""Port."""\nfrom strandline import errors\n',
    "src/strandline/store/disk.py": '"""Disk."""\nimport os\nfrom strandline.store import blob\n',
    "tests/test_errors.py": '"""R1."""\n',
    "tests/store/test_disk.py": '"""Disk."""\n',
    "docs/guarantees.md": "R1 is kept by test_errors.\n",
    "docs/decisions/0000-template.md": "# Template\n",
    "docs/decisions/0001-ports.md": "# Ports\n",
}
BLOB, DISK = "src/strandline/store/blob.py", "src/strandline/store/disk.py"
STORE_MAP = "src/strandline/store/__init__.py"

PLANTED = [
    (maps_list_every_module_once, "src/strandline/store/new.py", "", "to the map of strandline.st"),
    (maps_list_every_module_once, STORE_MAP, '"""disk  shell  files"""', "add a line `blob"),
    (maps_list_every_module_once, STORE_MAP, '"""gone  shell  files"""', "remove gone"),
    (
        maps_list_every_module_once,
        STORE_MAP,
        '"""blob  pure  a\nblob  pure  b"""',
        "list blob once",
    ),
    (maps_list_every_module_once, "src/strandline/views/__init__.py", "", "add the line `views/"),
    (maps_hold_nothing_else, STORE_MAP, '"""Map."""\nx = 1\n', "move the code out"),
    (pure_modules_import_only_pure_ones, BLOB, "import time", "imports time"),
    (pure_modules_import_only_pure_ones, BLOB, "from os import path", "imports os"),
    (pure_modules_import_only_pure_ones, BLOB, "def f():\n    import uuid", "imports uuid"),
    (pure_modules_import_only_pure_ones, BLOB, "import strandline.store.disk", "which is shell"),
    (pure_modules_import_only_pure_ones, BLOB, "from strandline.store import disk", "is shell"),
    (pure_modules_import_only_pure_ones, BLOB, "from strandline.store.disk import x", "is shell"),
    (pure_modules_import_only_pure_ones, BLOB, "from . import disk", "which is shell"),
    (pure_modules_import_only_pure_ones, BLOB, "from .disk import x", "which is shell"),
    (pure_modules_import_only_pure_ones, BLOB, "from strandline import x", "imports the package"),
    (pure_modules_import_only_pure_ones, BLOB, "x = open('x')", "opens files"),
    (modules_are_short, BLOB, "x = 1\n" * 501, "501 lines"),
    (modules_are_short, "tests/store/test_disk.py", "x = 1\n" * 501, "501 lines"),
    (names_carry_meaning, "src/strandline/store/disk_utils.py", "", "rename the module disk_utils"),
    (names_carry_meaning, DISK, "class DiskManager: ...", "rename the class"),
    (names_carry_meaning, DISK, "def load_data(): ...", "rename the function"),
    (names_carry_meaning, DISK, "def handle_reply(): ...", "instead of `handle`"),
    (names_carry_meaning, DISK, "class C:\n    def do(self): ...", "rename the function"),
    (names_carry_meaning, "src/strandline/store/disk_v2.py", "", "no version in names"),
    (names_carry_meaning, DISK, "class DiskV2: ...", "no version in names"),
    (
        modules_have_a_test_of_their_name,
        "src/strandline/store/new.py",
        "",
        "tests/store/test_new.py",
    ),
    (rules_are_promised_and_tested, DISK, "# R7 holds", "add R7 to docs/guarantees.md"),
    (rules_are_promised_and_tested, "tests/test_errors.py", "", "name R1 in the test"),
    (decisions_are_numbered_without_gaps, "docs/decisions/0003-gap.md", "", "expected 0002"),
    (decisions_are_numbered_without_gaps, "docs/decisions/0001-twice.md", "", "expected 0002"),
    (leftovers_have_an_issue, DISK, "# TO" + "DO later", "give it an issue number"),
    (nothing_is_pickled, DISK, "from pickle import loads", "never pickle"),
    (sql_is_never_put_together, DISK, "q = f'SELECT {x} FROM t'", "builds SQL"),
    (sql_is_never_put_together, DISK, "q = f'insert into {x}'", "builds SQL"),
    (sql_is_never_put_together, DISK, "db.execute('DROP ' + x)", "builds SQL"),
    (sql_is_never_put_together, DISK, "q = 'DELETE FROM {}'.format(x)", "builds SQL"),
    (no_text_names_a_private_place, "README.md", "see /ho" + "me/ann/lake", "names a place"),
    (links_lead_somewhere, "README.md", "see [it](docs/gone.md#here)", "docs/gone.md in README.md"),
    (links_lead_somewhere, "docs/x.md", "[up](../gone.md)", "../gone.md in docs/x.md"),
    (no_text_names_a_private_place, ".ci/run", "cd /ro" + "ot/x", "names a place"),
]


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_clean_tree_passes(check, tmp_path):
    assert list(check(plant(tmp_path, CLEAN))) == []


@pytest.mark.parametrize(("check", "name", "text", "sentence"), PLANTED)
def test_a_planted_violation_is_caught(check, name, text, sentence, tmp_path):
    root = plant(tmp_path, CLEAN | {name: text})
    assert sentence in "\n".join(check(root))


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO(#12) measure again",
        "class HandleClosedError(Exception): ...",
        "def read_metadata(): ...",
        "db.execute('SELECT 1 WHERE x = ?', (x,))",
        "raise ValueError(f'select a row of {x}')",
        "# https://example.org/home/page and ./work/lake",
    ],
)
def test_what_is_allowed_is_not_caught(line, tmp_path):
    root = plant(tmp_path, CLEAN | {DISK: line})
    assert [wrong for check in CHECKS for wrong in check(root)] == []


def test_every_check_has_a_planted_violation():
    assert {check for check, *_ in PLANTED} == set(CHECKS)
