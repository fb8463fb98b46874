"""REST routes made from operations: decode the parameters, run the operation, encode its result.

A parameter is taken from the path, from the query or from the body, which is a JSON object. Each name in a path is one
percent-encoded segment: `feature%2Fx` is one name. An event bus is sent as server-sent events; a reader that stalls is
disconnected with a reason, and others are not affected.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, get_args, get_origin
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.operations.operation import BoundOperation, Caller, Operation, RestRoute, rename_parameters
from rookery.operations.results import Binary, BusEvents, EventResult, PlainText, TextResult
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError

_SEE_TYPE = "see the type of this parameter in /api/openapi.json"
_KEEP_ALIVE_SECONDS = 15.0
_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def cancel_with_client(request: Request) -> None:
    """Cancel the current request when its client disconnects."""
    task = asyncio.current_task()
    assert task is not None
    request.scope["extensions"]["rookery.on_lost"](task.cancel)


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


class RawRoute(Route):
    """A route that is matched on the encoded path, so that an encoded slash in a name does not separate segments."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["raw_path"].decode("latin-1")
        # Checked first: the matching of Starlette costs more, and nearly all routes do not match.
        if scope["type"] != "http" or self.path_regex.match(path) is None:
            return Match.NONE, {}
        match, child_scope = super().matches({**scope, "path": path})
        params: dict[str, Any] = child_scope.get("path_params", {})
        for name, value in params.items():
            params[name] = unquote(value)
        return match, child_scope


def operation_routes(operations: Iterable[BoundOperation[Any]]) -> list[Route]:
    """Return the routes of all operations that have one. Fixed paths precede those with parameters."""
    routes = [
        RawRoute(path, _make_handler(bound, route, path), methods=[route.method])
        for bound in operations
        if (route := bound.operation.declared.rest) is not None
        for path in route.paths
    ]
    return sorted(routes, key=lambda route: [segment.startswith("{") for segment in route.path.split("/")])


def _make_handler(bound: BoundOperation[Any], route: RestRoute, path: str) -> Callable[[Request], Awaitable[ASGIApp]]:
    operation = bound.operation
    declared = bound.operation.declared
    decode = ParameterDecoder(operation, route, path).decode

    async def handle(request: Request) -> ASGIApp:
        arguments = await decode(request)
        if declared.cancellable:
            cancel_with_client(request)
        caller = Caller(request.state.principal, peer=request.scope["state"].get("peer"))
        result = await bound.run(caller, arguments)
        if isinstance(result, Binary):
            return Response(result.data, media_type=result.media_type, headers=result.headers)
        if isinstance(result, EventResult):
            return EventResponse(result)
        if isinstance(result, BusEvents):
            return EventStream(result.bus, result.since, result.matches)
        if isinstance(result, PlainText):
            return Response(result.text, media_type=result.media_type)
        status = route.status(arguments, result) if route.status is not None else route.statuses[0]
        if isinstance(result, TextResult):
            return Response(result.text, status, media_type="application/json")
        return json_response(result, status)

    # The first paragraph is the description in the reference.
    handle.__doc__ = operation.summary
    return handle


