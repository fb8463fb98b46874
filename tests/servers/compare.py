"""Lists and harmless calls of real servers, directly and through both views, as raw JSON."""

import asyncio
import json
import os
import re
import subprocess
import tomllib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.upstreams.connect import CLIENT_IDENTITY
from tests.conformance.suite import NODE
from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of
from tests.support.mcp.caller import HANDSHAKE, Caller, Message
from tests.support.npm.packages import fetched as fetched_from_npm
from tests.support.pypi import fetched as fetched_from_pypi

SERVERS = Path(__file__).with_name("servers.toml")
LISTS = {
    "tools": ("tools/list", "name"),
    "prompts": ("prompts/list", "name"),
    "resources": ("resources/list", "uri"),
    "resourceTemplates": ("resources/templates/list", "uriTemplate"),
}
_SECONDS = 120.0
_LINE_BYTES = 2**26


@dataclass
class RealServer:
    """One entry of servers.toml. Of `calls`, each is a tool with its arguments."""

    name: str
    version: str
    npm: str = ""
    pypi: str = ""
    program: str = ""
    args: list[str] = field(default_factory=list[str])
    env: dict[str, str] = field(default_factory=dict[str, str])
    calls: list[list[Any]] = field(default_factory=list[list[Any]])
    # Packages that its release needs in other versions than the newest.
    also: list[str] = field(default_factory=list[str])

    def install(self, files: Path) -> Message:
        """Install the server, and return its definition. `{files}` stands for a folder with a few files."""
        if self.npm:
            modules = fetched_from_npm(f"servers/{self.name}", {self.npm: self.version})
            about = json.loads((modules / self.npm / "package.json").read_text())
            programs = about["bin"] if isinstance(about["bin"], dict) else {self.npm: about["bin"]}
            script = modules / self.npm / (programs[self.program] if self.program else next(iter(programs.values())))
            command = [str(NODE / "bin" / "node"), str(script)]
            env = {"PATH": os.pathsep.join([str(NODE / "bin"), os.environ["PATH"]])}
        else:
            folder = fetched_from_pypi(self.name, [f"{self.pypi}=={self.version}", *self.also])
            command, env = [str(folder / "bin" / (self.program or self.pypi))], {"PYTHONPATH": str(folder)}
        given = [word.replace("{files}", str(files)) for word in self.args]
        more = {name: value.replace("{files}", str(files)) for name, value in self.env.items()}
        self.calls = json.loads(json.dumps(self.calls).replace("{files}", str(files)))
        return {"command": [*command, *given], "environment": env | more, "timeouts": {"startup": _SECONDS}}


def read_servers(names: Sequence[str] = ()) -> list[RealServer]:
    entries = tomllib.loads(SERVERS.read_text())["server"]
    return [RealServer(**entry) for entry in entries if not names or entry["name"] in names]


@dataclass
class Answers:
    """What a server lists and answers over one way, and the revision of the connection."""

    revision: str
    lists: dict[str, list[Message]]
    calls: list[Message]


