"""Servers and tools for people to read. What comes from a server is made visible before it is printed."""

import json
import os
import sys
from typing import Any

from rookery.cli import output
from rookery.cli.visible import visible

_STYLES = {"failed": "red", "backoff": "red", "needs_approval": "yellow", "needs_auth": "yellow", "disabled": "dim"}


def listing(records: list[dict[str, Any]], workspace: str | None, *, with_shadows: bool) -> str:
    rows: list[list[str]] = []
    styles: list[str | None] = []
    for one in records:
        source, error = short(one["source"], workspace), one["error"] or ""
        rows.append([one["name"], one["status"], str(one["tools"]), one["scope"], source, error])
        styles.append(_STYLES.get(one["status"]))
        for place in one["shadows"] if with_shadows else ():
            rows.append([one["name"], "shadowed", "", "", short(place, workspace), ""])
            styles.append("dim")
    cells = [[visible(cell) for cell in row] for row in rows]
    return output.table(cells, ["NAME", "STATUS", "TOOLS", "SCOPE", "SOURCE", ""], styles)


def short(source: str, workspace: str | None) -> str:
    """A path as people say it: from the checkout on, or from home."""
    if workspace and source.startswith(workspace + "/"):
        return source[len(workspace) + 1 :]
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111
    return "~" + source[len(home) :] if source.startswith(home + "/") else source


def details(found: dict[str, Any], workspace: str | None) -> str:
    definition = found["definition"]
    era = f" ({found['era']})" if found["era"] else ""
    told = [
        ("status", f"{found['status']}{era}"),
        ("error", found["error"] or ""),
        ("tools", str(found["tools"])),
        ("source", f"{short(found['source'], workspace)} ({definition['dialect']})"),
        ("before", ", ".join(short(one, workspace) for one in found["shadows"])),
        ("scope", found["scope"]),
        ("workspace", found["workspace"] or ""),
    ]
    lines = [output.paint(visible(found["name"]), "bold")]
    lines += [f"  {head:<9}  {visible(text)}" for head, text in told if text]
    written = json.dumps(definition["written"], indent=2, ensure_ascii=False).split("\n")
    lines += ["  definition", *(f"    {visible(line)}" for line in written)]
    if found["stderr"]:
        lines += ["  stderr", *(f"    {visible(line)}" for line in found["stderr"])]
    return "\n".join(lines)


def tools_table(tools: list[dict[str, Any]]) -> str:
    """A part for each server, with what it costs in all."""
    parts: list[str] = []
    columns = output.columns(sys.stdout)
    width = None if columns is None else columns - 2
    for server in dict.fromkeys(one["server"] for one in tools):
        own = [one for one in tools if one["server"] == server]
        rows = [[visible(one["tool"]), _tokens(one), _about(one)] for one in own]
        styles = [None if one["shown"] else "dim" for one in own]
        head = f"{visible(server)}: {_count(own)}"
        lines = output.table(rows, ["TOOL", "TOKENS", ""]).split("\n")
        cut = [output.cut(line, width) for line in lines]
        body = [output.paint(line, style) if style else line for line, style in zip(cut[1:], styles, strict=True)]
        parts.append("\n".join([output.paint(head, "bold"), *(f"  {line}" for line in body)]))
    if len(parts) > 1:
        parts.append(f"in all: {_count(tools)}")
    return "\n\n".join(parts)


def _count(tools: list[dict[str, Any]]) -> str:
    shown = [one for one in tools if one["shown"]]
    hidden = len(tools) - len(shown)
    tokens = sum(one["tokens"] for one in shown)
    return f"{len(shown)} tools, about {tokens:,} tokens" + (f" ({hidden} hidden)" if hidden else "")


def _tokens(tool: dict[str, Any]) -> str:
    return f"~{tool['tokens']}" if tool["shown"] else "hidden"


def _about(tool: dict[str, Any]) -> str:
    """The first line of its description."""
    said = tool["definition"].get("description") or tool["definition"].get("title") or ""
    return visible(str(said).strip().partition("\n")[0])


def steps(found: dict[str, Any]) -> str:
    """What happened, one line a step."""
    lines = [output.paint(visible(found["name"]), "bold")]
    for step in found["steps"]:
        mark = output.paint("✓", "green") if step["ok"] else output.paint("✗", "red")
        time = f"{step['at_ms']:>8.1f} ms {'+' + format(step['took_ms'], '.1f'):>8}"
        lines.append(f"{mark} {time}  {visible(step['what'])}  {visible(step['told'])}".rstrip())
    if found["connected"]:
        info = f"{found['info'].get('name', 'no name')} {found['info'].get('version', '')}".strip()
        counts = ", ".join(f"{count} {kind}" for kind, count in found["counts"].items()) or "nothing"
        lines += [
            f"speaks   {visible(str(found['era']))}",
            f"is       {visible(info)}",
            f"can      {visible(', '.join(found['capabilities']) or 'nothing')}",
            f"offers   {counts}",
        ]
    lines += [f"problem  {visible(problem)}" for problem in found["problems"]]
    if found["stderr"]:
        lines += ["stderr", *(f"  {visible(line)}" for line in found["stderr"])]
    return "\n".join(lines)
