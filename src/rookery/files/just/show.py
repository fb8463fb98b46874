"""Format a justfile for review before it is approved, with all imports and modules.

The text is made from just's own dump, so that a reviewer sees everything that just reads.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

# Keys that are formatted separately, or do not affect what runs.
_HANDLED_KEYS = frozenset({"recipes", "modules", "assignments", "settings", "source", "module_path", "first"})
_RECIPE_KEYS = frozenset({"name", "namepath", "parameters", "dependencies", "body", "doc", "attributes", "private"})
_PARAMETER_KEYS = frozenset({"name", "kind", "default"})
_KIND_SIGNS = {"star": "*", "plus": "+"}


def format_justfile(content: str) -> str:
    """Return the text for a `Justfile.content`."""
    return "\n".join(_format_module(msgspec.json.decode(content))).strip("\n")


def _format_module(module: Mapping[str, Any]) -> Iterator[str]:
    path = module.get("module_path")
    yield f"# {module.get('source', '')}" + (f", module {path}" if path else "")
    yield from _format_values(module["settings"], "set ")
    yield from _format_values({key: value for key, value in module.items() if key not in _HANDLED_KEYS})
    for name, assignment in sorted(module.get("assignments", {}).items()):
        more = {key: value for key, value in assignment.items() if key not in ("name", "value")}
        yield f"{name} := {_format_expression(assignment.get('value'))}{_format_rest(more)}"
    for _, recipe in sorted(module["recipes"].items()):
        yield ""
        yield from _format_recipe(recipe)
    for _, inner in sorted(module["modules"].items()):
        yield ""
        yield from _format_module(inner)


def _format_recipe(recipe: Mapping[str, Any]) -> Iterator[str]:
    if recipe.get("doc"):
        yield f"# {recipe['doc']}"
    yield from (f"[{item if isinstance(item, str) else json.dumps(item)}]" for item in recipe.get("attributes", []))
    words = [recipe["namepath"], *(_format_parameter(parameter) for parameter in recipe["parameters"])]
    needs = "".join(f" {_format_dependency(dependency)}" for dependency in recipe.get("dependencies", []))
    rest = _format_rest({key: value for key, value in recipe.items() if key not in _RECIPE_KEYS})
    yield f"{' '.join(words)}:{needs}{rest}"
    for line in recipe.get("body", []):
        yield "    " + "".join(
            part if isinstance(part, str) else f"{{{{{_format_interpolation(part)}}}}}" for part in line
        )


def _format_parameter(parameter: Mapping[str, Any]) -> str:
    default = f"={_format_expression(parameter['default'])}" if parameter.get("default") is not None else ""
    rest = {key: value for key, value in parameter.items() if key not in _PARAMETER_KEYS}
    return f"{_KIND_SIGNS.get(parameter['kind'], '')}{parameter['name']}{default}{_format_rest(rest)}"


def _format_dependency(dependency: Mapping[str, Any]) -> str:
    arguments = [_format_expression(argument) for argument in dependency.get("arguments", [])]
    rest = _format_rest({key: value for key, value in dependency.items() if key not in ("recipe", "arguments")})
    return (f"({' '.join([dependency['recipe'], *arguments])})" if arguments else dependency["recipe"]) + rest


def _format_interpolation(part: Any) -> str:
    """Format an expression between braces, which the dump wraps in a list of its own."""
    items = cast(Sequence[Any], part)
    return _format_expression(items[0]) if len(items) == 1 else _format_expression(part)


def _format_expression(value: Any) -> str:
    match value:
        case ["variable", str(name)]:
            return name
        case ["evaluate", str(command)] if "\n" not in command:
            return f"`{command}`"
        case ["call", str(name), *arguments]:
            return f"{name}({', '.join(map(_format_expression, arguments))})"
        case [str(word), *arguments] if arguments:
            return f"{word}({', '.join(map(_format_expression, arguments))})"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _format_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    yield from (f"{prefix}{key} := {json.dumps(value)}" for key, value in sorted(values.items()) if value)


def _format_rest(values: Mapping[str, Any]) -> str:
    """Format all other values, so that keys of newer versions of just are shown too."""
    text = ", ".join(f"{key}={json.dumps(value)}" for key, value in sorted(values.items()) if value)
    return f"  [{text}]" if text else ""
