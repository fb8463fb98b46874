"""The HTTP routes of the scripted model: OpenAI's protocol on 127.0.0.1, guarded by its key if it has one.

A reply is sent as chunks of a stream, whole, or as an error; it can be held, delayed, paced or cut off. The words of a
final error are checked, since OpenCode retries errors whose words look temporary.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.testing.player import NoMatchingStep, Reply, ReplySource
from rookery.testing.request import ModelRequest
from rookery.testing.request_log import LoggedRequest, RequestLog
from rookery.wire.http.auth import OWNER, Principal, Tokens, make_tcp_authenticator
from rookery.wire.http.listener import LOOPBACK_ADDRESS, Listener, bind_port
from rookery.wire.http.pool import HttpLimits

DONE = b"data: [DONE]\n\n"
# The approximate number of bytes of a token.
_BYTES = 4

_RETRY_WORDS = re.compile(
    r"""
      429 | 5\d\d
    | rate [\s_-] (?:limit\w* | increased) | too [\s_-] (?:many | long | large) | overload\w* | \w*unavailable
    | \w*exhausted | at\ capacity | try\ (?:again | your) | retry\ your | free\w*limit\w*
    | (?:internal | server | network | connection | returned) [\s_-]+ (?:server\ )? error
    | terminated | fetch\ failed | failed\ to\ fetch | upstream\ connect | socket | reset\ before
    | connection\ (?:refused | lost | was) | getaddrinfo | enotfound | eai_again | econn\w+
    | e?time (?:d?\ ? | d[\s_-]) out
    | exceed\w* | \w*context\w* | \w*tokens? | maximum | reduce\ the\ length
    """,
    re.IGNORECASE | re.VERBOSE,
)
_STREAM = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
_STOP_SECONDS = 0.2


@dataclass(frozen=True)
class FramedReply:
    """One reply to one request. All its ids are derived from the request, so that it is the same every time."""

    reply: Reply
    request: ModelRequest
    created: int

    def stream(self) -> Iterator[bytes]:
        """Yield the events of the stream, each for a write of its own. A reply that is cut off has no final event."""
        yield self._event({"role": "assistant", "content": ""})
        for piece in re.findall(r"\S+\s*|\s+", self.reply.text):
            yield self._event({"content": piece})
        for index, call in enumerate(self._calls()):
            function = call["function"]
            yield self._event({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]})
            part = {"index": index, "function": {"arguments": function["arguments"]}}
            yield self._event({"tool_calls": [part]})
        if not self.reply.step.disconnect:
            yield self._event({}, self._finish, usage=self._usage())
            yield DONE

    def body(self) -> bytes:
        """Return the reply as one JSON body."""
        calls = self._calls()
        message = {"role": "assistant", "content": self.reply.text or None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return msgspec.json.encode(self._frame("chat.completion", choice) | {"usage": self._usage()})

    @property
    def _finish(self) -> str:
        return "tool_calls" if self.reply.calls else "stop"

    def _event(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: %b\n\n" % msgspec.json.encode(self._frame("chat.completion.chunk", choice) | more)

    def _frame(self, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
        name = f"chatcmpl-{len(self.request.messages)}"
        frame = {"id": name, "object": kind, "created": self.created, "model": self.request.body.model}
        return frame | {"choices": [choice]}

    def _calls(self) -> list[dict[str, Any]]:
        turn = len(self.request.messages)
        calls = self.reply.calls
        ids = self.reply.ids or [f"call_{turn}_{number}" for number in range(1, len(calls) + 1)]
        return [
            {
                "id": id_,
                "type": "function",
                "function": {"name": call.call, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for id_, call in zip(ids, calls, strict=True)
        ]

    def _usage(self) -> dict[str, int]:
        usage = self.reply.step.usage
        length = len(self.reply.text) + sum(len(call["function"]["arguments"]) for call in self._calls())
        input_tokens, output_tokens = (
            (usage.input, usage.output) if usage else (len(bytes(self.request.raw)) // _BYTES, length // _BYTES + 1)
        )
        return {
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        }


def error_body(status: int, message: str) -> bytes:
    """Return an error body, with the type by which clients decide whether to retry."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, "invalid_request_error")
    return msgspec.json.encode(
        {"error": {"message": message, "type": kind if status < 500 else "server_error", "param": None, "code": None}}
    )


def remove_retry_words(message: str) -> str:
    """Return the message without words that would make OpenCode retry."""
    return _RETRY_WORDS.sub("…", message)


class HeldReplies:
    """Steps that wait until they are released by name."""

    def __init__(self) -> None:
        self._released: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def release(self, name: str) -> None:
        self._released[name].set()

    async def wait(self, name: str) -> None:
        await self._released[name].wait()


