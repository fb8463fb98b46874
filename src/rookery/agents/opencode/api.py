"""A typed client for the parts of OpenCode's HTTP API that Rookery uses, for one folder.

Every request names the folder, carries the password and has a time limit.
"""

import asyncio
import base64
import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import msgspec

from rookery.agents.opencode.config import TOOL_PROVIDER
from rookery.agents.opencode.errors import LOGS_HINT, require_disk_space, response_error, session_not_found
from rookery.agents.opencode.records import Message, OpenCodeRecord, Permission, Question, Session, SessionStatus
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.wire.http_client.client import HttpClient
from rookery.wire.http_client.connection import HttpResponse
from rookery.wire.http_client.request import HttpRequestWriter

# The first request to a folder loads plugins and more, which takes seconds on a busy machine.
RESPONSE_SECONDS = 30.0
_USERNAME = "opencode"

T = TypeVar("T")

_ASK_ID = re.compile(r"(?:per|que)_[0-9A-Za-z_-]+")
TURN_SECONDS = 600.0
_HEALTH_SECONDS = 5.0
# OpenCode takes seconds to return thousands of messages.
_ALL_MESSAGES_SECONDS = 120.0
# Without this limit OpenCode lists a hundred sessions.
MAX_SESSIONS = 10_000
# An id of another form makes OpenCode fail, and would become part of a path.
_SESSION_ID = re.compile(r"ses_[0-9A-Za-z_-]+")
_MESSAGE_ID = re.compile(r"msg_[0-9A-Za-z_-]+")


@dataclass
class ApiConnection:
    """Sends requests about one folder to one agent. `url` has no path.

    `http` is created once by the application and shared. `response_seconds` is the time limit of requests that have
    none of their own.
    """

    http: HttpClient
    url: str
    directory: str
    password: str = field(repr=False)
    response_seconds: float = RESPONSE_SECONDS

    def __post_init__(self) -> None:
        pair = base64.b64encode(f"{_USERNAME}:{self.password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {pair}", "Content-Type": "application/json"}

    async def request(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        session: str | None = None,
        seconds: float | None = None,
    ) -> T:
        """Send a request and return the response, decoded as `kind`. A 404 is reported as a missing `session`."""
        seconds = self.response_seconds if seconds is None else seconds
        payload = msgspec.json.encode(body) if body is not None else None
        try:
            async with asyncio.timeout(seconds):
                with await self._send(method, path, query or {}, payload) as response:
                    content = await response.read()
        except TimeoutError:
            raise RookeryError(
                "timeout", f"the agent did not respond to {path} within {seconds:g} s", LOGS_HINT
            ) from None
        except (OSError, ValueError) as error:
            raise unreachable_error(error) from None
        if response.status >= 300:
            raise response_error(response.status, content, session)
        if kind is type(None):
            return msgspec.convert(None, kind)
        try:
            return msgspec.json.decode(content, type=kind)
        except ValueError as error:
            message = f"OpenCode returned an unexpected response to {path}: {error}"
            raise RookeryError("agent-unavailable", message, "set `agents.version` to a supported version") from None

    async def stream(self, path: str, seconds: float) -> HttpResponse:
        """Send a GET request and return the response as soon as its head has arrived. The caller closes it."""
        try:
            async with asyncio.timeout(seconds):
                response = await self._send("GET", path, {}, None)
        except TimeoutError:
            raise RookeryError(
                "timeout", f"the agent did not respond to {path} within {seconds:g} s", LOGS_HINT
            ) from None
        except (OSError, ValueError) as error:
            raise unreachable_error(error) from None
        if response.status != 200:
            response.close()
            raise response_error(response.status, b"", None)
        return response

    async def _send(self, method: str, path: str, query: Mapping[str, str], body: bytes | None) -> HttpResponse:
        parameters = {"directory": self.directory, **query}
        query_string = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
        requests = HttpRequestWriter(f"{self.url}{path}?{query_string}", self._headers)
        # These have the same effect if they are sent twice.
        harmless = method in ("GET", "DELETE")
        return await self.http.send(requests.origin, requests.write(method, {}, body), idempotent=harmless)


