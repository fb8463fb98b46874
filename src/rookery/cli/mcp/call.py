"""`rookery mcp call`: calls one tool over MCP itself.

A result may contain anything: control characters in text are made visible, and other content is saved or described.
"""

import json
import shlex
from collections.abc import Iterator
from typing import Any, cast

import click

from rookery import __version__
from rookery.cli import output
from rookery.cli.arguments import build_headers, encode_header, parse_arguments
from rookery.cli.guard.pins import is_withheld
from rookery.cli.mcp.common import ServerClient, server_options
from rookery.cli.output import visible
from rookery.cli.progress import show_progress
from rookery.daemon_client.connection import DaemonConnection
from rookery.daemon_client.failure import Failure

_REVISION = "2026-07-28"
_META = "io.modelcontextprotocol/"
# The beginning of the daemon's response to the request with id 1. The server's result follows unchanged.
_ANSWER = b'{"jsonrpc":"2.0","id":1,"result":'
EPILOG = """\b
Examples:
  rookery mcp call files list_directory path=.
  rookery mcp call github search '{"query": "is:open", "limit": 5}'
  rookery mcp call github search - < query.json
  rookery mcp call camera snap --save pictures/

Values of key=value are converted to the types in the tool's schema. Ctrl-C cancels the call.
"""


def print_result(result: dict[str, Any], folder: str | None) -> None:
    """Print the content of a result, or its structured content if it has no other."""
    contents = result.get("content")
    items = cast("list[Any]", contents) if isinstance(contents, list) else []
    for number, content in enumerate(items, 1):
        item = as_object(content)
        _print_content(item, number, folder) if _is_complete(item) else _print_json(content)
    if not items and "structuredContent" in result:
        _print_json(result["structuredContent"])


def write_notification(message: dict[str, Any]) -> None:
    """Write a progress or log message that a server sends before its result."""
    params = as_object(message.get("params"))
    if message.get("method") == "notifications/progress":
        total = f" of {params['total']}" if "total" in params else ""
        output.write_note(visible(f"{params.get('progress')}{total} {params.get('message') or ''}".rstrip()))
    elif message.get("method") == "notifications/message":
        output.write_note(visible(f"{params.get('level')}: {params.get('data')}"))


def _is_complete(content: dict[str, Any]) -> bool:
    """Return whether the content has the members that its type requires."""
    resource = as_object(content.get("resource"))
    match content.get("type"):
        case "text":
            return isinstance(content.get("text"), str)
        case "image" | "audio":
            return isinstance(content.get("data"), str)
        case "resource":
            return isinstance(resource.get("text"), str) or isinstance(resource.get("blob"), str)
        case "resource_link":
            return isinstance(content.get("uri"), str)
        case _:
            return False


def _print_content(content: dict[str, Any], number: int, folder: str | None) -> None:
    inner = as_object(content.get("resource")) if content["type"] == "resource" else content
    if isinstance(inner.get("text"), str):
        output.write(output.visible_lines(inner["text"]))
    elif content["type"] == "resource_link":
        output.write(output.visible_lines(f"{content.get('name') or ''} {content['uri']}".strip()))
    else:
        _save_content(str(inner.get("blob") or inner.get("data")), str(inner.get("mimeType") or ""), number, folder)


def _print_json(value: Any) -> None:
    output.write_json(json.dumps(value, ensure_ascii=False).encode())


def _save_content(data: str, kind: str, number: int, folder: str | None) -> None:
    """Save binary content, or describe it without a folder.

    The name is chosen here, for security: no server decides what is written where.
    """
    import base64
    import mimetypes

    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        output.write_note(f"content {number} is not valid base64")
        return
    if folder is None:
        output.write(f"[{visible(kind) or 'bytes'}, {len(content):,} bytes; save it with --save DIR]")
        return
    from pathlib import Path

    from rookery.system.fs.atomic import write_atomic

    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / f"{number}{mimetypes.guess_extension(kind) or '.bin'}"
    write_atomic(path, content)
    output.write(str(path))


def as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


