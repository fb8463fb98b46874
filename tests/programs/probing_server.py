"""An MCP server over stdio whose tools try to reach something. With an argument it opens that file first."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

TOOLS = [
    {"name": name, "inputSchema": {"type": "object", "properties": {"target": {"type": "string"}}}}
    for name in ("read", "write", "connect", "unix", "shell")
]


def probe(tool: str, target: str) -> str:
    if tool == "read":
        return Path(target).read_text()
    if tool == "write":
        Path(target).write_text("written")
    elif tool == "shell":
        ran = subprocess.run(["sh", "-c", target], capture_output=True, text=True, timeout=60)
        return f"{ran.returncode}\n{ran.stdout}{ran.stderr}"
    elif tool == "connect":
        socket.create_connection(("127.0.0.1", int(target)), 5).close()
    else:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(target)
    return "done"


def answer(method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "probing", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, failed = probe(params["name"], params["arguments"]["target"]), False
        except OSError as error:
            text, failed = f"{type(error).__name__}: {error}", True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return None


def main() -> None:
    for path in sys.argv[1:]:
        Path(path).read_bytes()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        body = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


main()