class ParameterDecoder:
    """Decodes the parameters of one operation from a request.

    `kind` is a struct with the names of the route. `in_path` has the name of each field that is in the path, `in_body`
    the names of the others, which are taken from the query too, unless the body has them. `headers` has the header that
    overrides some of these.
    """

    def __init__(self, operation: Operation, route: RestRoute, path: str) -> None:
        self._parameters = operation.parameters
        self.kind = rename_parameters(operation.parameters, route.names, forbid_unknown=True)
        fields = msgspec.structs.fields(self.kind)
        self._types = {field.encode_name: field.type for field in fields}
        # An empty value of these is an error: a script that forgets a workspace must not get what is for all of them.
        self._required_text = {name for name, kind in self._types.items() if _is_text_required(kind)}
        names = {field.name: field.encode_name for field in fields}
        self.in_path = {field.name: field.encode_name for field in fields if f"{{{field.name}}}" in path}
        self.in_body = [name for name in self._types if name not in self.in_path.values()]
        self.headers = {names[parameter]: header for parameter, header in route.headers.items()}
        # Of operations that take nothing in a body, a body is ignored.
        self.has_body = route.method != "GET" and bool(self.in_body)

    async def decode(self, request: Request) -> msgspec.Struct:
        """Return the parameters.

        An empty body counts as an empty object, and an empty value in the query as none, if its type allows that.
        """
        values = {
            name: self._decode_query_value(name, text)
            for name, text in request.query_params.items()
            if name in self.in_body and (text or name in self._required_text)
        }
        for name, header in self.headers.items():
            if text := request.headers.get(header):
                values[name] = self._decode_query_value(name, text)
        if self.has_body and (data := await request.body()):
            values |= self._decode_body(data)
        values |= {name: request.path_params[field] for field, name in self.in_path.items()}
        try:
            decoded = msgspec.convert(values, type=self.kind)
        except (msgspec.ValidationError, RecursionError) as error:
            raise self._invalid(error) from None
        return self._parameters(**msgspec.structs.asdict(decoded))

    def _decode_body(self, data: bytes) -> dict[str, Any]:
        try:
            body = msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._invalid(error) from None
        if unknown := [name for name in body if name not in self.in_body]:
            raise self._invalid(f"it contains the unknown field {unknown[0][:40]!r}")
        return body

    def _decode_query_value(self, name: str, text: str) -> Any:
        kind = self._types[name]
        try:
            value = msgspec.to_builtins(msgspec.convert(text, type=kind, strict=False))
        except msgspec.ValidationError as error:
            raise _invalid_value(name, text, kind, f": {error}") from None
        # msgspec converts more than is meant here: `null` to None, `nan` to a float, `1e3` to an integer.
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            raise _invalid_value(name, text, kind)
        if type(value) is int and not text.removeprefix("-").isdecimal():
            raise _invalid_value(name, text, kind, ": it is not an integer")
        return value

    def _invalid(self, error: object) -> RookeryError:
        remedy = f"send an object with: {', '.join(self.in_body)}" if self.in_body else _SEE_TYPE
        return RookeryError("invalid-input", f"the request is invalid: {error}", remedy)


def _is_text_required(kind: Any) -> bool:
    """Return whether a type is text that must not be empty."""
    if any(isinstance(meta, msgspec.Meta) and meta.min_length for meta in getattr(kind, "__metadata__", ())):
        return True
    return any(_is_text_required(part) for part in get_args(kind))


def _invalid_value(name: str, text: str, kind: Any, why: str = "") -> RookeryError:
    choices = _list_choices(kind)
    remedy = f"use one of {', '.join(map(str, choices))}" if choices else _SEE_TYPE
    return RookeryError("invalid-input", f"{name}={text[:40]!r} is not valid{why}", remedy)


def _list_choices(kind: Any) -> tuple[Any, ...]:
    """Return the values that a type allows, if it lists them."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(choice for part in get_args(kind) for choice in _list_choices(part))


class EventResponse(Response):
    """A result that arrives as server-sent events. An error before the first event is a normal response."""

    def __init__(self, result: EventResult) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._result = result
        # The length of a stream is not known.
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def write(kind: str, data: object, *, last: bool) -> None:
            nonlocal started
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": encode_event(kind, data), "more_body": not last})

        async def emit(kind: str, data: object) -> None:
            await write(kind, data, last=False)

        try:
            value = await self._result.run(emit)
        except RookeryError as error:
            if not started:
                raise
            await write("error", {"error": error.as_dict()}, last=True)
        else:
            await write(self._result.last, value, last=True)


class EventStream:
    """A response that lasts until the client disconnects, falls behind, or the daemon stops."""

    def __init__(self, bus: Bus, since: int | None, matches: Callable[[Event], bool] = lambda event: True) -> None:
        self._bus = bus
        self._since = since
        self._matches = matches

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": _EVENT_HEADERS})
            await send({"type": "http.response.body"})
            return
        reader = self._bus.subscribe(self._since)
        scope["extensions"]["rookery.on_lost"](lambda: reader.end("client-gone"))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _EVENT_HEADERS})
            first = encode_event("gap", {"oldest": self._bus.oldest_id}) if reader.gap else b": hello\n\n"
            await send({"type": "http.response.body", "body": first, "more_body": True})
            while True:
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                        batch = await reader.next_batch()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
                    continue
                data = b"".join(encode_event(e.type, e.data | {"at": e.at}, e.id) for e in batch if self._matches(e))
                if reader.ended is not None:
                    data += encode_event("end", {"reason": reader.ended})
                    await send({"type": "http.response.body", "body": data})
                    return
                if data:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            reader.end("client-gone")


def encode_event(type_: str, data: object, id_: int | None = None) -> bytes:
    """Encode one server-sent event."""
    head = b"id: %d\n" % id_ if id_ is not None else b""
    return b"%bevent: %b\ndata: %b\n\n" % (head, type_.encode(), msgspec.json.encode(data))
