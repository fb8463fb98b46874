"""OpenCode's own plugins, from what its config, its log and the repository's files say. Touches nothing outside."""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import unquote

from rookery.plugins.records import PluginShown

FOLDERS = (".opencode/plugin", ".opencode/plugins")
ENDINGS = (".js", ".ts")
# The folder is loaded anew with each of these lines: what failed before it need not fail now.
_LOADED_ANEW = 'message="creating instance"'
_FAILED = re.compile(r'message="failed to load plugin" path=("(?:\\.|[^"\\])*"|\S+) error=("(?:\\.|[^"\\])*"|\S+)')
_FILE = "file://"


def named(config: Mapping[str, Any]) -> list[str]:
    """The plugins that a config names; one with options of its own stands there as a list."""
    written = config.get("plugin")
    found: list[str] = []
    for one in cast("list[Any]", written) if isinstance(written, list) else ():
        specs = cast("list[Any]", one)[:1] if isinstance(one, list) else [one]
        found += [spec for spec in specs if isinstance(spec, str)]
    return found


def load_errors(log: Iterable[str], directory: str) -> dict[str, str]:
    """What OpenCode says of plugins that it could not load in a folder, by how its config names them.

    It says so of those that fail when they are called, and nothing of those that cannot even be imported.
    """
    found: dict[str, str] = {}
    for line in log:
        if _LOADED_ANEW in line and line.rstrip().endswith(f"directory={directory}"):
            found.clear()
        elif told := _FAILED.search(line):
            found[_unquoted(told[1])] = _unquoted(told[2])
    return found


def shown(spec: str, workspace: str, errors: Mapping[str, str]) -> PluginShown:
    """One that a running agent names."""
    error = errors.get(spec)
    return _plugin(spec, workspace, status="failed" if error is not None else "unknown", error=error)


def kept_off(spec: str, workspace: str) -> PluginShown:
    """A file of a repository whose OpenCode config is not approved."""
    note = "the repository's own OpenCode config is not approved: rookery guard approve opencode-config"
    return _plugin(spec, workspace, status="needs_approval", note=note)


def asleep(spec: str, workspace: str) -> PluginShown:
    """A file in a workspace whose agent does not run."""
    return _plugin(spec, workspace, status="unknown", note="the agent does not run")


def _plugin(spec: str, workspace: str, **more: Any) -> PluginShown:
    name, version = _name_of(spec)
    return PluginShown(name=name, kind="opencode", origin=spec, version=version, workspace=workspace, **more)


def _name_of(spec: str) -> tuple[str, str | None]:
    """Of a file its name, of a package its name and version: the `@` of a scope is none before a version."""
    if spec.startswith(_FILE) or spec.endswith(ENDINGS):
        return PurePath(unquote(spec.removeprefix(_FILE))).stem, None
    at = spec.rfind("@")
    return (spec[:at], spec[at + 1 :]) if at > 0 else (spec, None)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text
