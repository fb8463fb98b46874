"""MCP servers that a test controls: real processes with real pipes, running tests/programs/scripted_server.py."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.wire.protocol import revisions
from tests.support.daemon.process import wait_dead
from tests.support.mcp.client import LIMIT, PROGRAMS

Message = dict[str, Any]
CHANGED = "notifications/tools/list_changed"
_LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def tool(name: str, **more: Any) -> Message:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def text(value: Any) -> Message:
    """Return the result of a tool with text content."""
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


@dataclass
class ServerScript:
    """The automatic responses of a scripted server. Methods in `held` and tools named `hold*` are left to the test.

    Other tools return their entry in `results`, or else a description of the call; methods theirs in `replies`, where
    an exception is an error.
    """

    tools: list[Any] = field(default_factory=lambda: [tool("echo"), tool("hold")])
    prompts: list[Any] = field(default_factory=list[Any])
    resources: list[Any] = field(default_factory=list[Any])
    templates: list[Any] = field(default_factory=list[Any])
    more: Message = field(default_factory=dict[str, Any])
    era: str = revisions.LATEST_HANDSHAKE
    held: set[str] = field(default_factory=set[str])
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    replies: dict[str, Callable[[Message], Any]] = field(default_factory=dict[str, Callable[[Message], Any]])
    instructions: str | None = None

    @property
    def capabilities(self) -> Message:
        found: Message = {"tools": {"listChanged": True}, "logging": {}, "completions": {}}
        found |= {"prompts": {"listChanged": True}} if self.prompts else {}
        if self.resources or self.templates:
            found["resources"] = {"listChanged": True, "subscribe": True}
        return found | self.more

    def about(self, name: str) -> Message:
        info = {"name": name, "version": "1"}
        told = {"capabilities": self.capabilities} | ({"instructions": self.instructions} if self.instructions else {})
        if self.era in revisions.MODERN:
            return told | {"supportedVersions": [self.era], "_meta": {revisions.META_SERVER: info}}
        return told | {"protocolVersion": self.era, "serverInfo": info}


class ScriptedServer:
    """One process, from its start to its end."""

    def __init__(self, who: Mapping[str, Any], play: ServerScript, writer: asyncio.StreamWriter) -> None:
        self.pid: int = who["pid"]
        self.name: str = who["name"]
        self.env: dict[str, str] = who["env"]
        self.cwd = Path(who["cwd"])
        self.words: list[str] = who["words"]
        self.play = play
        self.lines: list[str] = []
        self.heard: list[Message] = []
        self.made: list[int] = []
        self.eof = self.ended = False
        self._writer = writer
        self._more = asyncio.Event()

    # ---- what the test does

    def say(self, *messages: Message) -> None:
        for one in messages:
            self.print(json.dumps({"jsonrpc": "2.0", **one}) + "\n")

    def print(self, words: str, *, times: int = 1, fd: int = 1) -> None:
        self.order(fd=fd, text=words, times=times)

    def answer(self, request: Message, result: Any) -> None:
        self.say({"id": request["id"], "result": result})

    def refuse(self, request: Message, code: int, words: str, **more: Any) -> None:
        self.say({"id": request["id"], "error": {"code": code, "message": words, **more}})

    def tell(self, method: str, **params: Any) -> None:
        self.say({"method": method, "params": params})

    def order(self, **command: Any) -> None:
        self._writer.write(json.dumps(command).encode() + b"\n")

    async def change(self, *tools: Any) -> None:
        """Offer other tools from now on, and notify clients."""
        self.play.tools = list(tools)
        self.tell(CHANGED)

    async def hears(self, method: str | None, count: int = 1) -> Message:
        """Wait for this many messages with this method, and return the last; None stands for responses."""
        await self._until(lambda: len(self.all(method)) >= count, f"{method} at {self.name}")
        return self.all(method)[count - 1]

    async def called(self, name: str, count: int = 1) -> Message:
        """Wait for this many calls of a tool, and return the last."""
        await self._until(lambda: len(self.calls(name)) >= count, f"a call of {name}")
        return self.calls(name)[count - 1]

    async def has_made(self, count: int) -> list[int]:
        await self._until(lambda: len(self.made) >= count, "processes that it was to make")
        return self.made

    async def has_ended(self) -> None:
        await self._until(lambda: self.ended, f"the end of {self.name}")
        await asyncio.to_thread(wait_dead, self.pid)

    def all(self, method: str | None) -> list[Message]:
        return [one for one in self.heard if one.get("method") == method]

    def calls(self, name: str) -> list[Message]:
        return [one for one in self.all("tools/call") if one["params"]["name"] == name]

    async def _until(self, so: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(LIMIT):
                while not so():
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"did not come: {what}; heard: {self.heard}") from None

    # ---- what it does by itself

    def take(self, fact: Mapping[str, Any]) -> None:
        if "in" in fact:
            self.lines.append(fact["in"])
            message: Message = json.loads(fact["in"])
            self.heard.append(message)
            self._play(message)
        elif "made" in fact:
            self.made.append(fact["made"])
        elif "eof" in fact:
            self.eof = True
        self._more.set()

    def end(self) -> None:
        self.ended = True
        self._more.set()

    def _play(self, message: Message) -> None:
        method, play = message.get("method", ""), self.play
        if "id" not in message or not method or method in play.held:
            return
        modern = play.era in revisions.MODERN
        if method in play.replies:
            reply = play.replies[method](message.get("params", {}))
            if isinstance(reply, Exception):
                self.refuse(message, -32002, str(reply))
            else:
                self.answer(message, reply)
        elif method in _LISTS:
            kind = _LISTS[method]
            listed = play.templates if kind == "resourceTemplates" else getattr(play, kind)
            self.answer(message, {kind: listed})
        elif method == ("server/discover" if modern else "initialize"):
            self.answer(message, play.about(self.name))
        elif method == "subscriptions/listen" and modern:
            ours = {revisions.META_SUBSCRIPTION: message["id"]}
            wanted = message["params"].get("notifications", {})
            self.tell("notifications/subscriptions/acknowledged", notifications=wanted, _meta=ours)
        elif method == "tools/call":
            self._call(message)
        elif method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe", "ping"):
            self.answer(message, {})
        else:
            self.refuse(message, -32601, f"what is {method}?")

    def _call(self, message: Message) -> None:
        params = message["params"]
        name = params["name"]
        if name in self.play.results:
            self.answer(message, self.play.results[name])
        elif not name.startswith("hold"):
            who = {"server": self.name, "tool": name, "pid": self.pid, "arguments": params.get("arguments")}
            self.answer(message, text(who))


class ScriptedServers:
    """All scripted servers of a test. `plays` has the scripts by name; others have the default script."""

    def __init__(self, folder: Path) -> None:
        self.plays: dict[str, ServerScript] = {}
        self.all: list[ScriptedServer] = []
        self._folder = folder
        self._more = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    def server(self, name: str, play: ServerScript | None = None, *words: str, **more: Any) -> Message:
        """Return the definition of a server, for a file."""
        if play is not None:
            self.plays[name] = play
        program = str(PROGRAMS / "scripted_server.py")
        return {"command": [sys.executable, "-S", program, str(self._folder / "strings"), name, *words], **more}

    def servers(self, *names: str, **more: Any) -> dict[str, Any]:
        return {name: self.server(name, **more) for name in names}

    def of(self, name: str) -> list[ScriptedServer]:
        """Return all processes that were ever started under this name."""
        return [one for one in self.all if one.name == name]

    def alive(self, name: str | None = None) -> list[ScriptedServer]:
        return [one for one in self.all if not one.ended and name in (None, one.name)]

    async def comes(self, name: str, count: int = 1) -> ScriptedServer:
        """Wait for this many processes of this name, and return the last."""
        try:
            async with asyncio.timeout(LIMIT):
                while len(self.of(name)) < count:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{name} was not started {count} times; started: {self.all}") from None
        return self.of(name)[count - 1]

    async def comes_in(self, folder: Path, name: str, but: Container[int]) -> ScriptedServer:
        """Wait for a process of this name in a folder that is none of those, and return it."""

        def find() -> ScriptedServer | None:
            return next((one for one in self.alive(name) if one.cwd == folder.resolve() and one.pid not in but), None)

        async with asyncio.timeout(LIMIT):
            while (found := find()) is None:
                self._more.clear()
                await self._more.wait()
        return found

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._met, str(self._folder / "strings"), limit=2**27)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = json.loads(await reader.readline())
        made = ScriptedServer(who, self.plays.get(who["name"]) or ServerScript(), writer)
        self.all.append(made)
        self._more.set()
        try:
            while line := await reader.readline():
                made.take(json.loads(line))
        except ConnectionError:
            pass
        finally:
            made.end()
            writer.transport.abort()


@asynccontextmanager
async def start_scripted_servers() -> AsyncGenerator[ScriptedServers]:
    folder = Path(os.environ["HOME"]).parent / "servers"
    folder.mkdir(exist_ok=True)
    (folder / "strings").unlink(missing_ok=True)
    made = ScriptedServers(folder)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def all_of(waiting: Iterable[Awaitable[Any]]) -> list[Any]:
    """Wait for all of them concurrently, within a time limit."""
    async with asyncio.timeout(LIMIT):
        return list(await asyncio.gather(*waiting))
