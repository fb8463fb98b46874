"""`server-everything` of the protocol's authors returns the same to our client as to the SDK's."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.wire.client.encode import ClientIdentity
from rookery.wire.client.http import HttpTransport
from rookery.wire.client.stdio import ServerProgram, StdioTransport
from rookery.wire.http_client.client import HttpClient
from rookery.wire.protocol.messages import WireError
from tests.conformance.suite import NODE
from tests.support.mcp.client import IDENTITY, PROGRAMS, ConnectedClient, connect, read, within_limit
from tests.support.npm.mcp_servers import OFFLINE, everything_at_a_port, installed
from tests.support.npm.packages import SECONDS, folder_of
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("wire.interop.peers")]

ENVIRONMENT = {"PATH": os.environ["PATH"], **OFFLINE}
# The server offers more tools to clients that can do more.
LIKE_THE_SDK = ClientIdentity(IDENTITY.info, {**IDENTITY.capabilities, "elicitation": {"form": {}, "url": {}}})
LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]
# What may be left out, but would take long.
QUICK = {"trigger-long-running-operation": {"duration": 0.05, "steps": 2}}
PROMPT_ARGUMENTS = {
    "city": "Paris",
    "state": "Texas",
    "department": "Engineering",
    "name": "Alice",
    "resourceType": "Text",
    "resourceId": "1",
}
# Times and session ids differ from call to call.
VOLATILE = re.compile(r"\d{1,2}:\d{2}:\d{2}(\.\d+Z| [AP]M)?|[0-9a-f]{8}-[0-9a-f-]{27}")


@pytest.fixture(scope="module")
def anyio_backend() -> Any:
    """The other loop would give the same, and takes as long."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def node() -> list[str]:
    """The command that starts the server."""
    return [str(NODE / "bin" / "node"), str(installed("everything") / "dist" / "index.js")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with everything_at_a_port() as address:
        yield address


@asynccontextmanager
async def ours(server: str | list[str]) -> AsyncGenerator[ConnectedClient]:
    async with HttpClient() as http:
        channel = (
            HttpTransport(http, server)
            if isinstance(server, str)
            else StdioTransport(
                Spawner(new_id()), ServerProgram("everything", server, folder_of("everything"), ENVIRONMENT)
            )
        )
        async with connect(channel, identity=LIKE_THE_SDK) as met:
            yield met


def theirs(server: str | list[str], plan: Sequence[tuple[str, Any]]) -> list[Any]:
    """What the SDK's client gets for the same plan."""
    done = subprocess.run(
        [sys.executable, "-P", PROGRAMS / "sdk_client.py"],
        input=json.dumps({"server": server, "env": ENVIRONMENT, "plan": plan}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def ask(met: ConnectedClient, method: str, params: Any) -> Any:
    try:
        return read(await within_limit(met.client.call(method, params)))
    except WireError as error:
        return {"error": error.message}


async def make_plan(met: ConnectedClient) -> list[tuple[str, Any]]:
    """Every list, every tool that needs no input, every resource on the first page and every prompt."""
    tools, prompts, resources, _ = [await ask(met, method, {}) for method in LISTS]
    plan: list[tuple[str, Any]] = [(method, {}) for method in LISTS]
    for tool in tools["tools"]:
        if not tool["inputSchema"].get("required") and tool.get("execution", {}).get("taskSupport") != "required":
            plan += [("tools/call", {"name": tool["name"], "arguments": QUICK.get(tool["name"], {})})]
    plan += [("resources/read", {"uri": resource["uri"]}) for resource in resources["resources"]]
    for prompt in prompts["prompts"]:
        arguments = {one["name"]: PROMPT_ARGUMENTS[one["name"]] for one in prompt.get("arguments", [])}
        plan.append(("prompts/get", {"name": prompt["name"], "arguments": arguments}))
    return plan


def stable(value: Any, params: Any) -> Any:
    if params.get("name") == "get-env":
        # Each client adds something of its own to what the server is started with.
        found = json.loads(value["content"][0]["text"])
        return {name: found[name] for name in ENVIRONMENT}
    return json.loads(VOLATILE.sub("", json.dumps(value)))


def only_known(mine: Any, other: Any) -> Any:
    """Mine without the fields that the SDK dropped because it does not know them."""
    if isinstance(mine, dict) and isinstance(other, dict):
        found, kept = cast(dict[str, Any], mine), cast(dict[str, Any], other)
        return {key: only_known(value, kept[key]) for key, value in found.items() if key in kept}
    if isinstance(mine, list) and isinstance(other, list):
        pairs = zip(cast(list[Any], mine), cast(list[Any], other), strict=True)
        return [only_known(one, two) for one, two in pairs]
    return cast(Any, mine)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_everything_gives_the_same_through_our_client_as_through_the_sdks(
    way: str, node: list[str], request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("url") if way == "http" else [*node, "stdio"]
    async with ours(server) as met:
        assert (met.era, met.client.revision) == ("handshake", "2025-11-25")
        plan = await make_plan(met)
        mine = [await ask(met, method, params) for method, params in plan]
    asked = {method: sum(one == method for one, _ in plan) for method, _ in plan}
    assert asked["tools/call"] >= 8 and asked["resources/read"] >= 7 and asked["prompts/get"] >= 4, asked
    others = await asyncio.to_thread(theirs, server, plan)
    for (method, params), one, other in zip(plan, mine, others, strict=True):
        expected = stable(other, params)
        assert only_known(stable(one, params), expected) == expected, (method, params)
