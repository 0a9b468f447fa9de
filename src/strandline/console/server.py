"""Where it listens: on this machine alone, or with TLS.

The address is taken before anything is announced, so two servers never share one by accident.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.console.guard import LOOPBACK, Guard, is_loopback
from strandline.errors import NotInstalledError, UsageError

try:
    import uvicorn
except ModuleNotFoundError as missing:
    raise NotInstalledError(
        "serving needs starlette and uvicorn: pip install 'strandline[serve]'"
    ) from missing

if TYPE_CHECKING:
    from starlette.applications import Starlette

TOKEN_MIN = 16
CONNECTIONS_MAX = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server listens, and who may ask it."""

    token: str
    host: str = "127.0.0.1"
    port: int = 8780
    """0 takes any that is free."""
    hosts: tuple[str, ...] = ()
    """Names beside this machine's own by which it is reached."""
    tls_cert: str | None = None
    tls_key: str | None = None

    def __post_init__(self) -> None:
        if len(self.token) < TOKEN_MIN:
            raise UsageError(f"a token has at least {TOKEN_MIN} characters: choose a longer one")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("TLS needs a certificate and its key: give both")
        if not is_loopback(self.host) and self.tls_cert is None:
            raise UsageError(
                f"to listen on {self.host}, which others reach, needs TLS: give a certificate and "
                "its key, or stay on 127.0.0.1"
            )

    def guard(self) -> Guard:
        own = () if self.host in {"0.0.0.0", "::"} else (self.host,)  # noqa: S104 - a comparison
        return Guard(self.token, frozenset({*LOOPBACK, *own, *map(str.lower, self.hosts)}))


class Server:
    """One listening server. `run` blocks; `stop` may be called from any task."""

    def __init__(self, app: Starlette, place: Place) -> None:
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((place.host, place.port))
            self._socket.listen(CONNECTIONS_MAX)
        except OSError as error:
            self._socket.close()
            raise UsageError(
                f"{place.host}:{place.port} can't be listened on: {error.strerror}"
            ) from error
        self.port: int = self._socket.getsockname()[1]
        name = f"[{place.host}]" if ":" in place.host else place.host
        self.url = f"http{'s' if place.tls_cert else ''}://{name}:{self.port}"
        # No access log: a path or a header may carry what nobody should read later.
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=5,
                ssl_certfile=place.tls_cert,
                ssl_keyfile=place.tls_key,
            )
        )

    def run(self) -> None:
        """Serve until `stop`, or until a signal ends it."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.close()

    def close(self) -> None:
        """Listen no more, also where nobody ever ran it. Repeating it is harmless."""
        self._socket.close()

    def stop(self) -> None:
        self._server.should_exit = True
