"""The JSON Schemas of tools, made from the types of what they take and give."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

_ERROR = {"required": ["error"], "properties": {"error": {"type": "object", "required": ["code", "message"]}}}


def input_schema(takes: type[msgspec.Struct]) -> dict[str, Any]:
    return _schema(takes)


def output_schema(gives: Any) -> dict[str, Any]:
    """Of structured content: an object, or an object around it; or an error of ours."""
    return _or_error(_object(_whole(_schema(gives))))


def _whole(schema: Any) -> Any:
    """The schema of an answer, in which every member is there, also one that a struct has a default for."""
    if isinstance(schema, list):
        return [_whole(one) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    made = {key: _whole(value) for key, value in cast(dict[str, Any], schema).items() if key != "default"}
    if isinstance(made.get("properties"), dict):
        made["required"] = [*made["properties"]]
    return made


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of structured content: of the value itself, or of the object that it is wrapped in."""
    if schema.get("type") == "object":
        return schema
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


def _or_error(schema: dict[str, Any]) -> dict[str, Any]:
    """Either the answer or an error of ours: clients check failures too, and hide those that do not fit."""
    return {"type": "object", "anyOf": [schema, _ERROR]}


def _schema(kind: Any) -> dict[str, Any]:
    """One schema without references to elsewhere; clients differ in how well they follow them."""
    (made,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    return _inlined(made, parts)


def _inlined(made: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(made, list):
        return [_inlined(one, parts) for one in cast(list[Any], made)]
    if not isinstance(made, dict):
        return made
    members = cast(dict[str, Any], made)
    if "$ref" in members:
        # What a struct says of itself is for those who read the code.
        part = {key: value for key, value in parts[members["$ref"]].items() if key not in ("title", "description")}
        return _inlined(part, parts)
    made = {key: _inlined(value, parts) for key, value in members.items()}
    choices: list[dict[str, Any]] = made.get("anyOf", [])
    if choices and all(one.keys() == {"type"} for one in choices):
        # The shorter way to say it, which more clients understand.
        made["type"] = [one["type"] for one in made.pop("anyOf")]
    return made
