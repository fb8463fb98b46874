"""A small agent: a model, the tools of every MCP server behind Rookery, and a loop around them.

    python docs/guide/python-agent.py

plays a script in place of a model, so that it runs without a key and without a network. With a model behind any API
like OpenAI's it is a real agent:

    MODEL_URL=https://… MODEL=… MODEL_KEY=… python docs/guide/python-agent.py "What is this project about?"
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import rookery
from rookery.testing.model import scripted_model

MOST_ROUNDS = 20
SCRIPT: dict[str, Any] = {
    "step": [
        {"say": "I look.", "call": "list_directory", "with": {"path": "."}, "expect_tools": ["list_directory"]},
        {"say": "I see: {{result}}"},
    ]
}


async def main(question: str) -> None:
    async with AsyncExitStack() as stack:
        r = await stack.enter_async_context(rookery.connect(start=True))
        url = os.environ.get("MODEL_URL")
        if url is None:
            url = (await stack.enter_async_context(scripted_model(SCRIPT))).url
        await r.projects.add(Path.cwd())
        tools = await r.hub.tools(workspace=Path.cwd(), toolsets=["project"])
        print(await answer_of(url, tools, question))


async def answer_of(url: str, tools: dict[str, Any], question: str) -> str:
    """Ask, run what the model wants to have run, tell it what came of that, and so on until it only speaks."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for _ in range(MOST_ROUNDS):
        offered = [tool.for_openai() for tool in tools.values()]
        said = await asyncio.to_thread(complete, url, {"messages": messages, "tools": offered})
        messages.append(said)
        if not said.get("tool_calls"):
            return said["content"]
        # One after another: `concurrency_safe` is false for all of them.
        for call in said["tool_calls"]:
            print(f"{call['function']['name']} {call['function']['arguments']}", file=sys.stderr)
            messages.append(await run(tools, call))
    raise RuntimeError(f"no answer after {MOST_ROUNDS} rounds")


async def run(tools: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """The message that answers one call; what goes wrong is for the model to read, too."""
    try:
        arguments = json.loads(call["function"]["arguments"] or "{}")
        result = await tools[call["function"]["name"]].execute(arguments, timeout=120, check=False)
    except KeyError as error:
        return {"role": "tool", "tool_call_id": call["id"], "content": f"there is no tool {error}"}
    except (ValueError, rookery.RookeryError) as error:
        return {"role": "tool", "tool_call_id": call["id"], "content": f"it failed: {error}"}
    return result.for_openai(call["id"])


def complete(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """One request to the model; the message that it answers with."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('MODEL_KEY', '')}"}
    data = json.dumps({"model": os.environ.get("MODEL", "scripted"), **body}).encode()
    with urlopen(Request(f"{url}/chat/completions", data, headers), timeout=300) as answer:
        return json.loads(answer.read())["choices"][0]["message"]


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "What is in this folder?"))
