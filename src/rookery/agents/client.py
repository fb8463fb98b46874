"""OpenCode's API, typed, for one folder: what Rookery uses of it, and no more."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from rookery.agents.bodies import ask_path, given, model_as, turn
from rookery.agents.injection import TOOL_PROVIDER
from rookery.agents.link import Link
from rookery.agents.offers import AgentKind, Health, Providers
from rookery.agents.records import Doing, Message, Permission, Question, Session
from rookery.agents.refusals import no_session
from rookery.wire.http_client import HttpClient

TURN_SECONDS = 600.0
_HEALTH_SECONDS = 5.0
# OpenCode takes seconds to tell of thousands of messages.
_WHOLE_SECONDS = 120.0
# Without a limit of ours OpenCode lists a hundred.
SESSIONS = 10_000
# An id of another form makes OpenCode fail, and would be part of a path.
_SESSION = re.compile(r"ses_[0-9A-Za-z_-]+")

Reply = Literal["once", "always", "reject"]
T = TypeVar("T")


class AgentClient:
    """Speaks of the sessions of `directory` only, whatever else the server's store holds.

    Raises RookeryError: `agent-unavailable`, `timeout`, `session-not-found` or `invalid-input`, in OpenCode's words.
    """

    def __init__(self, http: HttpClient, url: str, directory: Path, password: str) -> None:
        # OpenCode knows folders by their real path.
        self.link = Link(http, url, str(directory.resolve()), password)
        self._own: set[str] = set()

    @property
    def directory(self) -> str:
        return self.link.directory

    # ---- the server

    async def health(self, seconds: float = _HEALTH_SECONDS) -> Health:
        return await self.link.ask("GET", "/global/health", Health, seconds=seconds)

    async def config(self) -> dict[str, Any]:
        """OpenCode's settings as they are in force."""
        return await self.link.ask("GET", "/config", dict[str, Any])

    async def providers(self) -> Providers:
        """Those that can be used: with a key, a login, or in need of none. Ours is for tools, not for sessions."""
        return (await self.link.ask("GET", "/config/providers", Providers)).without(TOOL_PROVIDER)

    async def tool_ids(self) -> list[str]:
        """Built-in tools and those of plugins; those of MCP servers are not among them."""
        return await self.link.ask("GET", "/experimental/tool/ids", list[str])

    async def agents(self) -> list[AgentKind]:
        return await self.link.ask("GET", "/agent", list[AgentKind])

    async def show_toast(self, message: str, title: str | None, variant: str, milliseconds: int) -> None:
        body = given(message=message, title=title, variant=variant, duration=milliseconds)
        await self.link.ask("POST", "/tui/show-toast", bool, body=body)

    async def dispose(self) -> None:
        """End all that runs in the folder, turns included; the next request loads it anew."""
        await self.link.ask("POST", "/instance/dispose", bool)

    # ---- sessions

    async def create_session(
        self,
        *,
        title: str | None = None,
        parent: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        permission: Sequence[Mapping[str, str]] | None = None,
    ) -> Session:
        """`model` is `provider/model`; `permission` are rules with `permission`, `pattern` and `action`."""
        chosen = model_as(model, "id")
        body = given(title=title, parentID=parent, agent=agent, model=chosen, permission=permission)
        made = await self.link.ask("POST", "/session", Session, body=body, session=parent)
        self._own.add(made.id)
        return made

    async def sessions(self, *, roots: bool = True) -> list[Session]:
        """Those of the folder, the one that was used last first; without `roots` children too."""
        query = {"limit": str(SESSIONS), **({"roots": "true"} if roots else {})}
        found = await self.link.ask("GET", "/session", list[Session], query=query)
        own = [one for one in found if one.directory == self.directory]
        self._own.update(one.id for one in own)
        return own

    async def session(self, id_: str) -> Session:
        if not _SESSION.fullmatch(id_):
            raise no_session(id_)
        found = await self.link.ask("GET", f"/session/{id_}", Session, session=id_)
        if found.directory != self.directory:
            # Their store is one for all folders, and a turn would run in the other one.
            raise no_session(id_)
        self._own.add(id_)
        return found

    async def children(self, id_: str) -> list[Session]:
        return await self.link.ask("GET", await self._at(id_, "/children"), list[Session], session=id_)

    async def delete_session(self, id_: str) -> None:
        """With its messages and its children."""
        await self.link.ask("DELETE", await self._at(id_), bool, session=id_)
        self._own.discard(id_)

    async def archive_session(self, id_: str, milliseconds: float) -> Session:
        """Put it away; its history stays, and it is listed no longer."""
        body = {"time": {"archived": int(milliseconds)}}
        return await self.link.ask("PATCH", await self._at(id_), Session, body=body, session=id_)

    async def todos(self, id_: str, kind: type[T]) -> list[T]:
        """The list of what is to do that a session keeps for itself."""
        return await self.link.ask("GET", await self._at(id_, "/todo"), list[kind], session=id_)

    async def statuses(self) -> dict[str, Doing]:
        """What each session does that is not idle."""
        return await self.link.ask("GET", "/session/status", dict[str, Doing])

    # ---- turns and messages

    async def prompt(
        self, id_: str, text: str, *, agent: str | None = None, model: str | None = None, message: str | None = None
    ) -> None:
        """Send a message; the turn runs by itself, after the one that is running. `message` is an id for it."""
        path = await self._at(id_, "/prompt_async")
        await self.link.ask("POST", path, type(None), body=turn(text, agent, model, message), session=id_)

    async def send(
        self,
        id_: str,
        text: str,
        *,
        agent: str | None = None,
        model: str | None = None,
        seconds: float = TURN_SECONDS,
    ) -> Message:
        """Send a message and wait for the end of the turn: its last message, which may hold an error.

        The turn goes on where the time limit is reached.
        """
        path = await self._at(id_, "/message")
        body = turn(text, agent, model)
        return await self.link.ask("POST", path, Message, body=body, session=id_, seconds=seconds)

    async def abort(self, id_: str) -> None:
        """End the running turn, if there is one."""
        await self.link.ask("POST", await self._at(id_, "/abort"), bool, session=id_)

    async def messages(self, id_: str, newest: int = 50) -> list[Message]:
        """The newest ones, in the order in which they were made."""
        query = {"limit": str(newest)}
        return await self.link.ask("GET", await self._at(id_, "/message"), list[Message], query=query, session=id_)

    async def whole(self, id_: str, kind: type[T], newest: int | None = None) -> list[T]:
        """All messages, or the newest, decoded as `kind`: of long sessions only what is wanted is kept."""
        query = {"limit": str(newest)} if newest is not None else {}
        path = await self._at(id_, "/message")
        return await self.link.ask("GET", path, list[kind], query=query, session=id_, seconds=_WHOLE_SECONDS)

    # ---- asks

    async def permissions(self) -> list[Permission]:
        """Also those of turns that were aborted: OpenCode does not forget them."""
        return await self.link.ask("GET", "/permission", list[Permission])

    async def questions(self) -> list[Question]:
        return await self.link.ask("GET", "/question", list[Question])

    async def answer_permission(self, id_: str, reply: Reply, message: str | None = None) -> None:
        """With a `message` the model is told why not, and goes on; a rejection without one ends the turn."""
        await self.link.ask(
            "POST", ask_path("permission", id_, "reply"), bool, body=given(reply=reply, message=message)
        )

    async def answer_question(self, id_: str, answers: Sequence[Sequence[str]]) -> None:
        """The labels that were chosen, for each of the questions."""
        await self.link.ask("POST", ask_path("question", id_, "reply"), bool, body={"answers": answers})

    async def reject_question(self, id_: str) -> None:
        await self.link.ask("POST", ask_path("question", id_, "reject"), bool)

    async def _at(self, id_: str, rest: str = "") -> str:
        """The path of a session that is known to be of this folder."""
        if id_ not in self._own:
            await self.session(id_)
        return f"/session/{id_}{rest}"
