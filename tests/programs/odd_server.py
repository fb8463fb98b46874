"""A stdio server of the handshake era that misbehaves as its options and the called tools request.

--revision R          the revision that it accepts     --framing content-length
--discover W          its reaction to the modern probe: error (default), silent, exit; fatal: it ends at the next
                       message, deaf: it answers nothing more
--list W              ok (default), pages, loop, endless, silent
--banner TEXT         printed before anything else     --exit CODE TEXT    ends at once, TEXT on stderr
--mute                reads, and never responds
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

words = argparse.ArgumentParser()
words.add_argument("--revision", default="2025-11-25")
words.add_argument("--framing", default="lines")
words.add_argument("--discover", default="error")
words.add_argument("--list", default="ok")
words.add_argument("--banner", default="")
words.add_argument("--exit", nargs=2)
words.add_argument("--mute", action="store_true")
given = words.parse_args()

TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "x-unknown": "[1e400, 12345678901234567890]"} for name in "abc"
]
told: list[str] = []
waiting: dict[str, Any] = {}
answers: list[Any] = []


def raw(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def say(message: dict[str, Any]) -> None:
    # Numbers that few parsers keep.
    data = (
        json.dumps({"jsonrpc": "2.0", **message})
        .replace('"[1e400, 12345678901234567890]"', "[1e400, 12345678901234567890]")
        .encode()
    )
    raw(b"Content-Length: %d\r\n\r\n%b" % (len(data), data) if given.framing == "content-length" else data + b"\n")


def read() -> bytes | None:
    line = sys.stdin.buffer.readline()
    if given.framing != "content-length" or not line:
        return line or None
    size = int(line.partition(b":")[2])
    sys.stdin.buffer.readline()
    return sys.stdin.buffer.read(size)


def text(id_: Any, value: Any) -> None:
    say({"id": id_, "result": {"content": [{"type": "text", "text": json.dumps(value)}], "x-unknown": {"kept": True}}})


def pages(id_: Any, cursor: str | None) -> None:
    number = int(cursor or 0)
    if given.list == "silent":
        return
    following = {"pages": number + 1 if number < 2 else None, "loop": 1, "endless": number + 1}.get(given.list)
    result: dict[str, Any] = {"tools": [TOOLS[number % 3]] if given.list != "ok" else TOOLS}
    say({"id": id_, "result": result | ({} if following is None else {"nextCursor": str(following)})})


def call(id_: Any, name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> None:
    if name == "stray":
        for other in (99999, "unknown", str(id_), -1):
            text(other, "not asked for")
        text(id_, "first")
        text(id_, "second")
    elif name == "ask":
        waiting["ask"] = (id_, arguments["answers"])
        for question in arguments["questions"]:
            say(question)
    elif name == "noise":
        raw(base64.b64decode(arguments["bytes"]))
        text(id_, "after the noise")
    elif name == "pieces":
        waiting["pieces"] = arguments["at"], id_
        say({"method": "notifications/begun"})
        piece(first=True)
    elif name == "flood":
        threading.Thread(target=flood, args=(arguments["bytes"],), daemon=True).start()
        text(id_, "flooding")
    elif name == "die":
        print("something is very wrong", file=sys.stderr, flush=True)
        os._exit(arguments["code"])
    elif name == "answer-and-die":
        text(id_, "last words")
        os._exit(0)
    elif name == "deaf":
        os.close(1)
    elif name == "aloof":
        os.close(0)
        text(id_, "I do not listen any more")
        time.sleep(600)
    elif name == "grandchildren":
        code = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
        made = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
        text(id_, [int(child.stdout.readline()) for child in made if child.stdout is not None])
    elif name in ("hang", "progress"):
        waiting["token"] = meta.get("progressToken", id_)
        waiting["id"] = id_
        say({"method": "notifications/begun"})
    elif name == "told":
        text(id_, told)
    elif name == "meta":
        text(id_, meta)
    elif name == "pid":
        text(id_, os.getpid())
    elif name == "echo":
        text(id_, arguments)
    else:
        say({"id": id_, "error": {"code": -32602, "message": f"unknown tool {name}", "data": {"name": name}}})


def flood(size: int) -> None:
    line = b"noise " * 10_000 + b"\n"
    while size > 0:
        size -= os.write(2, line)
    say({"method": "notifications/flooded"})


def piece(*, first: bool = False) -> None:
    """Send the next part of a response when the client requests it."""
    cuts, id_ = waiting["pieces"]
    whole = (
        json.dumps({"jsonrpc": "2.0", "id": id_, "result": {"content": [], "padding": "x" * 100}}).encode() + b"\r\n"
    )
    sent = 0 if first else waiting["sent"]
    end = next((cut for cut in cuts if cut > sent), len(whole))
    raw(whole[sent:end])
    waiting["sent"] = end


def hear(message: Any) -> None:
    method, id_ = message.get("method"), message.get("id")
    params: dict[str, Any] = message.get("params") or {}
    told.append(method or f"answer {id_}")
    if told[0] == "server/discover" and len(told) > 1 and given.discover in ("fatal", "deaf"):
        if given.discover == "fatal":
            sys.exit("I have not been greeted")
    elif method == "server/discover":
        if given.discover == "exit":
            sys.exit("I want to be greeted first")
        if given.discover == "error":
            say({"id": id_, "error": {"code": -32601, "message": "what?"}})
    elif method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "logging": {}}
        about = {"protocolVersion": given.revision, "capabilities": capabilities, "serverInfo": {"name": "odd"}}
        say({"id": id_, "result": about})
    elif method == "tools/list":
        pages(id_, params.get("cursor"))
    elif method == "tools/call":
        call(id_, params["name"], params.get("arguments", {}), params.get("_meta", {}))
    elif method == "notifications/cancelled" and params.get("requestId") == waiting.get("id"):
        say({"method": "notifications/progress", "params": {"progressToken": waiting["token"], "progress": 9}})
        text(waiting["id"], "too late")
        say({"method": "notifications/heard-cancel", "params": params})
    elif method == "notifications/step":
        say({"method": "notifications/progress", "params": {"progressToken": waiting["token"], "progress": 1}})
    elif method == "notifications/finish":
        text(waiting["id"], "finished")
    elif method == "notifications/piece":
        piece()
    elif method == "notifications/say":
        for other in params["messages"]:
            say(other)
    elif method is None and "ask" in waiting:
        answers.append({key: value for key, value in message.items() if key != "jsonrpc"})
        if len(answers) == waiting["ask"][1]:
            text(waiting["ask"][0], answers)
    elif method is None:
        say({"method": "notifications/answered", "params": message})


if given.exit:
    print(given.exit[1], file=sys.stderr, flush=True)
    sys.exit(int(given.exit[0]))
if given.banner:
    raw(given.banner.encode() + b"\n")
while (data := read()) is not None:
    if data.strip() and not given.mute:
        hear(json.loads(data))
