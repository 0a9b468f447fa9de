"""A temporary folder for what does not fit into memory, made when it is first needed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.errors import StoreError
from strandline.store.files import FilesBlob

if TYPE_CHECKING:
    from strandline.store.blob import Blob


class TemporarySpill:
    """A Blob in a folder of its own, which goes with `close`."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._blob: FilesBlob | None = None

    def blob(self) -> Blob:
        if self._blob is None:
            self._folder = _made()
            self._blob = FilesBlob(Path(self._folder.name))
        return self._blob

    def close(self) -> None:
        """Delete everything. Repeating it is harmless."""
        if self._blob is not None:
            self._blob.close()
            self._blob = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _made() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="strandline-")
    except OSError as error:
        # A disk that is full may have room later: it is worth another try.
        raise StoreError(
            f"no temporary folder can be made ({error}): make room there, or set TMPDIR"
        ) from error
