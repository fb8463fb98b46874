"""A stdio server of the handshake era that returns control characters, and accepts every kind of argument.

With --dies it prints control characters to stderr, and ends.
"""

import base64
import json
import sys
from typing import Any

# Clears the screen, changes the title, turns text round, hides some, and rings.
NASTY = "\x1b[2J\x1b]0;owned\x07 \u202egpj.exe\u202c \u200bhid\u2060den \x9b31m\x08\x08"
PICTURE = b"\x89PNG not really"

KINDS = {
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "maybe": {"type": ["number", "null"]},
    "flag": {"type": "boolean"},
    "items": {"type": "array", "items": {"type": "string"}},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "colour": {"enum": ["red", "12"]},
    "region": {"type": "string", "x-mcp-header": "Region"},
    "inner": {"type": "object", "properties": {"tenant": {"type": "integer", "x-mcp-header": "Tenant"}}},
    "loose": {},
}
TOOLS: list[dict[str, Any]] = [
    {"name": "nasty", "description": f"Says {NASTY}\nsecond line", "inputSchema": {"type": "object"}},
    {"name": "kinds", "description": "Tells what it got.", "inputSchema": {"type": "object", "properties": KINDS}},
    {"name": "fails", "inputSchema": {"type": "object"}},
    {"name": "picture", "inputSchema": {"type": "object"}},
    {"name": "odd-content", "inputSchema": {"type": "object"}},
    {"name": "refuses", "inputSchema": {"type": "object"}},
    {"name": "numbers", "inputSchema": {"type": "object"}},
]
NUMBERS = '{"content":[],"structuredContent":{"big":12345678901234567890123,"wide":1e400,"z":1,"a":1.0}}'


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(id_: Any, result: Any) -> None:
    say(json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}))


def words(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def call(id_: Any, name: str, arguments: Any, meta: dict[str, Any]) -> None:
    if name == "nasty":
        told = {"progressToken": meta.get("progressToken"), "progress": 1, "total": 2, "message": NASTY}
        say(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}))
        answer(id_, words(f"first {NASTY}\nsecond\tline\n"))
    elif name == "kinds":
        answer(id_, words(json.dumps(arguments)))
    elif name == "fails":
        answer(id_, words(f"it went wrong {NASTY}", isError=True))
    elif name == "picture":
        data = base64.b64encode(PICTURE).decode()
        named = {"uri": "file:///../../evil", "mimeType": "application/pdf", "blob": data}
        answer(
            id_,
            {
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "mimeType": "image/png", "data": data},
                    {"type": "resource", "resource": named},
                    {"type": "audio", "mimeType": "../../evil", "data": data},
                ]
            },
        )
    elif name == "odd-content":
        kinds = [None, 7, {"type": "text"}, {"type": "image", "data": "?"}, {"type": "new", "x": NASTY}]
        links = [{"type": "resource_link", "uri": "note://1", "name": "a note"}]
        inside = [{"type": "resource", "resource": {"uri": "note://2", "text": "the note itself"}}]
        answer(id_, {"content": [*kinds, *links, *inside]})
    elif name == "numbers":
        say(f'{{"jsonrpc": "2.0", "id": {json.dumps(id_)}, "result": {NUMBERS}}}')
    else:
        say(json.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": -32602, "message": f"I refuse {NASTY}"}}))


if "--dies" in sys.argv:
    sys.exit(f"dying {NASTY}")
for line in sys.stdin:
    asked = json.loads(line)
    params: dict[str, Any] = asked.get("params") or {}
    if asked.get("method") == "initialize":
        about = {"protocolVersion": "2025-11-25", "serverInfo": {"name": f"showy {NASTY}", "version": "1"}}
        answer(asked["id"], about | {"capabilities": {"tools": {}}})
    elif asked.get("method") == "tools/list":
        answer(asked["id"], {"tools": TOOLS})
    elif asked.get("method") == "tools/call":
        call(asked["id"], params["name"], params.get("arguments"), params.get("_meta", {}))
    elif "id" in asked:
        error = {"code": -32601, "message": "no such method"}
        say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
