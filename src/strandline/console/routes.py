"""What each address answers.

    GET   /v1/pipelines                                     all, by name
    GET   /v1/pipelines/NAME/status                         where it stands, who runs it
    GET   /v1/pipelines/NAME/history?count=20               its last transactions
    POST  /v1/pipelines/NAME/query                          {"sql": …, "as_of": …}: rows
    POST  /v1/pipelines/NAME/tables/TABLE/rows              rows in the table's format, one a line;
                                                            X-Producer and X-Sequence: may be
                                                            repeated; answered once they are sealed
    POST  /v1/pipelines/NAME/tables/TABLE/reload            JSON rows, one a line, which replace
                                                            what the table holds
    POST  /v1/pipelines/NAME/transactions                   begin
    GET   /v1/pipelines/NAME/transactions/ID                how it stands
    POST  /v1/pipelines/NAME/transactions/ID/tables/TABLE/rows?chunk=0     JSON rows, one a line
    POST  /v1/pipelines/NAME/transactions/ID/commit, …/abort
    POST  /v1/pipelines/NAME/amend                          replaces what a sealed transaction can't
                                                            read any more: see `Amendment`
    GET   /metrics                                          for Prometheus

Errors are `{"error": kind, "message": sentence}`. 503 says that the same may be sent again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from strandline.console import limits
from strandline.console.gauges import exposition
from strandline.errors import (
    ConflictError,
    HandleClosedError,
    NotFoundError,
    NotInstalledError,
    StoreError,
    StrandlineError,
    TooLargeError,
    UsageError,
    ViewFailedError,
)
from strandline.journal.handles import Handles
from strandline.model.ids import printable
from strandline.pipeline.documents import open_document, status_document, summary_document
from strandline.pipeline.report import each_for_itself
from strandline.pipeline.rows import json_rows

try:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import Headers
    from starlette.middleware import Middleware
    from starlette.responses import Response
    from starlette.routing import Route
except ModuleNotFoundError as missing:
    raise NotInstalledError(
        "serving needs starlette and uvicorn: pip install 'strandline[serve]'"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from strandline.console.guard import Guard
    from strandline.console.serving import Serving
    from strandline.pipeline.documents import Document
    from strandline.pipeline.report import PipelineStatus

HISTORY_MAX = 1_000
ROWS_MAX = 10_000
PUSH_MS = 30_000
_CODES: tuple[tuple[type[StrandlineError], int], ...] = (
    (TooLargeError, 413),
    (NotFoundError, 404),
    (HandleClosedError, 503),
    (UsageError, 400),
    (ConflictError, 409),
    (ViewFailedError, 409),
    (StoreError, 503),
    (StrandlineError, 500),
)
_UNREADABLE = (msgspec.DecodeError, RecursionError)
"""What a body raises that is not what was asked for, or nested deeper than anybody means it."""
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'",
}


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query, as it is sent."""

    sql: str
    as_of: int | None = None


