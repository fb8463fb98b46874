"""`python -m tests.conformance.client URL`: our client, driven by the conformance suite."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from rookery.system.errors import RookeryError
from rookery.wire.client.client import Client, Timeouts
from rookery.wire.client.connect import connect_client
from rookery.wire.client.encode import ClientIdentity
from rookery.wire.client.http import HttpTransport
from rookery.wire.client.remote import Credentials
from rookery.wire.http_client.client import HttpClient
from rookery.wire.protocol.messages import Params
from tests.conformance.person import Person

IDENTITY = ClientIdentity(
    {"name": "rookery-conformance-client", "version": "1.0.0"},
    {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": False}},
)


class Form(msgspec.Struct):
    properties: dict[str, dict[str, Any]] = {}


async def answer(method: str, params: Params) -> Mapping[str, Any]:
    """Answer as a user and a model would: the defaults of a form, a greeting, one root."""
    if method == "elicitation/create":
        form = msgspec.json.decode(params["requestedSchema"], type=Form) if "requestedSchema" in params else Form()
        content = {name: field.get("default", _some(field)) for name, field in form.properties.items()}
        return {"action": "accept", "content": content}
    if method == "sampling/createMessage":
        return {
            "role": "assistant",
            "content": {"type": "text", "text": "Hello."},
            "model": "test",
            "stopReason": "endTurn",
        }
    return {"roots": [{"uri": "file:///test", "name": "test"}]}


def _some(field: Mapping[str, Any]) -> Any:
    return {"boolean": True, "integer": 1, "number": 1.0}.get(field.get("type", ""), "test")


async def run(url: str, scenario: str, context: Mapping[str, Any], revision: str) -> None:
    """Run a client whose user signs in whenever the server requires it, up to a limit."""
    async with Person(url, context) as person:
        while True:
            try:
                await visit(url, scenario, context, revision, person.credentials)
            except RookeryError as error:
                if error.code != "needs-auth" or not person.patient:
                    raise
                await person.sign_in()
            else:
                return


async def visit(
    url: str, scenario: str, context: Mapping[str, Any], revision: str, credentials: Credentials | None
) -> None:
    async with HttpClient() as http:
        client, _ = await connect_client(
            lambda channel: Client(channel, IDENTITY, Timeouts(), answer),
            HttpTransport(http, url, credentials=credentials),
            known_era="handshake" if revision < "2026" else "modern",
        )
        try:
            tools = [msgspec.json.decode(tool) for tool in await client.list_all("tools/list", "tools")]
            for name, arguments in calls(scenario, context, tools):
                await client.call_tool(name, arguments)
        finally:
            await client.close()


def calls(scenario: str, context: Mapping[str, Any], tools: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that a scenario requires."""
    if scenario in ("initialize", "json-schema-ref-no-deref"):
        return []
    if "toolCalls" in context:
        return [(call["name"], call.get("arguments", {})) for call in context["toolCalls"]]
    if scenario == "tools_call":
        return [("add_numbers", {"a": 5, "b": 3})]
    return [(tool["name"], _arguments(tool.get("inputSchema") or {})) for tool in tools]


def _arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _some(schema.get("properties", {}).get(name, {})) for name in schema.get("required", [])}


if __name__ == "__main__":
    asyncio.run(
        run(
            sys.argv[-1],
            os.environ.get("MCP_CONFORMANCE_SCENARIO", ""),
            json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
            os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25"),
        )
    )
