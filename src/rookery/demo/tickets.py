"""An MCP server over stdio for the demo: the tickets of its project. It needs nothing but Python."""

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


def handle_request(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request, or None for an unknown method."""
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
        message = f"Ticket {number}: {text}" if text else f"there is no ticket {number}"
        return {"content": [{"type": "text", "text": message}], "isError": text is None}
    return None


def main() -> None:
    """Respond to requests from stdin until it ends. Notifications are ignored."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        result = handle_request(request["method"], request.get("params") or {})
        unknown = {"error": {"code": -32601, "message": f"unknown method {request['method']}"}}
        response = {"jsonrpc": "2.0", "id": request["id"], **(unknown if result is None else {"result": result})}
        sys.stdout.write(json.dumps(response) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
