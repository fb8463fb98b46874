"""`rookery mcp call`: one tool, called over MCP itself."""

import json
from collections.abc import Iterator
from typing import Any

import click

from rookery import __version__
from rookery.cli import link, output
from rookery.cli.failure import Failure
from rookery.cli.mcp_arguments import arguments_of, encoded, headers_of
from rookery.cli.mcp_results import as_object, narrate, print_result
from rookery.cli.mcp_where import Where, common
from rookery.cli.waiting import waiting

_REVISION = "2026-07-28"
_META = "io.modelcontextprotocol/"
# How the daemon begins an answer to the request with the id 1; what follows is the result as it came.
_ANSWER = b'{"jsonrpc":"2.0","id":1,"result":'

EPILOG = """\b
Examples:
  rookery mcp call files list_directory path=.
  rookery mcp call github search '{"query": "is:open", "limit": 5}'
  rookery mcp call github search - < query.json
  rookery mcp call camera snap --save pictures/

Values of key=value become numbers, booleans or lists where the tool wants them. Ctrl-C cancels the call.
"""


@click.command(epilog=EPILOG)
@click.argument("name")
@click.argument("tool")
@click.argument("arguments", nargs=-1)
@click.option("--save", type=click.Path(file_okay=False), metavar="DIR", help="Save images, sound and files there.")
@common
def call(
    name: str, tool: str, arguments: tuple[str, ...], save: str | None, everywhere: bool, as_json: bool, no_start: bool
) -> None:
    """Call TOOL of the server NAME and print what it answers.

    ARGUMENTS are one JSON object, - to read one from stdin, or key=value. Exits with 1 if the tool says that it
    failed. With --json the result is printed as it came.
    """
    where = Where(everywhere, no_start)
    with waiting(f"asking {name} for its tools", silent=as_json):
        offered = {one["tool"]: one for one in json.loads(where.ask("GET", "/api/tools", server=name))}
    if tool not in offered:
        raise Failure("tool-not-found", f'MCP server "{name}" has no tool {tool!r}', _near(name, tool, list(offered)))
    schema = as_object(offered[tool]["definition"].get("inputSchema"))
    given = arguments_of(arguments, schema)
    endpoint = where.endpoint(name)
    public = tool if endpoint else offered[tool]["name"]
    answer = _call(where, endpoint or "/mcp", public, given, headers_of(given, schema), silent=as_json)
    result = _result(json.loads(answer))
    if not as_json:
        print_result(result, save)
    elif answer.startswith(_ANSWER):
        output.answer_json(answer[len(_ANSWER) : -1])
    else:
        output.answer_json(json.dumps(result).encode())
    if result.get("isError"):
        raise SystemExit(1)


def _near(name: str, tool: str, offered: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(tool, offered, n=1)
    return f"did you mean {found[0]}?" if found else f"see: rookery mcp tools {name}"


def _call(where: Where, path: str, tool: str, arguments: Any, mirrored: dict[str, str], *, silent: bool) -> bytes:
    """The answer to the call. To close the connection, as everything does that ends this, is to cancel it."""
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
        "mcp-name": encoded(tool),
        **mirrored,
    }
    connected = where.reach()
    try:
        with waiting(f"{tool} runs", silent=silent):
            connected.request("POST", path, message, seconds=None, headers=headers)
        for data in _messages(connected):
            found = json.loads(data)
            if "method" not in found:
                return data
            narrate(found)
    except (OSError, ValueError, IndexError):
        raise Failure("daemon-unreachable", "the daemon broke off", "see `rookery logs`") from None
    finally:
        connected.close()
    raise Failure("daemon-unreachable", "the answer ended before it was whole", "see `rookery logs`")


def _messages(connected: link.Link) -> Iterator[bytes]:
    """What the daemon sends: one answer, or a stream that ends with it."""
    if not connected.streams:
        yield connected.read()
        return
    for line in connected.lines():
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        told = as_object(answer["error"]).get("message")
        raise Failure("tool-failed", f"the call was refused: {told}", "see: rookery mcp tools")
    result = as_object(answer.get("result"))
    if result.get("resultType") == "input_required":
        raise Failure("tool-failed", "the tool asks a question, and nobody here can answer", "use a client that can")
    return result
