"""Where a store is: what people write as its URL, and the backends behind it.

    ./lake, /data/lake, file:///data/lake    a folder: SQLite and files
    memory://                                nothing durable, one process, for tests

Kept free of Arrow, so that the helper process that keeps leases alive starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from strandline.errors import NotFoundError, UsageError
from strandline.model.ids import printable
from strandline.store.files import FilesBlob
from strandline.store.holder import holder_of
from strandline.store.sqlite import NEW_FILE, SqliteConsensus

if TYPE_CHECKING:
    from strandline.store.blob import Blob
    from strandline.store.consensus import Consensus
    from strandline.store.holder import Holder

CONSENSUS_FILE = "consensus.db"
BLOB_FOLDER = "blobs"
_PROVED_BYTES_MAX = 64 * 1024 * 1024
"""A larger file is not read whole whenever a process opens it; `strandline fsck` does that."""


class Kind(Enum):
    """The deployments there are."""

    FOLDER = "a folder on this machine"
    MEMORY = "memory of this process"


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed store URL; `str()` is what may be shown and passed on."""

    kind: Kind
    path: str = ""

    def __str__(self) -> str:
        return self.path if self.kind is Kind.FOLDER else "memory://"


def locate(url: str) -> Location:
    """Parse a store URL, or say which ones there are."""
    if not url or "\0" in url:
        raise UsageError(f"store {printable(url)} is not a folder or URL")
    if "://" not in url:
        return Location(Kind.FOLDER, str(Path(url).expanduser().absolute()))
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path:
        return Location(Kind.FOLDER, unquote(parts.path))
    if parts.scheme == "memory":
        return Location(Kind.MEMORY)
    # The URL itself is not repeated: it may carry a password (X4).
    raise UsageError(
        f"store scheme {printable(parts.scheme)} is not supported: give a folder, file:///path "
        "or memory://"
    )


def open_folder(path: str, *, create: bool) -> tuple[Blob, Consensus]:
    """The two stores of a folder. An existing folder must be empty or hold a store."""
    folder = Path(path)
    exists = (folder / CONSENSUS_FILE).exists()
    if not exists and not create:
        raise NotFoundError(f"there is no Strandline store in {printable(path, 200)}")
    if not exists and folder.exists():
        if not folder.is_dir():
            raise UsageError(f"{printable(path, 200)} is a file, not a folder")
        others = sorted(entry.name for entry in folder.iterdir() if not _is_ours(entry.name))
        if others:
            raise UsageError(
                f"folder {printable(path, 200)} holds other things ({printable(others[0])}) and no "
                "Strandline store: give an empty or a new folder"
            )
    blob = FilesBlob(folder / BLOB_FOLDER)
    consensus = SqliteConsensus(folder / CONSENSUS_FILE)
    consensus.prove(size_max=_PROVED_BYTES_MAX)
    return blob, consensus


def _is_ours(name: str) -> bool:
    """Whether a store that is being created, maybe by another process, may have such a name."""
    return name == BLOB_FOLDER or name.startswith((CONSENSUS_FILE, NEW_FILE))


def open_consensus(url: str) -> Consensus:
    """The consensus of an existing store, for a helper process."""
    location = locate(url)
    if location.kind is not Kind.FOLDER:
        raise UsageError(f"store {location} can't be opened by another process")
    return SqliteConsensus(Path(location.path) / CONSENSUS_FILE)


def who_writes(url: str) -> Holder | None:
    """Who holds the write lock of a store at this moment, where that can be told."""
    location = locate(url)
    if location.kind is not Kind.FOLDER:
        return None
    return holder_of(Path(location.path) / CONSENSUS_FILE)


def open_blob(url: str) -> Blob:
    """The objects of an existing store, for a process that must never touch its consensus."""
    folder = _shared_folder(url)
    if not (folder / CONSENSUS_FILE).exists():
        raise NotFoundError(
            f"{printable(str(folder), 200)} holds no Strandline store as this machine sees it: "
            "workers must see the store's folder under the same path, so mount it on every "
            "machine, or run Spark on the machine that has it"
        )
    return FilesBlob(folder / BLOB_FOLDER)


def blob_folder_id(url: str) -> tuple[int, int]:
    """Which folder holds the objects now: one that was removed and made anew has another id.

    That is certain for as long as somebody has the old one open. `(0, 0)` if there is none.
    """
    try:
        found = (_shared_folder(url) / BLOB_FOLDER).stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _shared_folder(url: str) -> Path:
    location = locate(url)
    if location.kind is not Kind.FOLDER:
        raise UsageError(f"store {location} can't be opened by another process: give it a folder")
    return Path(location.path)
