"""OpenCode's own plugins, from its config, its log and the repository's files. No I/O."""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import unquote

from rookery.plugins.records import PluginShown

FOLDERS = (".opencode/plugin", ".opencode/plugins")
SUFFIXES = (".js", ".ts")
# OpenCode loads the folder again with each of these lines: earlier errors no longer count.
_LOAD_LINE = 'message="creating instance"'
_FAILED = re.compile(r'message="failed to load plugin" path=("(?:\\.|[^"\\])*"|\S+) error=("(?:\\.|[^"\\])*"|\S+)')
_FILE = "file://"


def list_named(config: Mapping[str, Any]) -> list[str]:
    """Return the plugins that a config names; a plugin with options is a list there."""
    entries = config.get("plugin")
    names: list[str] = []
    for entry in cast("list[Any]", entries) if isinstance(entries, list) else ():
        specs = cast("list[Any]", entry)[:1] if isinstance(entry, list) else [entry]
        names += [spec for spec in specs if isinstance(spec, str)]
    return names


def read_load_errors(log: Iterable[str], directory: str) -> dict[str, str]:
    """Return OpenCode's errors about plugins that it could not load in a folder, by their names in its config.

    OpenCode reports plugins that fail when they are called, and not those that cannot be imported.
    """
    errors: dict[str, str] = {}
    for line in log:
        if _LOAD_LINE in line and line.rstrip().endswith(f"directory={directory}"):
            errors.clear()
        elif match := _FAILED.search(line):
            errors[_unquote(match[1])] = _unquote(match[2])
    return errors


def describe_running(spec: str, workspace: str, errors: Mapping[str, str]) -> PluginShown:
    """Describe a plugin that a running agent names."""
    error = errors.get(spec)
    return _describe(spec, workspace, status="failed" if error is not None else "unknown", error=error)


def describe_unapproved(spec: str, workspace: str) -> PluginShown:
    """Describe a plugin file of a repository whose OpenCode config is not approved."""
    note = "the repository's own OpenCode config is not approved: rookery guard approve opencode-config"
    return _describe(spec, workspace, status="needs_approval", note=note)


def describe_sleeping(spec: str, workspace: str) -> PluginShown:
    """Describe a plugin file in a workspace whose agent does not run."""
    return _describe(spec, workspace, status="unknown", note="the agent does not run")


def _describe(spec: str, workspace: str, **fields: Any) -> PluginShown:
    name, version = _name_of(spec)
    return PluginShown(name=name, kind="opencode", origin=spec, version=version, workspace=workspace, **fields)


def _name_of(spec: str) -> tuple[str, str | None]:
    """Return the name of a file, or the name and version of a package. The `@` of a scope precedes no version."""
    if spec.startswith(_FILE) or spec.endswith(SUFFIXES):
        return PurePath(unquote(spec.removeprefix(_FILE))).stem, None
    at = spec.rfind("@")
    return (spec[:at], spec[at + 1 :]) if at > 0 else (spec, None)


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text
