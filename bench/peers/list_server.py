"""`list_server.py FILE`: a stdio server that lists the tools in a JSON file, and does nothing else."""

import json
import sys
from pathlib import Path
from typing import Any


def main(file: str) -> None:
    tools = json.loads(Path(file).read_text(encoding="utf-8"))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **_answer(message["method"], tools)}), flush=True)


def _answer(method: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
    if method == "tools/list":
        return {"result": {"tools": tools}}
    if method == "initialize":
        info = {"name": "list", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    return {"error": {"code": -32601, "message": f"no {method} here"}}


if __name__ == "__main__":
    main(sys.argv[1])
