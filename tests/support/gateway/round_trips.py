"""The rounds of one call of a modern client."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.support.gateway.gateway import Gateway
from tests.support.mcp.caller import Caller, Message
from tests.support.mcp.scripted_server import ScriptedServer

# What servers may ask: the parameters, and an answer to them.
QUESTIONS: dict[str, tuple[Message, Message]] = {
    "roots/list": ({}, {"roots": [{"uri": "file:///mine", "name": "mine", "x": 1}]}),
    "sampling/createMessage": (
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "a poem"}}],
            "maxTokens": 10,
            "x-unknown": 1,
        },
        {"role": "assistant", "content": {"type": "text", "text": "no"}, "model": "m", "x-unknown": [1]},
    ),
    "elicitation/create": (
        {"message": "name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
        {"action": "accept", "content": {"name": "Ada"}},
    ),
}
NAME, ADA = QUESTIONS["elicitation/create"]


async def held(gateway: Gateway, caller: Caller, name: str = "one", count: int = 1, **meta: Any) -> Any:
    """Start a call, and return its task, its server, and the request as the server received it."""
    running = caller.begin(f"{name}__hold", **meta)
    server = await gateway.scripted.comes(name)
    return running, server, await server.called("hold", count)


def ask(server: ScriptedServer, number: int | str = "q", method: str = "elicitation/create") -> None:
    server.say({"id": number, "method": method, "params": QUESTIONS[method][0]})


def asked(answer: Message) -> dict[str, Message]:
    """Return the questions of a result, by their keys."""
    result = answer["result"]
    assert result["resultType"] == "input_required" and result["requestState"], answer
    return result["inputRequests"]


def answers(answer: Message) -> dict[str, Message]:
    """Return answers to all questions of a result."""
    return {key: QUESTIONS[one["method"]][1] for key, one in asked(answer).items()}


def next_round(before: Message, given: Mapping[str, Any] | None = None, tool: str = "one__hold") -> Message:
    """Return the parameters of the request that continues a call, with these answers or with all."""
    responses = answers(before) if given is None else given
    return {"name": tool, "inputResponses": responses, "requestState": before["result"]["requestState"]}


def go_on(
    caller: Caller, before: Message, given: Mapping[str, Any] | None = None, tool: str = "one__hold", **meta: Any
) -> "asyncio.Task[Message]":
    params = next_round(before, given, tool) | ({"_meta": meta} if meta else {})
    return asyncio.create_task(caller.ask("tools/call", params))
