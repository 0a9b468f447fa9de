"""The temporary folder is made when it is needed, and goes."""

from pathlib import Path

import pytest

from strandline.errors import StoreError
from strandline.ingest.spill import TemporarySpill


def test_a_folder_is_made_at_first_use_and_deleted_with_close(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spill = TemporarySpill()
    assert list(tmp_path.iterdir()) == []
    spill.blob().put("ingest/x", b"1")
    assert spill.blob().get("ingest/x") == b"1"
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in Path(folder).rglob("x")] == ["x"]
    spill.close()
    spill.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_t_be_made_is_worth_another_try(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    spill = TemporarySpill()
    with pytest.raises(StoreError, match="no temporary folder can be made"):
        spill.blob()
    (tmp_path / "none").mkdir()
    spill.blob().put("ingest/x", b"1")
    spill.close()
