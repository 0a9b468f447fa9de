"""The verb that serves a store over HTTP.

The token comes from STRANDLINE_TOKEN or from a file that nobody else can read; else it is drawn
now, and shown on a terminal, or written to such a file: what a service prints ends up in a log.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.cli.opening import opened
from strandline.cli.output import complain
from strandline.cli.render import shown
from strandline.cli.signals import heeding_signals
from strandline.config import served_token
from strandline.console.routes import application
from strandline.console.server import Place, Server
from strandline.console.serving import Serving
from strandline.errors import UsageError
from strandline.pipeline.settings import PipelineSettings
from strandline.system import SystemRandom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.cli.output import Output
    from strandline.handles.store import Store
    from strandline.pipeline.engine import NewEngine
    from strandline.pipeline.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be served where, in the words of the command line."""

    file: Path | None
    store: str
    name: str | None = None
    replica: str | None = None
    host: str = "127.0.0.1"
    port: int = 8_780
    token_file: Path | None = None
    hosts: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    settings: PipelineSettings = field(default_factory=PipelineSettings)

    def place(self, token: str) -> Place:
        return Place(
            token=token,
            host=self.host,
            port=self.port,
            hosts=self.hosts,
            tls_cert=None if self.tls_cert is None else str(self.tls_cert),
            tls_key=None if self.tls_key is None else str(self.tls_key),
        )


def serve_store(wanted: Wanted, out: Output, engine: NewEngine | None) -> None:
    """Serve until a signal ends it; a replica that runs here is stopped after a checkpoint."""
    given = token_of(wanted.token_file)
    token = given or SystemRandom().token()
    place = wanted.place(token)
    with opened(wanted.store, listing="status", create=wanted.file is not None) as store:
        pipeline = _running(store, wanted, engine)
        server = Server(application(Serving(store, pipeline, engine), place.guard()), place)
        with closing(server), nullcontext() if given else _told(token):
            document: dict[str, object] = {"kind": "serving", "url": server.url, "store": store.url}
            out.event(document, shown(f"{server.url} serves {store.url}"))
            if pipeline is not None:
                pipeline.start()
            with heeding_signals():
                # The server ends at a signal, and sends the signal again once it has.
                server.run()
                if pipeline is not None:
                    pipeline.stop_here()
                    pipeline.wait()


@contextmanager
def _told(token: str) -> Iterator[None]:
    """Let whoever started us know a token that was drawn, and nobody else."""
    if sys.stderr.isatty():
        complain(f"token: {token}")
        yield
        return
    descriptor, path = tempfile.mkstemp(prefix="strandline-", suffix=".token")
    with os.fdopen(descriptor, "w") as made:
        made.write(f"{token}\n")
    try:
        complain(f"token: in {path}, which only you can read, until this ends")
        yield
    finally:
        Path(path).unlink(missing_ok=True)


def _running(store: Store, wanted: Wanted, engine: NewEngine | None) -> Pipeline | None:
    if wanted.file is None:
        return None
    if not wanted.file.is_file():
        raise UsageError(f"there is no program {wanted.file}")
    return store.pipeline(
        wanted.name or wanted.file.stem,
        wanted.file.read_text("utf-8"),
        settings=wanted.settings,
        replica=wanted.replica,
        engine=engine,
        confined=True,
    )


def token_of(file: Path | None) -> str | None:
    """The token from a file, which is made if it is missing, or from the environment."""
    if file is None:
        return served_token()
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"others can read {file}: chmod 600 {file}") from None
        return file.read_text("utf-8").strip()
    except OSError as error:
        raise UsageError(f"{file} can't hold a token: {error.strerror}") from error
    token = SystemRandom().token()
    with os.fdopen(descriptor, "w") as made:
        made.write(f"{token}\n")
    return token
