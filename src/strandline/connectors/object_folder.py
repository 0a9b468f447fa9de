"""A prefix of an object store in which names appear whole, once, and for good (see `folder`).

An object is there at once, and durable, when its put returns. `create` is a conditional put: of
two who create a name one is told that it was there. A put whose answer was lost may have happened:
whoever is told so reads the progress again, so it does not matter that a second try of the same
one finds its own.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Self, cast

from strandline.errors import SinkError, SinkStoppedError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from obstore.store import ObjectStore

_IN_MEMORY = 8 * 1024 * 1024
"""What is on its way to a store is spooled to the disk from this size on."""
_PLAIN = "allow_http"
"""The one setting of the client's that is no setting of the store's: no TLS."""
_RETRY = {"max_retries": 2}
"""Few: publishers try again themselves, and say so."""


class ObjectFolder:
    """Below `root`, a URL."""

    def __init__(
        self, root: str, store: ObjectStore, step: Callable[[str], None] = lambda _: None
    ) -> None:
        self.root = root.rstrip("/")
        self._store = store
        self._step = step

    @contextmanager
    def put(self, name: str) -> Iterator[IO[bytes]]:
        import obstore  # noqa: PLC0415

        with self._told(f"write {name}"):
            with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
                yield cast("IO[bytes]", spool)
                spool.seek(0)
                self._step(f"put {name}")
                obstore.put(self._store, name, cast("IO[bytes]", spool))
            self._step(f"reply {name}")

    def create(self, name: str, content: bytes) -> bool:
        import obstore  # noqa: PLC0415
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415

        with self._told(f"write {name}"):
            self._step(f"create {name}")
            try:
                obstore.put(self._store, name, content, mode="create")
            except AlreadyExistsError:
                return False
            finally:
                self._step(f"reply {name}")
        return True

    def read(self, name: str) -> bytes | None:
        import obstore  # noqa: PLC0415

        with self._told(f"read {name}"):
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None

    def opened(self, place: str) -> IO[bytes]:
        import obstore  # noqa: PLC0415

        name = place.removeprefix(f"{self.root}/")
        with self._told(f"read {name}"):
            # It reads like a file as far as Arrow and whoever reads lines ask.
            return cast("IO[bytes]", _Reader(obstore.open_reader(self._store, name)))

    def names(self, folder: str) -> list[str]:
        import obstore  # noqa: PLC0415

        with self._told(f"list {folder}"):
            found = obstore.list_with_delimiter(self._store, folder or None)
            paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
            return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def remove(self, folder: str) -> None:
        import obstore  # noqa: PLC0415

        with self._told(f"remove {folder}"):
            for some in obstore.list(self._store, f"{folder}/"):
                self._step(f"remove {folder}")
                obstore.delete(self._store, [each["path"] for each in some])

    def remove_drafts(self, folder: str) -> None:
        """There are none: an object appears whole or not at all."""

    def settle(self, folder: str) -> None:
        """What can be seen is durable."""

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        from obstore import exceptions as refused  # noqa: PLC0415

        where = f"could not {what} below {printable(self.root)}"
        try:
            yield
        except FileNotFoundError:
            raise
        except (refused.PermissionDeniedError, refused.UnauthenticatedError,
                refused.NotSupportedError) as error:  # fmt: skip
            raise SinkStoppedError(f"{where}: {type(error).__name__}") from None
        except (refused.BaseError, OSError) as error:
            # What the client says may hold what it was told, so only its kind is repeated.
            raise SinkError(f"{where}: {type(error).__name__}") from None


class _Reader:
    """An object as a file that is read: by lines, or here and there."""

    def __init__(self, reader: object) -> None:
        self._reader = reader
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.read(None if size < 0 else size))  # type: ignore[attr-defined]

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._reader.seek(offset, whence))  # type: ignore[attr-defined]

    def tell(self) -> int:
        return int(self._reader.tell())  # type: ignore[attr-defined]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def __iter__(self) -> Iterator[bytes]:
        while line := bytes(self._reader.readline()):  # type: ignore[attr-defined]
            yield line

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def object_folder(url: str, storage: Mapping[str, str]) -> ObjectFolder:
    """The prefix that a URL names; `storage` is what the store's client is told."""
    try:
        from obstore.store import from_url  # noqa: PLC0415
    except ImportError as missing:
        raise UsageError(
            "object stores need the extra `objects`: pip install 'strandline[objects]'"
        ) from missing

    told = {name: value for name, value in storage.items() if name != _PLAIN}
    client = {_PLAIN: True} if storage.get(_PLAIN) == "true" else {}
    try:
        store = from_url(url, client_options=client, retry_config=_RETRY, **told)  # type: ignore[call-overload]
        return ObjectFolder(url, store)
    except Exception as error:  # noqa: BLE001 - each kind of store raises its own
        raise UsageError(
            f"{printable(url)} can't be opened ({type(error).__name__}): write s3://bucket/prefix, "
            "gs://… or az://…, and what its client needs as storage.region and so on"
        ) from None