class Amendment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is read in place of a sealed range, as it is sent: one of `take`, `rows` and `empty`."""

    time: int
    endpoint: str
    reason: str
    take: dict[str, tuple[int, int]] | None = None
    rows: list[msgspec.Raw] | None = None
    empty: bool = False


class Sent:
    """One request, read: what the work of a route needs of it."""

    def __init__(self, request: Request, body: bytes) -> None:
        self.path: dict[str, str] = dict(request.path_params)
        self.body = body
        self._headers = request.headers
        self._query = request.query_params

    def header(self, name: str) -> str | None:
        return self._headers.get(name)

    def number(self, name: str, text: str | None) -> int | None:
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal()) or len(text) > 18:
            raise UsageError(f"{name} has to be a whole number")
        return int(text)

    def argument(self, name: str) -> int | None:
        return self.number(name, self._query.get(name))


class Api:
    """The work behind the routes; all of it runs outside of the event loop."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def pipelines(self, _: Sent) -> Document:
        return {"pipelines": self._serving.names()}

    def status(self, sent: Sent) -> Document:
        return status_document(self._serving.pipeline(sent.path["name"]).status())

    def history(self, sent: Sent) -> Document:
        count = sent.argument("count")
        wanted = min(HISTORY_MAX, 20 if count is None else max(1, count))
        pipeline = self._serving.pipeline(sent.path["name"])
        found = [summary_document(each) for each in pipeline.history(wanted)]
        sinks = status_document(pipeline.status(sources=False))["sinks"]
        return {"transactions": found, "sinks": sinks}

    def query(self, sent: Sent) -> Document:
        try:
            question = msgspec.json.decode(sent.body, type=Question)
        except _UNREADABLE as error:
            raise UsageError(f'send {{"sql": …, "as_of": …}}: {error}') from error
        rows = self._serving.pipeline(sent.path["name"]).query(question.sql, question.as_of)
        names = rows.column_names
        if twice := sorted({each for each in names if names.count(each) > 1}):
            # A row is an object, which would keep one of them.
            raise UsageError(f"two columns are called {printable(twice[0])}: rename one with AS")
        return {
            "columns": names,
            "rows": rows.slice(0, ROWS_MAX).to_pylist(),
            "total": rows.num_rows,
        }

    def push(self, sent: Sent) -> Document:
        pushed = self._serving.pipeline(sent.path["name"]).push(
            sent.path["table"],
            limits.lines_of(sent.body),
            producer=sent.header("x-producer"),
            sequence=sent.number("X-Sequence", sent.header("x-sequence")),
            timeout_ms=PUSH_MS,
        )
        return {"sealed": True, "rows": pushed.rows, "duplicate": pushed.duplicate}

    def reload(self, sent: Sent) -> Document:
        pipeline = self._serving.pipeline(sent.path["name"])
        table = pipeline.program.table(sent.path["table"])
        if table is None:
            raise NotFoundError(f"pipeline {pipeline.name} has no such table")
        rows = json_rows(limits.lines_of(sent.body), table)
        if not rows.num_rows:
            raise UsageError(f"no rows came, and that would empty {table.name}: nothing was done")
        time = pipeline.reload(table.name, rows, timeout_ms=PUSH_MS)
        return {"time": time, "rows": rows.num_rows}

    def begin(self, sent: Sent) -> Document:
        return {"transaction": self._serving.pipeline(sent.path["name"]).transaction().id}

    def look(self, sent: Sent) -> Document:
        pipeline = self._serving.pipeline(sent.path["name"])
        handles = Handles(pipeline.store.env, pipeline.name)
        return open_document(handles.look(sent.path["id"]))

    def insert(self, sent: Sent) -> Document:
        pipeline = self._serving.pipeline(sent.path["name"])
        table = pipeline.declared(sent.path["table"])
        rows = json_rows(limits.lines_of(sent.body), table)
        chunk = sent.argument("chunk")
        transaction = pipeline.transaction(sent.path["id"])
        return {"chunk": transaction.insert(table.name, rows, chunk=chunk), "rows": rows.num_rows}

    def commit(self, sent: Sent) -> Document:
        transaction = self._serving.pipeline(sent.path["name"]).transaction(sent.path["id"])
        return {"time": transaction.commit(timeout_ms=PUSH_MS)}

    def abort(self, sent: Sent) -> Document:
        self._serving.pipeline(sent.path["name"]).transaction(sent.path["id"]).abort()
        return {"aborted": True}

    def amend(self, sent: Sent) -> Document:
        try:
            told = msgspec.json.decode(sent.body, type=Amendment)
        except _UNREADABLE as error:
            raise UsageError(
                f'send {{"time": …, "endpoint": …, "reason": …, "take": …}}: {error}'
            ) from error
        pipeline = self._serving.pipeline(sent.path["name"])
        rows = None
        if told.rows is not None:
            rows = json_rows([bytes(each) for each in told.rows], pipeline.fed_by(told.endpoint))
        pipeline.amend(
            told.time,
            told.endpoint,
            reason=told.reason,
            take=told.take,
            rows=rows,
            empty=told.empty,
        )
        return {"amended": True, "time": told.time, "endpoint": told.endpoint}

    def metrics(self, _: Sent) -> bytes:
        def status(name: str) -> PipelineStatus:
            return self._serving.pipeline(name).status()

        names = self._serving.names()
        found = [each_for_itself(name, partial(status, name)) for name in names]
        return exposition(self._serving.store.env.metrics.registry, found)


class Door:
    """Asks the guard before anything else is looked at, whatever the address is."""

    def __init__(self, app: ASGIApp, guard: Guard, now_ms: Callable[[], float]) -> None:
        self._app = app
        self._guard = guard
        self._now_ms = now_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._guard.refusal(Headers(scope=scope), int(self._now_ms()))
            if refusal is None:
                await self._app(scope, receive, send)
                return
            told: Document = {"error": "refused", "message": refusal.reason}
            await _json(refusal.status, told)(scope, receive, send)


def application(serving: Serving, guard: Guard) -> Starlette:
    """The application; nothing in it answers before `guard` was asked."""
    api = Api(serving)
    one = "/v1/pipelines/{name}"
    transaction = one + "/transactions/{id}"

    def route(method: str, path: str, work: Callable[[Sent], Document | bytes]) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                sent = Sent(request, await _body(request))
                answer = await run_in_threadpool(work, sent)
            except StrandlineError as error:
                return _failed(error)
            if isinstance(answer, bytes):
                return Response(answer, media_type="text/plain; version=0.0.4", headers=_HEADERS)
            return _json(200, answer)

        return Route(path, endpoint, methods=[method])

    return Starlette(
        routes=[
            route("GET", "/v1/pipelines", api.pipelines),
            route("GET", one + "/status", api.status),
            route("GET", one + "/history", api.history),
            route("POST", one + "/query", api.query),
            route("POST", one + "/tables/{table}/rows", api.push),
            route("POST", one + "/tables/{table}/reload", api.reload),
            route("POST", one + "/transactions", api.begin),
            route("GET", transaction, api.look),
            route("POST", transaction + "/tables/{table}/rows", api.insert),
            route("POST", transaction + "/commit", api.commit),
            route("POST", transaction + "/abort", api.abort),
            route("POST", one + "/amend", api.amend),
            route("GET", "/metrics", api.metrics),
        ],
        middleware=[Middleware(Door, guard=guard, now_ms=serving.store.env.clock.monotonic_ms)],
    )


async def _body(request: Request) -> bytes:
    """The whole body, within the limits; nothing is ever unpacked."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UsageError("a compressed body is refused: send it as it is")
    limits.declared(request.headers.get("content-length"))
    body = limits.Body()
    async for piece in request.stream():
        body.add(piece)
    return body.whole()


def _failed(error: StrandlineError) -> Response:
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    return _json(code, {"error": type(error).__name__, "message": str(error)})


def _json(status: int, document: Document) -> Response:
    content = msgspec.json.encode(document, enc_hook=_text)
    headers = _HEADERS | ({"retry-after": "1"} if status == 503 else {})
    return Response(content, status, headers=headers, media_type="application/json")


def _text(value: Any) -> str:  # noqa: ANN401 - whatever JSON has no word for
    return str(value)
