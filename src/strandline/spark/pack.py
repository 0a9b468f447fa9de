"""Packs this package and what it stands on into one archive that Spark brings to executors.

    spark.archives                strandline-0.1.0-cp311-linux_x86_64.tar.gz#strandline-env
    spark.executorEnv.PYTHONPATH  strandline-env:../strandline-env

Executors keep their own Python, of the version that the archive's name tells, and need nothing
else: Spark unpacks the archive into the folder where their workers start. The same environment
gives the same bytes, so an archive can be compared, and cached, by its checksum.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import sysconfig
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from strandline.errors import NotInstalledError, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.metadata import Distribution

PACKAGE = "strandline"
FOLDER = "strandline-env"
"""What the archive is unpacked as; a name that no folder of a user's project has."""
_LEVEL = 1
"""Of compression: the highest takes three times as long and saves a tenth."""

_LEFT_OUT = frozenset({"pyspark", "py4j", "rich", "typer"})
"""Executors have Spark, and nobody types commands there."""
_UNUSED = re.compile(
    r"(^|/)(__pycache__|tests?|include)/"
    r"|^pyarrow/(libarrow_flight|libarrow_python_flight|_flight)\."
    r"|\.(pyc|pyo|pyi|pyx|pxd|pxi|a|lib|h|hpp|cc)$"
)
"""Tests, headers, sources, and the server of Arrow's, a tenth of the whole."""
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_EXTRA = re.compile(r";.*\bextra\s*==")


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive, and what is in it."""

    path: Path
    size: int
    files: int
    versions: dict[str, str]
    """Of every distribution, by name."""

    @property
    def settings(self) -> dict[str, str]:
        """What a session has to be given to use it.

        Workers of Spark Connect start one folder further down, hence the second place.
        """
        return {
            "spark.archives": f"{self.path}#{FOLDER}",
            "spark.executorEnv.PYTHONPATH": f"{FOLDER}:../{FOLDER}",
        }


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    path: Path


def archive_name(version: str) -> str:
    """The name of an archive of this version for this Python and this kind of machine."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    machine = re.sub(r"[^A-Za-z0-9]+", "_", sysconfig.get_platform())
    return f"{PACKAGE}-{version}-{python}-{machine}.tar.gz"


def pack(
    target: Path | None = None,
    *,
    extra: Sequence[str] = (),
    report: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write the archive to `target`, a file or a folder; by default here, under its own name.

    `extra` names installed distributions that come along with all that they need.
    `report(done, total)` is called with numbers of files.
    """
    found = _closure([PACKAGE, *extra])
    files = sorted((each for dist in found.values() for each in _files(dist)), key=_by_name)
    path = _target(target, found[PACKAGE].version)
    with _replacing(path) as out:
        _write(out, files, report)
    return Packed(
        path.absolute(),
        path.stat().st_size,
        len(files),
        {name: dist.version for name, dist in sorted(found.items())},
    )


# What goes in.


def _closure(names: Sequence[str]) -> dict[str, Distribution]:
    """The distributions of these names, and those that they need, by name."""
    found: dict[str, Distribution] = {}
    open_names = [(name, "") for name in names]
    while open_names:
        name, needed_by = open_names.pop()
        name = _normal(name)
        if name in found or name in _LEFT_OUT:
            continue
        try:
            dist = distribution(name)
        except PackageNotFoundError as error:
            why = f", which {needed_by} needs" if needed_by else ""
            raise NotInstalledError(
                f"{name}{why} is not installed in this environment: pip install {name}"
            ) from error
        found[name] = dist
        open_names += [(each, name) for each in _needed(dist)]
    return found


def _needed(dist: Distribution) -> Iterator[str]:
    """What pip has installed for a distribution: with a condition, it may have been nothing."""
    for requirement in dist.requires or ():
        match = _NAME.match(requirement)
        if match is None or _EXTRA.search(requirement):
            continue
        if ";" in requirement and not _is_installed(match[1]):
            continue
        yield match[1]


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _normal(name: str) -> str:
    """One spelling for the many that a name has.

    >>> _normal("Typing.Extensions_x")
    'typing-extensions-x'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(dist: Distribution) -> Iterator[_File]:
    """The files that workers need, named as they lie below the archive's folder."""
    name = _normal(dist.metadata["Name"])
    listed = dist.files
    if listed is None:
        raise NotInstalledError(
            f"{name} does not say which files it has: pip install --force-reinstall {name}"
        )
    inside = [each for each in listed if ".." not in each.parts and not each.is_absolute()]
    if name == PACKAGE:
        # It may be installed as a link to its source, so its own folder is asked.
        yield from _package_files()
        inside = [each for each in inside if each.parts[0].endswith(".dist-info")]
    elif any(each.suffix == ".pth" for each in inside):
        raise UsageError(
            f"{name} is installed as a link to its source, which executors do not have: "
            f"pip install it without -e"
        )
    for each in inside:
        if not _UNUSED.search(str(each)) and each.name != "direct_url.json":
            yield _File(str(each), Path(str(dist.locate_file(each))))


def _package_files() -> Iterator[_File]:
    folder = Path(__file__).parents[1]
    for path in folder.rglob("*"):
        name = str(PurePosixPath(PACKAGE, *path.relative_to(folder).parts))
        if path.is_file() and "__pycache__" not in path.parts:
            yield _File(name, path)


def _by_name(file: _File) -> str:
    return file.name


# How it is written.


def _target(target: Path | None, version: str) -> Path:
    name = archive_name(version)
    if target is None:
        return Path(name)
    if target.is_dir():
        return target / name
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise UsageError(
            f"{target.name} does not end in .tar.gz, by which Spark knows how to unpack it"
        )
    return target


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when it is complete."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise StoreError(f"can't write to {path.parent}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as out:
            yield out
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise StoreError(f"can't write {path}: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _write(
    out: BinaryIO, files: Sequence[_File], report: Callable[[int, int], None] | None
) -> None:
    with (
        gzip.GzipFile("", "wb", _LEVEL, out, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for at, each in enumerate(files):
            if report is not None:
                report(at, len(files))
            _add(archive, each)


def _add(archive: tarfile.TarFile, file: _File) -> None:
    """One file, without anything that differs between machines: owner, time, mask."""
    try:
        content = file.path.open("rb")
    except OSError as error:
        raise NotInstalledError(
            f"{file.name} belongs to an installed package and can't be read ({error.strerror}): "
            "install the package again"
        ) from error
    with content:
        entry = tarfile.TarInfo(file.name)
        status = os.fstat(content.fileno())
        entry.size = status.st_size
        entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
        archive.addfile(entry, content)