def unreachable_error(error: Exception) -> RookeryError:
    return RookeryError("agent-unavailable", f"the agent cannot be reached: {error}", LOGS_HINT)


def drop_none(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def build_message(text: str, agent: str | None, model: str | None, id_: str | None = None) -> dict[str, Any]:
    """Return the body of a user's message; without `id_` OpenCode chooses its id."""
    more = drop_none(agent=agent, model=parse_model(model, "modelID"), messageID=id_)
    # With ids of Rookery's choice, a message that is sent twice is one message.
    part = drop_none(id=f"prt_{id_.removeprefix('msg_')}" if id_ is not None else None, type="text", text=text)
    return {"parts": [part], **more}


def new_message_id(milliseconds: float) -> str:
    """Return an id in OpenCode's format: OpenCode relies on ids that are in the order of time."""
    return f"msg_{(int(milliseconds) << 12) & (2**48 - 1):012x}{new_id()[:14]}"


def parse_model(model: str | None, name_of_id: str) -> dict[str, str] | None:
    """Return `provider/model` as OpenCode's object. `name_of_id` is the key of the model's id, which varies."""
    if model is None:
        return None
    provider, slash, name = model.partition("/")
    if not (provider and slash and name):
        raise RookeryError("invalid-input", f"{model!r} is not the name of a model", "write it as provider/model")
    return {"providerID": provider, name_of_id: name}


def build_ask_path(kind: str, id_: str, what: str) -> str:
    """Return the path of an ask; raise RookeryError if the id has another form."""
    if not _ASK_ID.fullmatch(id_):
        raise RookeryError(
            "ask-not-found", f"there is no open ask {id_!r}", "list the open asks, and use the id of one of them"
        )
    return f"/{kind}/{id_}/{what}"


class AgentDefinition(OpenCodeRecord, frozen=True):
    """An agent that OpenCode defines. It uses the `hidden` ones internally."""

    name: str
    hidden: bool | None = None


class ServerHealth(OpenCodeRecord, frozen=True):
    healthy: bool = False
    version: str = ""


class _Options(OpenCodeRecord, frozen=True, rename={"url": "baseURL"}):
    url: str = ""


class _Api(OpenCodeRecord, frozen=True):
    url: str = ""


class _Model(OpenCodeRecord, frozen=True):
    api: _Api = _Api()


class ModelProvider(OpenCodeRecord, frozen=True):
    """A company or program that runs models. `models` has them by id."""

    id: str
    name: str = ""
    models: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict[str, msgspec.Raw])
    options: msgspec.Raw = msgspec.Raw(b"{}")

    def address(self, model: str | None) -> str:
        """Return the URL of a model: the user's own, else the model's; empty if neither is known."""
        with contextlib.suppress(msgspec.MsgspecError):
            if url := msgspec.json.decode(self.options, type=_Options).url:
                return url
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(self.models.get(model or "", b"{}"), type=_Model).api.url
        return ""


class ModelProviders(OpenCodeRecord, frozen=True):
    """The usable model providers. `default` names a model for each provider's id."""

    providers: tuple[ModelProvider, ...] = ()
    default: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def without(self, id_: str) -> "ModelProviders":
        others = tuple(provider for provider in self.providers if provider.id != id_)
        return ModelProviders(others, {provider: model for provider, model in self.default.items() if provider != id_})


PermissionReply = Literal["once", "always", "reject"]


