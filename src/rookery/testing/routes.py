"""The routes of the scripted model, and how a reply goes out: held, delayed, in its own pace, or cut off."""

import asyncio
from collections import defaultdict

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rookery.system.clock import SYSTEM_CLOCK
from rookery.testing.asked import Asked
from rookery.testing.chunks import Framed, error_body
from rookery.testing.place import Unforeseen
from rookery.testing.player import Answers
from rookery.testing.request_log import Record, RequestLog
from rookery.testing.wording import final

_STREAM = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


class Holds:
    """Steps that wait until somebody lets them go on."""

    def __init__(self) -> None:
        self._released: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def release(self, name: str) -> None:
        self._released[name].set()

    async def wait(self, name: str) -> None:
        await self._released[name].wait()


def routes(player: Answers, log: RequestLog, holds: Holds | None = None) -> Starlette:
    """Without `holds` there are no steps that wait."""

    async def complete(request: Request) -> "Response | Play":
        try:
            asked = Asked.of(await request.body(), request.headers)
        except msgspec.MsgspecError as error:
            problem = f"this is no request for a chat completion: {error}"
            log.end(log.add("malformed", None, problem=problem), "answered")
            return _error(400, final(problem))
        try:
            reply = player.answer(asked)
        except Unforeseen as error:
            problem = f"the script does not foresee this request: {error}"
            log.end(log.add("unforeseen", asked, error.nearest, problem), "answered")
            return _error(400, final(problem))
        framed = Framed(reply, asked, int(SYSTEM_CLOCK.wall()))
        return Play(framed, log.add(reply.kind, asked, reply.place), log, holds or Holds())

    async def models(request: Request) -> Response:
        return _json({"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "rookery"}]})

    async def asked_so_far(request: Request) -> Response:
        session = request.query_params.get("session")
        found = [record for record in log if session is None or record.session == session]
        return _json({"requests": found, "dropped": log.dropped})

    async def release(request: Request) -> Response:
        assert holds is not None
        holds.release(request.path_params["hold"])
        return _json({"released": request.path_params["hold"]})

    async def unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return _error(status, f"there is no {request.method} {request.url.path}; the baseURL of this model ends in /v1")

    return Starlette(
        routes=[
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/models", models),
            Route("/requests", asked_so_far),
            *([Route("/release/{hold}", release, methods=["POST"])] if holds is not None else []),
        ],
        exception_handlers={404: unknown, 405: unknown},
    )


class Play:
    """The answer of one step. It ends early if the client goes."""

    def __init__(self, framed: Framed, record: Record, log: RequestLog, holds: Holds) -> None:
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
            await self._answer(scope, receive, send)
        except asyncio.CancelledError:
            if self._record.ended is None:
                self._log.end(self._record, "client-gone")
            raise

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        step = self._step
        if step.error is not None:
            await _error(step.error, step.message or f"scripted error {step.error}", step.retry_after)(
                scope, receive, send
            )
        elif not self._framed.asked.body.stream and not step.disconnect:
            await Response(self._framed.whole(), media_type="application/json")(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
            for number, event in enumerate(self._framed.stream()):
                if number:
                    await asyncio.sleep(step.pace)
                await send({"type": "http.response.body", "body": event, "more_body": True})
            if step.disconnect:
                self._log.end(self._record, "cut-off")
                # To the front this means: end the connection without another word.
                raise asyncio.CancelledError
            await send({"type": "http.response.body"})
        self._log.end(self._record, "answered")


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _error(status: int, message: str, retry_after: float | None = None) -> Response:
    # Seconds are what the standard has; some clients also know milliseconds, and prefer them.
    after = retry_after or 0
    wait = {"retry-after": f"{after:.0f}", "retry-after-ms": f"{after * 1000:.0f}"} if retry_after is not None else {}
    return Response(error_body(status, message), status, wait, "application/json")
