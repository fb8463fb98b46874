"""A model that plays the tool calls that Rookery is asked to run. Only agents of the daemon may use it."""

import asyncio

from rookery.sessions.run_tool import ScriptedCalls
from rookery.testing.player import NoMatchingStep, Reply, housekeeping_reply
from rookery.testing.request import ModelRequest
from rookery.testing.request_log import RequestLog
from rookery.testing.routes import ServedModel, TokenCheck, model_routes, serve_model
from rookery.testing.script import Call, Step, Usage

# With no usage, no session ever becomes too long for the model.
_STEP = Step(say="", usage=Usage(0))
_NO_CALL = (
    "this model only runs tools that are called through Rookery; choose another model for this session, or sign in to "
    "a provider: opencode auth login"
)


class ToolPlayer:
    """Replies to requests of hidden children with the tool call that is registered for them."""

    def __init__(self, calls: ScriptedCalls) -> None:
        self._calls = calls

    def reply_to(self, request: ModelRequest) -> Reply:
        """Return the reply to a request. Raise `NoMatchingStep` if no call is registered for its session and key."""
        if kind := request.housekeeping:
            return housekeeping_reply(kind, request)
        call = self._calls.get(request.session_header, request.key)
        if call is None:
            raise NoMatchingStep(_NO_CALL)
        if request.replies:
            call.end()
        elif call.begin(request.tools) and call.tool is not None:
            return Reply("", (Call(call.tool, dict(call.arguments)),), _STEP, ids=(call.id,))
        return Reply("", (), _STEP)


class ToolModel:
    """The server of the tool model. It starts when its port is first requested. Requests of agents are not kept."""

    def __init__(self, calls: ScriptedCalls, accepts_key: TokenCheck) -> None:
        self._app = model_routes(ToolPlayer(calls), RequestLog(max_requests=0))
        self._accepts_key = accepts_key
        self._lock = asyncio.Lock()
        self._server: ServedModel | None = None

    async def port(self) -> int:
        """Return the port; start the server if it does not run."""
        async with self._lock:
            if self._server is None:
                self._server = await serve_model(self._app, accepts_key=self._accepts_key)
            return self._server.port

    async def stop(self) -> None:
        async with self._lock:
            if self._server is not None:
                await self._server.stop()
                self._server = None