class DirectClient:
    """A client of a local server in the handshake era, without the code that is compared."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._number = 0

    async def ask(self, method: str, params: Message | None = None) -> Message:
        self._number += 1
        await self._send({"id": self._number, "method": method, "params": params or {}})
        assert self._process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            while line := await self._process.stdout.readline():
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if "method" in message and "id" in message:
                    answer: Message = {"result": {"roots": []}} if message["method"] == "roots/list" else {}
                    answer = answer or {"error": {"code": -32601, "message": "not here"}}
                    await self._send({"id": message["id"], **answer})
                elif message.get("id") == self._number:
                    return message
        raise RuntimeError("the server ended")

    async def open(self) -> Message:
        about = {"name": "direct", "version": "1"}
        hello: Message = {
            "protocolVersion": HANDSHAKE,
            "capabilities": CLIENT_IDENTITY.capabilities,
            "clientInfo": about,
        }
        answer = await self.ask("initialize", hello)
        await self._send({"method": "notifications/initialized"})
        return answer["result"]

    async def _send(self, message: Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self._process.stdin.drain()


@asynccontextmanager
async def open_direct(definition: Mapping[str, Any], folder: Path) -> AsyncGenerator[DirectClient]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    env = inherited | definition["environment"]
    process = await asyncio.create_subprocess_exec(
        *definition["command"],
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        limit=_LINE_BYTES,
        start_new_session=True,
    )
    try:
        yield DirectClient(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def ask_directly(server: RealServer, definition: Mapping[str, Any], folder: Path) -> Answers:
    async with open_direct(definition, folder) as client:
        about = await client.open()
        able = {"tools": "tools", "prompts": "prompts", "resources": "resources", "resourceTemplates": "resources"}
        lists: dict[str, list[Message]] = {}
        for kind, (method, _) in LISTS.items():
            lists[kind] = []
            params: Message | None = {}
            while params is not None and able[kind] in about["capabilities"]:
                result = (await client.ask(method, params)).get("result", {})
                lists[kind] += result.get(kind, [])
                params = {"cursor": result["nextCursor"]} if result.get("nextCursor") else None
        calls = [await client.ask("tools/call", {"name": tool, "arguments": given}) for tool, given in server.calls]
        return Answers(about["protocolVersion"], lists, calls)


async def ask_through(gateway: Gateway, server: RealServer, path: str, prefix: str) -> Answers:
    """Return what one view has of a server. Names and URIs are the server's own again, where they can be."""
    caller: Caller = await gateway.caller(path, HANDSHAKE, able={}, limit=_SECONDS)
    lists: dict[str, list[Message]] = {}
    for kind, (method, key) in LISTS.items():
        listed = (await caller.ask(method))["result"][kind]
        mark = prefix if key == "name" else prefix.replace("__", "+")
        own = [entry for entry in listed if entry[key].startswith(mark)]
        lists[kind] = [entry | {key: entry[key].removeprefix(mark)} for entry in own]
    calls = [
        await caller.ask("tools/call", {"name": prefix + tool, "arguments": given}) for tool, given in server.calls
    ]
    await caller.close()
    return Answers("", lists, calls)


def find_differences(direct: Answers, through: Answers, problems: Sequence[str]) -> list[str]:
    """Return what differs. Definitions that Rookery has repaired, and the order of lists, may differ."""

    def comparable(entries: Sequence[Message], key: str) -> list[Message]:
        kept = [entry for entry in entries if not any(repr(entry[key]) in problem for problem in problems)]
        return sorted(kept, key=lambda entry: str(entry[key]))

    found = [
        kind
        for kind, (_, key) in LISTS.items()
        if comparable(direct.lists[kind], key) != comparable(through.lists[kind], key)
    ]
    for mine, theirs in zip(direct.calls, through.calls, strict=True):
        if _without_numbers(mine) != _without_numbers(theirs):
            found.append(f"a call: {json.dumps(mine)[:150]} and {json.dumps(theirs)[:150]}")
    return found


def _without_numbers(message: Message) -> Any:
    """Return a response without its id, and without times, which differ from call to call."""
    text = json.dumps({key: value for key, value in message.items() if key not in ("id", "jsonrpc")}, sort_keys=True)
    return re.sub(r"\d{2}:\d{2}:\d{2}(\.\d+)?", "TIME", text)


async def compare_server(server: RealServer, home: Path) -> tuple[str, bool]:
    """Return the line of one server for the table, and whether everything was the same."""
    folder = home / "src" / "app"
    files = home / "files"
    try:
        definition = await asyncio.to_thread(server.install, files)
    except (subprocess.SubprocessError, OSError, KeyError) as error:
        return f"not installed: {type(error).__name__}", False
    try:
        direct = await ask_directly(server, definition, folder)
        async with start_gateway({server.name: definition}, folder) as gateway:
            single = await ask_through(gateway, server, view_of(folder, server.name), "")
            together = await ask_through(gateway, server, view_of(folder), f"{server.name}__")
            problems = (await gateway.server(server.name, folder)).list_problems()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:160], False
    counts = "  ".join(f"{len(direct.lists[kind]):4}" for kind in ("tools", "prompts", "resources"))
    different = [
        f"{view}: {', '.join(found)}"
        for view, answers in (("alone", single), ("together", together))
        if (found := find_differences(direct, answers, problems))
    ]
    same = f"same, {len(problems)} repaired" if problems else "same"
    line = f"{direct.revision}  {counts}  {len(server.calls):5}  {'; '.join(different) or same}"
    return line, not different


async def compare_servers(home: Path, names: Sequence[str]) -> int:
    checkout()
    servers = read_servers(names)
    assert servers, "there is no such server"
    print(f"{'server':24} {'version':12} revision    tools prompts resources calls  directly and through both views")
    failed = 0
    for server in servers:
        line, same = await compare_server(server, home)
        failed += not same
        print(f"{server.name:24} {server.version:12} {line}", flush=True)
    print(f"{len(servers) - failed} of {len(servers)} are the same")
    return 1 if failed else 0
