"""The official SDK as the client of any server: makes the requests of stdin in order, and prints the results.

stdin: `{"server": URL or argv, "env": {...}, "plan": [[method, params], ...]}`; stdout: a list of results or errors.
"""

import asyncio
import json
import sys
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)


async def elicit(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada", "confirm": True})


async def sample(context: Any, params: Any) -> CreateMessageResult:
    told = TextContent(type="text", text="a poem")
    return CreateMessageResult(role="assistant", content=told, model="test", stop_reason="endTurn")


async def roots(context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root.model_validate({"uri": "file:///here", "name": "here"})])


async def ask(client: Client, method: str, params: dict[str, Any]) -> Any:
    try:
        if method == "tools/call":
            result: Any = await client.call_tool(params["name"], params["arguments"])
        elif method == "resources/read":
            result = await client.read_resource(params["uri"])
        elif method == "prompts/get":
            result = await client.get_prompt(params["name"], params["arguments"])
        else:
            lists: dict[str, Any] = {
                "tools/list": client.list_tools,
                "prompts/list": client.list_prompts,
                "resources/list": client.list_resources,
                "resources/templates/list": client.list_resource_templates,
            }
            result = await lists[method]()
    except MCPError as error:
        return {"error": error.error.message}
    return result.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def main() -> None:
    told = json.loads(sys.stdin.read())
    server: Any = told["server"]
    if not isinstance(server, str):
        server = StdioServerParameters(command=server[0], args=server[1:], env=told["env"])
    async with Client(
        server,
        mode="legacy",
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
    ) as client:
        print(json.dumps([await ask(client, method, params) for method, params in told["plan"]]))


asyncio.run(main())
