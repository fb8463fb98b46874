"""Writes the pages of docs/reference/ from the code, so that they cannot tell anything else.

`python docs/generate.py` writes them; with `--check` nothing is written, and the exit code is 1 if a page is out of
date.
"""

import ast
import difflib
import inspect
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin
from unittest.mock import Mock

import click
from msgspec import Meta
from starlette.applications import Starlette
from starlette.routing import Route

from rookery.api import app as api
from rookery.cli.main import cli
from rookery.daemon.settings.layers import SettingKey, list_settings
from rookery.daemon.settings.schema import SessionAgentSettings
from rookery.toolsets.hub import hub_toolset
from rookery.toolsets.project import project_toolset
from rookery.toolsets.resources import Prompt
from rookery.toolsets.session.plugins import plugin_tools
from rookery.toolsets.session.screen import ScreenshotCalls
from rookery.toolsets.session.toolset import session_toolset
from rookery.toolsets.workspace import workspace_toolset
from rookery.wire.http.auth import PUBLIC_ROUTES

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
NOTICE = "<!-- Written by docs/generate.py (make docs). Do not edit: change the code that it is made from. -->"
HELP_WIDTH = 100
SHOWN_LINES = 40

# The words for what a setting may hold.
KINDS: dict[Any, str] = {int: "an integer", float: "a number", str: "text", bool: "true or false"}
KINDS[dict[str, SessionAgentSettings]] = "a table with a table for each name"
KINDS[dict[str, dict[str, Any]]] = "a table with a table for each name"
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


# What `api/doors` serves, which are no routes of the REST app.
ENDPOINTS = {
    "/mcp": "Our [tools](tools.md), and all servers' under names like `<server>__<tool>`. `X-Workspace-Path` selects a "
    "workspace. `?mode=search` shows two tools to find and call all others instead.",
    "/w/{project}/{workspace}/mcp": "The same for one workspace; the main checkout is `@main`.",
    "/w/{project}/{workspace}/s/{server}/mcp": "One server of a workspace, under its own names.",
}


class CannotGenerate(Exception):
    """The code does not say what a page has to tell."""


def cli_page() -> Iterator[str]:
    yield "# Command line"
    yield (
        "What each command says of itself with `--help`. Answers go to stdout, narration and errors to stderr. "
        "The exit codes are in [troubleshooting](../guide/troubleshooting.md#exit-codes)."
    )
    pages = list(commands(cli, [], None))
    yield table(
        ["Command", "Summary"],
        ([f"[`{' '.join(names)}`](#{'-'.join(names)})", summary] for names, summary, _ in pages[1:]),
    )
    for names, _, text in pages:
        yield f"{'#' * (len(names) + 1)} `{' '.join(names)}`"
        yield f"```text\n{text}\n```"


def commands(
    command: click.Command, above: list[str], parent: click.Context | None
) -> Iterator[tuple[list[str], str, str]]:
    """Yield the words, the summary and the help text of each command, groups before their members."""
    names = [*above, command.name if parent and command.name else "rookery"]
    context = click.Context(command, parent, info_name=names[-1], terminal_width=HELP_WIDTH, **command.context_settings)
    if not command.help:
        raise CannotGenerate(f"`{' '.join(names)}` has no docstring to make its help from")
    summary = inspect.cleandoc(command.help).split("\n\n")[0].replace("\n", " ")
    yield names, summary, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from commands(member, names, context)


def settings_page() -> Iterator[str]:
    yield "# Settings"
    yield (
        "Every setting there is. [Configuration](../guide/configuration.md) tells where they are set and which source "
        "wins. `rookery config show` prints the values in force and where each came from."
    )
    sections: dict[str, list[SettingKey]] = defaultdict(list)
    for known in list_settings().values():
        sections[known.key.rpartition(".")[0]].append(known)
    for section, members in sections.items():
        yield f"## `[{section}]`" if section else "## Top level"
        for known in members:
            yield f"### `{known.key}`"
            yield known.text
            yield "\n".join(f"- {fact}" for fact in facts(known))


def facts(known: SettingKey) -> Iterator[str]:
    yield f"takes {kind_of(known.type)}; default `{json.dumps(known.default)}`"
    yield f"variable `{known.variable}`"
    yield "a project may set it" if known.allowed_in_project else "only the user may set it, a project may not"
    yield "a running daemon takes it over at once" if known.is_live else "counts from the next start of the daemon"


