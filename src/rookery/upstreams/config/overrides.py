"""Entries that only set options of a server that a lower source defines.

What an entry of a repository narrows takes effect at once. Where it widens, the result is a definition of the
repository, which waits for approval.
"""

import dataclasses
from typing import Any

import msgspec

from rookery.upstreams.config.definition import Definition, ServerScope, Source, ToolFilter, add_digests
from rookery.upstreams.config.redact import redact_definition

# From the narrowest to the widest.
_SCOPES: tuple[ServerScope, ...] = ("session", "workspace", "project", "app")
_LOCAL_FIELDS = frozenset({"environment", "cwd", "framing", "inherit", "sandbox"})
_REMOTE_FIELDS = frozenset({"headers", "oauth"})
_MERGED_FIELDS = ("environment", "headers")


class EntryOverride(msgspec.Struct, frozen=True, kw_only=True):
    """The options that an entry sets, by the fields of `Definition`, and the entry as a person wrote it.

    `tools` are its rules; `is_tool_list` says whether they are a list of all tools that it offers. `timeouts` has the
    limits that it sets. `unresolved` says which placeholder of it has no value.
    """

    source: Source
    written: dict[str, Any]
    fields: dict[str, Any] = {}
    tools: ToolFilter = ()
    is_tool_list: bool = False
    timeouts: dict[str, float] = {}
    unresolved: str = ""

    @property
    def turns_off(self) -> bool:
        """Whether it does nothing but turn the server off."""
        return self.fields == {"enabled": False} and not self.tools and not self.timeouts


def apply_override(definition: Definition, override: EntryOverride) -> Definition:
    """Return the definition with the options of an entry of a higher source."""
    unused = _REMOTE_FIELDS if definition.kind == "local" else _LOCAL_FIELDS
    changes: dict[str, Any] = {}
    for name, value in override.fields.items():
        before = getattr(definition, name)
        after = before | value if name in _MERGED_FIELDS else value
        if name not in unused and after != before:
            changes[name] = after
    timeouts = dataclasses.replace(definition.timeouts, **override.timeouts)
    if timeouts != definition.timeouts:
        changes["timeouts"] = timeouts
    if override.unresolved:
        changes["unresolved"] = override.unresolved
    from_repository = override.source.place == "project"
    shows_tools = _shows_tools(definition, override)
    widens = shows_tools or any(_widens(definition, name, value) for name, value in changes.items())
    if override.tools and from_repository and not shows_tools:
        changes["tool_limits"] = (*definition.tool_limits, override.tools)
    elif override.tools:
        changes["tools"] = override.tools if override.is_tool_list else (*definition.tools, *override.tools)
    if from_repository and not widens:
        return add_digests(msgspec.structs.replace(definition, **changes))
    changes["written"] = _merge_written(definition, override)
    if from_repository:
        changes["source"] = override.source
        changes.setdefault("roots", definition.is_told_root)  # the default depends on the source
    return add_digests(msgspec.structs.replace(definition, **changes))


def _widens(definition: Definition, name: str, value: Any) -> bool:
    """Return whether a change of a field lets a server do more, or lets something else run."""
    before = getattr(definition, name)
    match name:
        case "enabled" | "inherit":
            return value
        case "exclusive":
            return not value
        case "calls" | "queue":
            return value > before
        case "idle_seconds":
            return (value or float("inf")) > (before or float("inf"))
        case "scope":
            return _SCOPES.index(value) > _SCOPES.index(before)
        case "timeouts":
            return any(getattr(value, limit) > getattr(before, limit) for limit in ("startup", "catalog", "execution"))
        case "unresolved":
            return False
        case _:
            return True


def _shows_tools(definition: Definition, override: EntryOverride) -> bool:
    """Return whether a rule would show a tool that a lower source hides. A list of tools only selects among them."""
    if override.is_tool_list:
        return False
    hidden = [
        wildcard for rules in (definition.tools, *definition.tool_limits) for wildcard, shown in rules if not shown
    ]
    return any(shown and _may_overlap(wildcard, other) for wildcard, shown in override.tools for other in hidden)


def _may_overlap(one: str, other: str) -> bool:
    """Return whether a name may match both wildcards, from their beginnings up to the first wildcard character."""
    first, second = (_fixed_beginning(wildcard) for wildcard in (one, other))
    return first.startswith(second) or second.startswith(first)


def _fixed_beginning(wildcard: str) -> str:
    return wildcard[: min((at for at in map(wildcard.find, "*?") if at >= 0), default=len(wildcard))]


def _merge_written(definition: Definition, override: EntryOverride) -> dict[str, Any]:
    """Return the merged entry as it is shown and approved.

    What a repository is approved for contains no secret of the user's file, but its hash.
    """
    written = definition.written
    if definition.source.place == "user" and override.source.place == "project":
        base = {"file": definition.source.path, "sha256": definition.written_digest}
        written = {**redact_definition(definition)["written"], "extends": base}
    merged = {**written, **override.written}
    for names in (("environment", "env"), ("headers",)):
        values = [entry[name] for entry in (written, override.written) for name in names if name in entry]
        if len(values) == 2:
            merged = {key: value for key, value in merged.items() if key not in names}
            merged[names[0]] = {**values[0], **values[1]}
    return merged
