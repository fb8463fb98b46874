"""Repositories that define MCP servers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# The smallest server there is. It leaves a note that it was started, in the folder that it runs in.
SERVER = """
import json, pathlib, sys
pathlib.Path("started").touch()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"error": {"code": -32601, "message": "no such method"}}
    if asked["method"] == "initialize":
        about = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "small", "version": "1"}}
        answer = {"result": about | {"capabilities": {"tools": {}}}}
    elif asked["method"] == "tools/list":
        answer = {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
    elif asked["method"] == "tools/call":
        answer = {"result": {"content": [{"type": "text", "text": "done"}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | answer), flush=True)
"""


def local(**more: Any) -> dict[str, Any]:
    """Return the definition of that server."""
    return {"command": sys.executable, "args": ["server.py"], **more}


def make_checkout(folder: Path, **servers: dict[str, Any]) -> Path:
    """Create a repository with these servers, by default one called `tools`."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=30)
    (folder / "server.py").write_text(SERVER)
    define(folder, **servers or {"tools": local()})
    return folder.resolve()


def define(folder: Path, **servers: dict[str, Any]) -> None:
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=2))


def was_started(folder: Path) -> bool:
    return (folder / "started").exists()