def kind_of(hint: Any) -> str:
    """A type with its bounds, in words."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(f"`{json.dumps(value)}`" for value in get_args(hint))
    if get_origin(hint) is not Annotated:
        if hint not in KINDS:
            raise CannotGenerate(f"there are no words for the type {hint!r} of a setting; add them to KINDS")
        return KINDS[hint]
    metas = [meta for meta in hint.__metadata__ if isinstance(meta, Meta)]
    bounds = [(word, getattr(meta, name)) for meta in metas for name, word in BOUNDS.items()]
    return ", ".join([kind_of(hint.__origin__), *(f"{word} {n:,}" for word, n in bounds if n is not None)])


def http_page() -> Iterator[str]:
    yield "# HTTP routes"
    yield (
        "What the daemon serves on its app port and on its Unix socket. The port asks for "
        "`Authorization: Bearer <token>`, the socket does not; [security](../guide/security.md) tells why. Bodies are "
        "JSON, in and out. A refusal or failure answers "
        '`{"error": {"code": …, "message": …, "remedy": …}}`, where `remedy` may be missing; the codes are in '
        "[troubleshooting](../guide/troubleshooting.md#error-codes)."
    )
    yield table(["Route", "Token", "What it does"], routes())
    yield "## MCP"
    yield (
        "These speak MCP, over Streamable HTTP and in every revision from 2024-11-05 to 2026-07-28, and need the token "
        "too. Beside each stand `/sse` with `/messages` for clients of HTTP+SSE, and `/ws` for WebSocket, in place of "
        "`/mcp`. Every name is one segment, percent-encoded. [MCP servers](../guide/mcp-servers.md) tells more."
    )
    yield table(["Route", "What is there"], ([f"`POST, GET, DELETE {path}`", text] for path, text in ENDPOINTS.items()))


def routes() -> Iterator[list[str]]:
    # The routes are made for a house that is not needed before one of them is called.
    app = cast(Starlette, api.build_app(cast(api.AppServices, Mock())))
    for route in app.routes:
        assert isinstance(route, Route)
        methods = sorted((route.methods or set()) - {"HEAD"})
        name = f"{', '.join(methods)} {route.path}"
        text = (route.endpoint.__doc__ or "").strip().partition("\n")[0]
        if not text:
            raise CannotGenerate(
                f"{name} has no docstring: {route.endpoint.__qualname__} in {route.endpoint.__module__}"
            )
        free = all((method, route.path) in PUBLIC_ROUTES for method in methods)
        yield [f"`{name}`", "no" if free else "yes", text]


def tools_page() -> Iterator[str]:
    yield "# MCP tools"
    yield (
        "The tools of Rookery's own, by toolset; those of your servers stand beside them. Which of them a client sees "
        "depends on [where it connects](http.md#mcp), and `?toolsets=` narrows that. Each answers `structuredContent` "
        'with the same content as its text; a value that is no object is wrapped as `{"result": …}`. A failure is a '
        'result with `isError` and `{"error": {"code": …, "message": …}}`; the codes are in '
        "[troubleshooting](../guide/troubleshooting.md#error-codes)."
    )
    nothing = cast(Any, Mock())
    more = [*ScreenshotCalls(nothing, None, nothing).tools(), *plugin_tools(nothing, None)]
    sessions = session_toolset(nothing, None, nothing, more)
    for toolset in (
        workspace_toolset(nothing, None),
        project_toolset(nothing, nothing),
        sessions,
        hub_toolset(nothing, nothing),
    ):
        yield f"## {toolset.name}"
        for entry in toolset.catalog.tools:
            definition = json.loads(bytes(entry.raw))
            yield f"### `{definition['name']}`"
            yield plain(definition["description"])
            yield "\n".join([*map("- takes {}".format, inputs(definition["inputSchema"])), *answers(definition)])
        if toolset.resources:
            yield f"### Resources of {toolset.name}"
            yield "\n".join(f"- `{one.uri}`: {plain(one.description)}" for one in toolset.resources)
        if toolset.prompts:
            yield f"### Prompts of {toolset.name}"
            yield "\n".join(f"- `{one.name}`: {plain(one.description)}{blanks(one)}" for one in toolset.prompts)


def blanks(prompt: Prompt) -> str:
    told = [
        f"`{one.name}` ({'required' if one.required else 'optional'}): {one.description}" for one in prompt.arguments
    ]
    return "".join(f"\n  - takes {one}" for one in told)


def inputs(schema: dict[str, Any]) -> Iterator[str]:
    for name, member in schema["properties"].items():
        kinds = [one for way in member.get("anyOf", [member]) for one in _kinds(way)]
        fact = "required" if name in schema["required"] else f"default `{json.dumps(member['default'])}`"
        yield f"`{name}` ({' or '.join(kinds)}, {fact}): {plain(member['description'])}"


def _kinds(way: dict[str, Any]) -> list[str]:
    told: str | list[str] = [f"`{one}`" for one in way["enum"]] if "enum" in way else way["type"]
    return told if isinstance(told, list) else [told]


def answers(definition: dict[str, Any]) -> Iterator[str]:
    if "outputSchema" not in definition:
        yield "- answers content as it stands, without `structuredContent`"
        return
    schema, _ = definition["outputSchema"]["anyOf"]
    members = ", ".join(f"`{name}`" for name in schema.get("properties", {}))
    yield f"- answers {members or 'an object'}"


def metrics_page() -> Iterator[str]:
    yield "# Metrics"
    yield "What `GET /metrics` answers, in Prometheus' text format. Counters start at 0 with each start of the daemon."
    rows = [[f"`{name}`", *rest] for name, *rest in sorted(metrics())]
    yield table(["Metric", "Kind", "Labels", "Meaning"], rows)


def metrics() -> Iterator[list[str]]:
    """Read from the source: gauges are registered only by a daemon that runs."""
    for path, tree in trees(ROOT / "src"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("metrics.counter", "metrics.gauge"):
                continue
            words = strings(node)
            if len(words) < 2:
                raise CannotGenerate(f"{path}:{node.lineno}: the name and text of a metric have to be written out")
            name, text, *labels = words
            yield [name, ast.unparse(node.func)[8:], ", ".join(f"`{label}`" for label in labels), text]


def requirements_page() -> Iterator[str]:
    listed = (ROOT / "tests/requirements.toml").read_text(encoding="utf-8")
    rows: list[dict[str, str]] = tomllib.loads(listed)["requirement"]
    cited: dict[str, list[str]] = defaultdict(list)
    for id_, test in (*citations(), *bars()):
        cited[id_].append(test)
    if unknown := cited.keys() - {row["id"] for row in rows}:
        raise CannotGenerate(f"no such requirement: {', '.join(sorted(unknown))}")
    yield "# Requirements"
    yield (
        "Each behaviour that a user, a client or a test can observe, one sentence a row, and the tests that prove it. "
        "A row without tests is not promised yet. The table is made from `tests/requirements.toml`; a test cites a row "
        'with `@requirement("id")`, and a bar of a bench, which proves a figure, with `requirement="id"`.'
    )
    proven = sum(row["id"] in cited for row in rows)
    yield f"{proven} of {len(rows)} rows are cited by a test."
    for milestone in dict.fromkeys(row["milestone"] for row in rows):
        yield f"## {milestone}"
        members = [row for row in rows if row["milestone"] == milestone]
        lines = [[f"`{row['id']}`", plain(row["says"]), "<br>".join(cited[row["id"]])] for row in members]
        yield table(["Id", "Requirement", "Tests"], lines)


def citations() -> Iterator[tuple[str, str]]:
    """Each requirement that a test cites, with the test; a mark on a whole file counts for the file."""
    for path, tree in trees(ROOT / "tests", "test_*.py"):
        name = path.relative_to(ROOT).as_posix()
        link = f"[{name.removeprefix('tests/')}](../../{name})"
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                sentence = node.name.removeprefix("test_").replace("_", " ")
                for id_ in cited_by(node.decorator_list):
                    yield id_, f"{link}: {sentence}"
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                for id_ in cited_by([node.value]):
                    yield id_, link


def bars() -> Iterator[tuple[str, str]]:
    """Each requirement that a bar of a bench cites, with the bar."""
    for path, tree in trees(ROOT / "bench"):
        name = path.relative_to(ROOT).as_posix()
        constants = {
            ast.unparse(node.targets[0]): node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Bar":
                for word in node.keywords:
                    if word.arg == "requirement":
                        id_ = constants.get(ast.unparse(word.value), ast.unparse(word.value))
                        yield str(id_), f"[{name}](../../{name}): bar `{strings(node)[0]}`"


def cited_by(marks: Iterable[ast.expr]) -> Iterator[str]:
    for node in (inner for mark in marks for inner in ast.walk(mark)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "requirement":
            yield from strings(node)


def strings(call: ast.Call) -> list[str]:
    """The arguments that are written out as text."""
    return [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]


def trees(folder: Path, pattern: str = "*.py") -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob(pattern)):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Text outside of code that must not be taken for HTML."""
    return "`".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(text.split("`")))


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "http.md": http_page,
    "tools.md": tools_page,
    "metrics.md": metrics_page,
    "requirements.md": requirements_page,
}


def main(words: Sequence[str]) -> int:
    if words not in ([], ["--check"]):
        sys.stderr.write("usage: python docs/generate.py [--check]\n")
        return 2
    stale = 0
    for name, page in PAGES.items():
        path = REFERENCE / name
        wanted = "\n\n".join([NOTICE, *page()]) + "\n"
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        if there == wanted:
            continue
        stale += 1
        if not words:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
            continue
        difference = list(difflib.unified_diff(there.splitlines(), wanted.splitlines(), "page", "code", lineterm=""))
        print("\n".join(difference[:SHOWN_LINES]))
        print(f"docs/reference/{name} is out of date; write it anew with: make docs")
    return 1 if words and stale else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CannotGenerate as error:
        sys.exit(f"docs/generate.py: {error}")
