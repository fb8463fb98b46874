"""A third-party MCP server for the demo: the tickets of its project, over stdio. It needs nothing but Python."""

import json
import sys
from typing import Any

TICKETS = {
    1: "greet() with an empty name answers 'Hello, !'. It should greet the world then.",
    2: "There is greet(), and no way to say goodbye. Add farewell(name) in a file of its own, with a test.",
}
TOOL = {
    "name": "read_ticket",
    "description": "Reads a ticket of the project",
    "inputSchema": {
        "type": "object",
        "properties": {"number": {"type": "integer", "description": "Which ticket"}},
        "required": ["number"],
    },
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for a method that is not known."""
    if method == "initialize":
        info = {"name": "tickets", "version": "1.0.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        number = params.get("arguments", {}).get("number")
        text = TICKETS.get(number)
        told = f"Ticket {number}: {text}" if text else f"there is no ticket {number}"
        return {"content": [{"type": "text", "text": told}], "isError": text is None}
    return None


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        result = answer(asked["method"], asked.get("params") or {})
        unknown = {"error": {"code": -32601, "message": f"unknown method {asked['method']}"}}
        told = {"jsonrpc": "2.0", "id": asked["id"], **(unknown if result is None else {"result": result})}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