@click.command(epilog=EPILOG)
@click.argument("name")
@click.argument("tool")
@click.argument("arguments", nargs=-1)
@click.option(
    "--save", type=click.Path(file_okay=False), metavar="DIR", help="Save images, sound and files to this folder."
)
@server_options
def call(
    name: str, tool: str, arguments: tuple[str, ...], save: str | None, everywhere: bool, as_json: bool, no_start: bool
) -> None:
    """Call TOOL of the server NAME, and print the result.

    ARGUMENTS are one JSON object, - to read one from stdin, or key=value. Exits with 1 if the tool
    reports a failure. With --json, the result is printed unchanged.
    """
    client = ServerClient(everywhere, no_start)
    with show_progress(f"listing the tools of {name}", silent=as_json):
        offered = {entry["tool"]: entry for entry in json.loads(client.request("GET", "/api/tools", server=name))}
    if tool not in offered:
        if client.request_server(name, method="GET")["withheld"] and is_withheld(name, tool, no_start):
            remedy = f"see why, and decide: rookery guard diff {shlex.quote(name)}"
            raise Failure("definition-withheld", f'the tool {tool!r} of MCP server "{name}" is withheld', remedy)
        raise Failure(
            "tool-not-found", f'MCP server "{name}" has no tool {tool!r}', _suggest_tool(name, tool, list(offered))
        )
    schema = as_object(offered[tool]["definition"].get("inputSchema"))
    tool_arguments = parse_arguments(arguments, schema)
    endpoint = client.endpoint(name)
    public_name = tool if endpoint else offered[tool]["name"]
    answer = _call_tool(
        client, endpoint or "/mcp", public_name, tool_arguments, build_headers(tool_arguments, schema), silent=as_json
    )
    result = _parse_result(json.loads(answer))
    if not as_json:
        print_result(result, save)
    elif answer.startswith(_ANSWER):
        output.write_json(answer[len(_ANSWER) : -1])
    else:
        output.write_json(json.dumps(result).encode())
    if result.get("isError"):
        raise SystemExit(1)


def _suggest_tool(name: str, tool: str, offered: list[str]) -> str:
    import difflib

    matches = difflib.get_close_matches(tool, offered, n=1)
    return f"did you mean {matches[0]}?" if matches else f"see: rookery mcp tools {name}"


def _call_tool(
    client: ServerClient, path: str, tool: str, arguments: Any, argument_headers: dict[str, str], *, silent: bool
) -> bytes:
    """Call the tool and return the response. Closing the connection, also after an error, cancels the call."""
    meta = {
        f"{_META}protocolVersion": _REVISION,
        f"{_META}clientInfo": {"name": "rookery-cli", "version": __version__},
        f"{_META}clientCapabilities": {},
        f"{_META}logLevel": "info",
        "progressToken": 1,
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": _REVISION,
        "mcp-method": "tools/call",
        "mcp-name": encode_header(tool),
        **argument_headers,
    }
    connection = client.connect()
    try:
        with show_progress(f"running {tool}", silent=silent):
            connection.request("POST", path, message, seconds=None, headers=headers)
        for data in _read_messages(connection):
            received = json.loads(data)
            if "method" not in received:
                return data
            write_notification(received)
    except (OSError, ValueError, IndexError):
        raise Failure("daemon-unreachable", "the daemon closed the connection", "see `rookery logs`") from None
    finally:
        connection.close()
    raise Failure("daemon-unreachable", "the response ended too early", "see `rookery logs`")


def _read_messages(connection: DaemonConnection) -> Iterator[bytes]:
    """Yield the messages that the daemon sends: one response, or a stream that ends with it."""
    if not connection.is_stream:
        yield connection.read()
        return
    for line in connection.lines():
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _parse_result(response: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call. Raise `Failure` if the call was refused or the tool asks a question."""
    if "error" in response:
        message = as_object(response["error"]).get("message")
        raise Failure("tool-failed", f"the call was refused: {message}", "see: rookery mcp tools")
    result = as_object(response.get("result"))
    if result.get("resultType") == "input_required":
        raise Failure(
            "tool-failed",
            "the tool asks a question, which this command cannot answer",
            "use a client that supports elicitation",
        )
    return result
