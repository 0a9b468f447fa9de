"""The archive for executors: what is in it, and that it is the same each time.

That executors without any package run from it is shown on a cluster, in `test_cluster`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from strandline.errors import NotInstalledError, StoreError, UsageError
from strandline.spark import pack as packing
from strandline.spark.pack import FOLDER, archive_name, pack


def installed(folder: Path, name: str, *, requires: str = "", files: dict[str, str]) -> None:
    """A distribution as pip leaves it behind."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    listed = [*files, f"{about.name}/METADATA", f"{about.name}/RECORD", "../../bin/tool"]
    (about / "RECORD").write_text("".join(f"{path},,\n" for path in listed))


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """A folder of packages, beside which only a small `strandline` seems to be installed."""
    folder = tmp_path / "site"
    installed(
        folder,
        "strandline",
        requires="small_one>=1\nRequires-Dist: pyspark; extra == 'spark'",
        files={"_strandline.pth": "/somewhere\n"},
    )
    installed(
        folder,
        "small-one",
        requires="absent; platform_system == 'Plan9'",
        files={
            "small/__init__.py": "",
            "small/__pycache__/x.pyc": "",
            "small/tests/test_x.py": "",
            "small/core.so": "native",
            "small/core.pyx": "source",
        },
    )
    (folder / "small/core.so").chmod(0o700)

    def found(name: str) -> Distribution:
        about = folder / f"{name}-1.0.dist-info"
        return Distribution.at(about) if about.exists() else distribution(name)

    monkeypatch.setattr(packing, "distribution", found)
    return folder


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        return {entry.name: entry for entry in archive}


def test_it_holds_the_package_and_what_it_needs_without_tests_caches_and_sources(site, tmp_path):
    made = pack(tmp_path)
    found = members(made.path)
    others = {name for name in found if not name.startswith("strandline/")}
    assert others == {
        "small/__init__.py",
        "small/core.so",
        "small-one-1.0.dist-info/METADATA",
        "small-one-1.0.dist-info/RECORD",
        "strandline-1.0.dist-info/METADATA",
        "strandline-1.0.dist-info/RECORD",
    }
    assert {"strandline/__init__.py", "strandline/spark/worker.py"} <= found.keys()
    assert not any("__pycache__" in name for name in found)
    assert made.versions == {"small-one": "1.0", "strandline": "1.0"}
    assert made.files == len(found)
    assert made.size == made.path.stat().st_size
    assert made.path == tmp_path / archive_name("1.0")


def test_the_same_environment_gives_the_same_bytes(site, tmp_path):
    first = pack(tmp_path / "a.tar.gz").path.read_bytes()
    os.utime(site / "small/core.so", (1, 1))
    assert pack(tmp_path / "b.tgz").path.read_bytes() == first
    (site / "small/core.so").write_text("changed")
    assert pack(tmp_path / "a.tar.gz").path.read_bytes() != first


def test_nothing_of_the_machine_is_in_it(site, tmp_path):
    for entry in members(pack(tmp_path).path).values():
        assert (entry.mtime, entry.uid, entry.uname) == (0, 0, "")
        assert entry.mode == (0o755 if entry.name == "small/core.so" else 0o644)


def test_it_tells_how_far_it_is(site, tmp_path):
    told: list[tuple[int, int]] = []
    made = pack(tmp_path, report=lambda done, total: told.append((done, total)))
    assert told == [(at, made.files) for at in range(made.files)]


def test_what_was_there_stays_if_it_fails(site, tmp_path):
    target = tmp_path / "a.tar.gz"
    target.write_text("old")
    (site / "small/core.so").unlink()
    with pytest.raises(NotInstalledError, match=r"small/core\.so .* install the package again"):
        pack(target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.glob("*.tar.gz*")] == ["a.tar.gz"]
    assert not list(tmp_path.glob(".a*"))


def test_what_can_not_be_packed_is_named(site, tmp_path):
    installed(site, "linked", files={"linked.pth": "/src\n"})
    installed(site, "needy", requires="gone-one (>=3)", files={})
    installed(site, "bare", files={})
    (site / "bare-1.0.dist-info/RECORD").unlink()
    with pytest.raises(UsageError, match="linked is installed as a link to its source"):
        pack(tmp_path, extra=["linked"])
    with pytest.raises(NotInstalledError, match="gone-one, which needy needs is not installed"):
        pack(tmp_path, extra=["needy"])
    with pytest.raises(NotInstalledError, match="bare does not say which files it has"):
        pack(tmp_path, extra=["bare"])
    with pytest.raises(NotInstalledError, match="no-such-thing is not installed"):
        pack(tmp_path, extra=["no-such-thing"])
    with pytest.raises(UsageError, match=r"x\.zip does not end in \.tar\.gz"):
        pack(tmp_path / "x.zip")
    with pytest.raises(StoreError, match=r"can't write to .*nowhere"):
        pack(tmp_path / "nowhere" / "x.tar.gz")


def test_the_settings_name_the_archive_and_where_workers_find_it(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = pack().settings
    assert settings == {
        "spark.archives": f"{tmp_path / archive_name('1.0')}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"{FOLDER}:../{FOLDER}",
    }


@pytest.mark.process
def test_a_python_without_packages_runs_what_workers_run_from_it(tmp_path):
    made = pack(tmp_path)
    assert {"pyarrow", "numpy", "polars", "msgspec", "xxhash"} <= made.versions.keys()
    assert not {"pyspark", "py4j", "pytest", "typer"} & made.versions.keys()
    folder = tmp_path / FOLDER
    with tarfile.open(made.path) as archive:
        # Early releases of Python 3.11 have no filters.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **safe)
    program = (
        "import sys, importlib.metadata, pyarrow.parquet, pyarrow.dataset, polars, numpy\n"
        "import strandline.spark.worker, strandline.spark.perform, strandline.spark.blocks\n"
        "print(strandline.__file__, importlib.metadata.version('strandline'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(folder)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(folder))
