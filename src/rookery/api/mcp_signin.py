"""The routes about signing in to MCP servers: for the owner only, and for no process that Rookery started."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer, body_of
from rookery.api.mcp import Mcp, McpRoutes, require_outsider
from rookery.system.errors import RookeryError
from rookery.upstreams.definition import Definition
from rookery.upstreams.signin.signins import LOGIN_SECONDS

_LONGEST_SECONDS = 3600.0


class Login(msgspec.Struct, forbid_unknown_fields=True):
    """`seconds` is how long a person has."""

    seconds: float = LOGIN_SECONDS


class Pasted(msgspec.Struct, forbid_unknown_fields=True):
    """`url` is the address that the browser was sent to."""

    url: str


def routes(mcp: Mcp) -> list[Route]:
    made = SignInRoutes(mcp)
    return [
        Route("/api/mcp/{name}/login", made.begin, methods=["POST"]),
        Route("/api/mcp/{name}/login", made.wait),
        Route("/api/mcp/{name}/login", made.give_up, methods=["DELETE"]),
        Route("/api/mcp/{name}/login/redirect", made.redirected, methods=["POST"]),
        Route("/api/mcp/{name}/logout", made.logout, methods=["POST"]),
    ]


class SignInRoutes(McpRoutes):
    async def begin(self, request: Request) -> Response:
        """Begin to sign in to a server; answers the address for a person to open, and where the browser comes back."""
        asked = await body_of(request, Login)
        if not 0 < asked.seconds <= _LONGEST_SECONDS:
            told = f"a sign-in takes up to {_LONGEST_SECONDS:g} seconds, and more than none"
            raise RookeryError("invalid-input", told, "send such a number as seconds")
        definition = await self._definition(request)
        where, session, name = await self._asked(request)
        # What it asks for is known once it has been asked.
        await self._hub.connect(where, session, name)
        status = (await self._record(where, session, name))["status"]
        signins = self._hub.signins
        if status == "connected" and not signins.demanded(definition) and signins.signed_in(definition) is None:
            told = f'MCP server "{name}" is connected, and does not ask who you are'
            raise RookeryError("invalid-input", told, "nothing has to be done")
        if status in ("failed", "backoff"):
            raise (await self._hub.fleet(where, session)).server(name, session).failure()
        found = await (await signins.login(definition, asked.seconds)).asked()
        return answer({"name": name, **msgspec.to_builtins(found), "seconds": asked.seconds}, status=202)

    async def wait(self, request: Request) -> Response:
        """Wait for the end of a sign-in; answers the server's record, and the issuer whose token is used."""
        definition = await self._definition(request)
        await self._hub.signins.attempt(definition).ended()
        where, session, name = await self._asked(request)
        await self._hub.connect(where, session, name)
        record = await self._record(where, session, name)
        return answer(record | {"issuer": self._hub.signins.signed_in(definition)})

    async def redirected(self, request: Request) -> Response:
        """Take the address that the browser was sent to, where the browser is on another machine."""
        asked = await body_of(request, Pasted)
        await self._hub.signins.attempt(await self._definition(request)).redirected(asked.url)
        return answer({"taken": True}, status=202)

    async def give_up(self, request: Request) -> Response:
        """End a sign-in that is not wanted any more."""
        definition = await self._definition(request)
        await self._hub.signins.give_up(definition)
        return answer({"name": definition.name})

    async def logout(self, request: Request) -> Response:
        """Forget a sign-in, and give its tokens back where the issuer takes any."""
        definition = await self._definition(request)
        removed, revoked = await self._hub.signins.logout(definition)
        return answer({"name": definition.name, "removed": removed, "revoked": revoked})

    async def _definition(self, request: Request) -> Definition:
        """The server that is meant, if whoever asks may, and if it may be used at all."""
        await require_outsider()
        where, session, name = await self._asked(request)
        return (await self._hub.fleet(where, session)).server(name, session).definition
