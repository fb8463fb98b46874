"""An MCP server over stdio that offers what a file says: {"tools": [...], "instructions": "..."}, read at each list."""

import json
import sys
from pathlib import Path
from typing import Any

OFFER = Path(sys.argv[1])


def answer(message: dict[str, Any]) -> Any:
    method, offer = message["method"], json.loads(OFFER.read_text(encoding="utf-8"))
    if method == "initialize":
        about = {"name": "listing", "version": offer.get("version", "1.0")}
        told = {"instructions": offer["instructions"]} if "instructions" in offer else {}
        version = message["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about, **told}
    if method == "tools/list":
        return {"tools": offer["tools"]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"called {message['params']['name']}"}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request)
        body = {"result": result} if result is not None else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)