class AgentClient:
    """A client for the sessions of `directory` only, whatever else the server's store holds.

    Methods raise RookeryError `agent-unavailable`, `timeout`, `session-not-found` or `invalid-input`, with OpenCode's
    message.
    """

    def __init__(
        self,
        http: HttpClient,
        url: str,
        directory: Path,
        password: str,
        response_seconds: float = RESPONSE_SECONDS,
    ) -> None:
        # OpenCode identifies folders by their real path.
        self.connection = ApiConnection(http, url, str(directory.resolve()), password, response_seconds)
        self._own_sessions: set[str] = set()

    @property
    def directory(self) -> str:
        return self.connection.directory

    # Server

    async def health(self, seconds: float = _HEALTH_SECONDS) -> ServerHealth:
        return await self.connection.request("GET", "/global/health", ServerHealth, seconds=seconds)

    async def config(self) -> dict[str, Any]:
        """Return OpenCode's effective settings."""
        return await self.connection.request("GET", "/config", dict[str, Any])

    async def providers(self) -> ModelProviders:
        """Return the providers that have a key or a login, or need none. Rookery's own, for tools, is left out."""
        return (await self.connection.request("GET", "/config/providers", ModelProviders)).without(TOOL_PROVIDER)

    async def tool_ids(self) -> list[str]:
        """Return the ids of the built-in tools and of the tools of plugins, but not of MCP servers."""
        return await self.connection.request("GET", "/experimental/tool/ids", list[str])

    async def agents(self) -> list[AgentDefinition]:
        return await self.connection.request("GET", "/agent", list[AgentDefinition])

    async def show_toast(self, message: str, title: str | None, variant: str, milliseconds: int) -> None:
        body = drop_none(message=message, title=title, variant=variant, duration=milliseconds)
        await self.connection.request("POST", "/tui/show-toast", bool, body=body)

    async def dispose(self) -> None:
        """End everything that runs in the folder, turns included; the next request loads the folder again."""
        await self.connection.request("POST", "/instance/dispose", bool)

    # Sessions

    async def create_session(
        self,
        *,
        title: str | None = None,
        parent: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        permission: Sequence[Mapping[str, str]] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Session:
        """Create a session. `model` is `provider/model`; `permission` rules have `permission`, `pattern`, `action`."""
        chosen = parse_model(model, "id")
        body = drop_none(
            title=title, parentID=parent, agent=agent, model=chosen, permission=permission, metadata=metadata
        )
        require_disk_space()
        session = await self.connection.request("POST", "/session", Session, body=body, session=parent)
        self._own_sessions.add(session.id)
        return session

    async def sessions(self, *, roots: bool = True) -> list[Session]:
        """Return the sessions of the folder, the most recently used first; without `roots` children too."""
        query = {"limit": str(MAX_SESSIONS), **({"roots": "true"} if roots else {})}
        sessions = await self.connection.request("GET", "/session", list[Session], query=query)
        own_sessions = [session for session in sessions if session.directory == self.directory]
        self._own_sessions.update(session.id for session in own_sessions)
        return own_sessions

    async def session(self, id_: str) -> Session:
        """Return a session of the folder; raise `session-not-found` for any other."""
        if not _SESSION_ID.fullmatch(id_):
            raise session_not_found(id_)
        session = await self.connection.request("GET", f"/session/{id_}", Session, session=id_)
        if session.directory != self.directory:
            # OpenCode has one store for all folders, and a turn would run in the other folder.
            raise session_not_found(id_)
        self._own_sessions.add(id_)
        return session

    async def children(self, id_: str) -> list[Session]:
        return await self.connection.request(
            "GET", await self._session_path(id_, "/children"), list[Session], session=id_
        )

    async def delete_session(self, id_: str) -> None:
        """Delete a session with its messages and its children."""
        await self.connection.request("DELETE", await self._session_path(id_), bool, session=id_)
        self._own_sessions.discard(id_)

    async def archive_session(self, id_: str, milliseconds: float) -> Session:
        """Archive a session: its history stays, and it is no longer listed."""
        body = {"time": {"archived": int(milliseconds)}}
        return await self.connection.request("PATCH", await self._session_path(id_), Session, body=body, session=id_)

    async def todos(self, id_: str, kind: type[T]) -> list[T]:
        """Return the todo list of a session, with entries decoded as `kind`."""
        return await self.connection.request("GET", await self._session_path(id_, "/todo"), list[kind], session=id_)

    async def statuses(self) -> dict[str, SessionStatus]:
        """Return the status of each session that is not idle."""
        return await self.connection.request("GET", "/session/status", dict[str, SessionStatus])

    # Turns and messages

    async def prompt(
        self, id_: str, text: str, *, agent: str | None = None, model: str | None = None, message: str | None = None
    ) -> None:
        """Send a message; its turn runs in the background, after the running one. `message` is its id."""
        require_disk_space()
        path = await self._session_path(id_, "/prompt_async")
        await self.connection.request(
            "POST", path, type(None), body=build_message(text, agent, model, message), session=id_
        )

    async def send(
        self,
        id_: str,
        text: str,
        *,
        agent: str | None = None,
        model: str | None = None,
        seconds: float = TURN_SECONDS,
    ) -> Message:
        """Send a message, wait for the end of the turn, and return its last message, which may contain an error.

        The turn goes on if the time limit is reached.
        """
        path = await self._session_path(id_, "/message")
        body = build_message(text, agent, model)
        require_disk_space()
        return await self.connection.request("POST", path, Message, body=body, session=id_, seconds=seconds)

    async def abort(self, id_: str) -> None:
        """Abort the running turn, if there is one."""
        await self.connection.request("POST", await self._session_path(id_, "/abort"), bool, session=id_)

    async def messages(self, id_: str, newest: int = 50) -> list[Message]:
        """Return the newest messages, in the order of their creation."""
        query = {"limit": str(newest)}
        return await self.connection.request(
            "GET", await self._session_path(id_, "/message"), list[Message], query=query, session=id_
        )

    async def message_at(self, id_: str, message: str, kind: type[T]) -> T:
        """Return one message, decoded as `kind`."""
        if not _MESSAGE_ID.fullmatch(message):
            raise _message_not_found(message, id_)
        path = await self._session_path(id_, f"/message/{message}")
        try:
            return await self.connection.request("GET", path, kind)
        except RookeryError as error:
            # A 404 has this code too: the session is known to exist.
            raise (_message_not_found(message, id_) if error.code == "invalid-input" else error) from None

    async def read_messages_as(
        self, id_: str, kind: type[T], newest: int | None = None, *, before: tuple[str, float] | None = None
    ) -> list[T]:
        """Return all messages, or the newest, decoded as `kind`: of long sessions only the needed fields are kept.

        `before` is the id of a message and its time of creation: only messages created before it are returned.
        """
        query = {"limit": str(newest)} if newest is not None else {}
        if before is not None:
            # The format of OpenCode's cursor.
            cursor = msgspec.json.encode({"id": before[0], "time": int(before[1])})
            query["before"] = base64.urlsafe_b64encode(cursor).decode().rstrip("=")
        path = await self._session_path(id_, "/message")
        return await self.connection.request(
            "GET", path, list[kind], query=query, session=id_, seconds=_ALL_MESSAGES_SECONDS
        )

    # Asks

    async def permissions(self) -> list[Permission]:
        """Return the requests for permission, including those of aborted turns, which OpenCode keeps."""
        return await self.connection.request("GET", "/permission", list[Permission])

    async def questions(self) -> list[Question]:
        return await self.connection.request("GET", "/question", list[Question])

    async def answer_permission(self, id_: str, reply: PermissionReply, message: str | None = None) -> None:
        """Answer a request for permission. A rejection ends the turn, unless a `message` gives the model the reason."""
        await self.connection.request(
            "POST", build_ask_path("permission", id_, "reply"), bool, body=drop_none(reply=reply, message=message)
        )

    async def answer_question(self, id_: str, answers: Sequence[Sequence[str]]) -> None:
        """Answer a question with the chosen labels for each of its parts."""
        await self.connection.request("POST", build_ask_path("question", id_, "reply"), bool, body={"answers": answers})

    async def reject_question(self, id_: str) -> None:
        await self.connection.request("POST", build_ask_path("question", id_, "reject"), bool)

    async def _session_path(self, id_: str, rest: str = "") -> str:
        """Return the path of a session, after a check that it belongs to this folder."""
        if id_ not in self._own_sessions:
            await self.session(id_)
        return f"/session/{id_}{rest}"


def _message_not_found(message: str, session: str) -> RookeryError:
    text = f"there is no message {message!r} in {session}"
    return RookeryError("invalid-input", text, "use the id of a message in that session")
