"""How a model is served: on 127.0.0.1, and only to those who carry its key where it has one."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.system.errors import RookeryError
from rookery.testing.chunks import error_body
from rookery.wire.door import Limits
from rookery.wire.gate import Tokens, tcp_judge
from rookery.wire.listener import LOOPBACK, Listener, bind_port

_STOP_SECONDS = 0.2
# Whether a key is the one.
Admits = Callable[[bytes], bool]


class Served:
    """A model at `url`, the `baseURL` of OpenAI clients, until it is stopped."""

    def __init__(self, port: int, listener: Listener) -> None:
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}/v1"
        self._listener = listener

    async def stop(self) -> None:
        await self._listener.stop(_STOP_SECONDS)


async def serve(app: ASGIApp, *, port: int = 0, admits: Admits | None = None) -> Served:
    sock = bind_port(port)
    if sock is None:
        raise RookeryError(
            "port-taken", f"port {port} of {LOOPBACK} is held by another program", "leave the port out to take any"
        )
    taken: int = sock.getsockname()[1]
    judge = tcp_judge(taken, Tokens(), require_token=False)
    listener = Listener(sock, _guarded(app, admits) if admits is not None else app, judge, Limits())
    await listener.start()
    return Served(taken, listener)


def _guarded(app: ASGIApp, admits: Admits) -> ASGIApp:
    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        given: bytes = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        if scheme == b"Bearer" and admits(key):
            await app(scope, receive, send)
            return
        body = error_body(401, "this model wants its key: send `Authorization: Bearer <key>`")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return guarded