def model_routes(player: ReplySource, log: RequestLog, holds: HeldReplies | None = None) -> Starlette:
    """Return the routes of a model. Without `holds` no step can wait."""

    async def complete(request: Request) -> "Response | ReplyResponse":
        try:
            model_request = ModelRequest.parse(await request.body(), request.headers)
        except msgspec.MsgspecError as error:
            problem = f"this is not a chat completion request: {error}"
            log.end(log.add("malformed", None, problem=problem), "answered")
            return _error_response(400, remove_retry_words(problem))
        try:
            reply = player.reply_to(model_request)
        except NoMatchingStep as error:
            problem = f"the script has no reply to this request: {error}"
            log.end(log.add("unforeseen", model_request, error.nearest, problem), "answered")
            return _error_response(400, remove_retry_words(problem))
        framed = FramedReply(reply, model_request, int(SYSTEM_CLOCK.wall()))
        return ReplyResponse(framed, log.add(reply.kind, model_request, reply.position), log, holds or HeldReplies())

    async def models(request: Request) -> Response:
        return _json_response(
            {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "rookery"}]}
        )

    async def list_requests(request: Request) -> Response:
        session = request.query_params.get("session")
        records = [record for record in log if session is None or record.session == session]
        return _json_response({"requests": records, "dropped": log.dropped})

    async def release(request: Request) -> Response:
        assert holds is not None
        holds.release(request.path_params["hold"])
        return _json_response({"released": request.path_params["hold"]})

    async def unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return _error_response(
            status, f"there is no {request.method} {request.url.path}; the baseURL of this model ends in /v1"
        )

    async def failed(request: Request, error: Exception) -> Response:
        # The agent is not at fault, and a retry does not help.
        return _error_response(400, remove_retry_words(str(error)))

    return Starlette(
        routes=[
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/models", models),
            Route("/requests", list_requests),
            *([Route("/release/{hold}", release, methods=["POST"])] if holds is not None else []),
        ],
        exception_handlers={404: unknown, 405: unknown, RookeryError: failed},
    )


class ReplyResponse:
    """An ASGI response that plays the reply of one step. It ends early if the client disconnects."""

    def __init__(self, framed: FramedReply, record: LoggedRequest, log: RequestLog, holds: HeldReplies) -> None:
        self._framed = framed
        self._step = framed.reply.step
        self._record = record
        self._log = log
        self._holds = holds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        scope["extensions"]["rookery.on_lost"](task.cancel)
        try:
            if self._step.hold is not None:
                await self._holds.wait(self._step.hold)
            await asyncio.sleep(self._step.delay)
            await self._send_reply(scope, receive, send)
        except asyncio.CancelledError:
            if self._record.ended is None:
                self._log.end(self._record, "client-gone")
            raise

    async def _send_reply(self, scope: Scope, receive: Receive, send: Send) -> None:
        step = self._step
        if step.error is not None:
            await _error_response(step.error, step.message or f"scripted error {step.error}", step.retry_after)(
                scope, receive, send
            )
        elif not self._framed.request.body.stream and not step.disconnect:
            await Response(self._framed.body(), media_type="application/json")(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
            for number, event in enumerate(self._framed.stream()):
                if number:
                    await asyncio.sleep(step.pace)
                await send({"type": "http.response.body", "body": event, "more_body": True})
            if step.disconnect:
                self._log.end(self._record, "cut-off")
                # The listener then closes the connection without sending anything else.
                raise asyncio.CancelledError
            await send({"type": "http.response.body"})
        self._log.end(self._record, "answered")


def _json_response(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _error_response(status: int, message: str, retry_after: float | None = None) -> Response:
    # The standard header is in seconds; some clients also know milliseconds, and prefer those.
    seconds = retry_after or 0
    wait = (
        {"retry-after": f"{seconds:.0f}", "retry-after-ms": f"{seconds * 1000:.0f}"} if retry_after is not None else {}
    )
    return Response(error_body(status, message), status, wait, "application/json")


class _AnyToken(Tokens):
    """Accepts every key: clients of a model always send one."""

    def find(self, token: bytes) -> Principal | None:
        return OWNER


# Returns whether a key is the right one.
TokenCheck = Callable[[bytes], bool]


class ServedModel:
    """A model that is served at `url`, the `baseURL` of OpenAI clients, until it is stopped."""

    def __init__(self, port: int, listener: Listener) -> None:
        self.port = port
        self.url = f"http://{LOOPBACK_ADDRESS}:{port}/v1"
        self._listener = listener

    async def stop(self) -> None:
        await self._listener.stop(_STOP_SECONDS)


async def serve_model(app: ASGIApp, *, port: int = 0, accepts_key: TokenCheck | None = None) -> ServedModel:
    """Serve a model on a port of 127.0.0.1; 0 means any free port. With `accepts_key`, requests need a key."""
    sock = bind_port(port)
    if sock is None:
        raise RookeryError(
            "port-taken",
            f"port {port} of {LOOPBACK_ADDRESS} is in use by another program",
            "omit the port to use any free one",
        )
    bound_port: int = sock.getsockname()[1]
    authenticator = make_tcp_authenticator(bound_port, _AnyToken(), tokenless=OWNER)
    listener = Listener(
        sock, _require_key(app, accepts_key) if accepts_key is not None else app, authenticator, HttpLimits()
    )
    await listener.start()
    return ServedModel(bound_port, listener)


def _require_key(app: ASGIApp, accepts_key: TokenCheck) -> ASGIApp:
    """Wrap an app to reject requests without a valid key."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        authorization: bytes = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = authorization.partition(b" ")
        if scheme == b"Bearer" and accepts_key(key):
            await app(scope, receive, send)
            return
        body = error_body(401, "this model requires a key: send `Authorization: Bearer <key>`")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return guarded
