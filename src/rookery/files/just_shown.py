"""A justfile for people to look at before they approve it: all that would run, imports and modules included.

It is written from what just says of it, so that nothing can hide where just looks and a person does not.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

# What is shown in a place of its own, or says nothing of what would run.
_APART = frozenset({"recipes", "modules", "assignments", "settings", "source", "module_path", "first"})
_OF_RECIPES = frozenset({"name", "namepath", "parameters", "dependencies", "body", "doc", "attributes", "private"})
_OF_PARAMETERS = frozenset({"name", "kind", "default"})
_KINDS = {"star": "*", "plus": "+"}


def justfile_text(content: str) -> str:
    """The text of a `Justfile.content`."""
    return "\n".join(_module(msgspec.json.decode(content))).strip("\n")


def _module(module: Mapping[str, Any]) -> Iterator[str]:
    place = module.get("module_path")
    yield f"# {module.get('source', '')}" + (f", module {place}" if place else "")
    yield from _said(module["settings"], "set ")
    yield from _said({key: value for key, value in module.items() if key not in _APART})
    for name, one in sorted(module.get("assignments", {}).items()):
        more = {key: value for key, value in one.items() if key not in ("name", "value")}
        yield f"{name} := {_expression(one.get('value'))}{_rest(more)}"
    for _, recipe in sorted(module["recipes"].items()):
        yield ""
        yield from _recipe(recipe)
    for _, inner in sorted(module["modules"].items()):
        yield ""
        yield from _module(inner)


def _recipe(recipe: Mapping[str, Any]) -> Iterator[str]:
    if recipe.get("doc"):
        yield f"# {recipe['doc']}"
    yield from (f"[{one if isinstance(one, str) else json.dumps(one)}]" for one in recipe.get("attributes", []))
    words = [recipe["namepath"], *(_parameter(one) for one in recipe["parameters"])]
    needs = "".join(f" {_dependency(one)}" for one in recipe.get("dependencies", []))
    rest = _rest({key: value for key, value in recipe.items() if key not in _OF_RECIPES})
    yield f"{' '.join(words)}:{needs}{rest}"
    for line in recipe.get("body", []):
        yield "    " + "".join(part if isinstance(part, str) else f"{{{{{_inner(part)}}}}}" for part in line)


def _parameter(one: Mapping[str, Any]) -> str:
    default = f"={_expression(one['default'])}" if one.get("default") is not None else ""
    rest = {key: value for key, value in one.items() if key not in _OF_PARAMETERS}
    return f"{_KINDS.get(one['kind'], '')}{one['name']}{default}{_rest(rest)}"


def _dependency(one: Mapping[str, Any]) -> str:
    given = [_expression(argument) for argument in one.get("arguments", [])]
    rest = _rest({key: value for key, value in one.items() if key not in ("recipe", "arguments")})
    return (f"({' '.join([one['recipe'], *given])})" if given else one["recipe"]) + rest


def _inner(part: Any) -> str:
    """What stands between braces is wrapped once more."""
    found = cast(Sequence[Any], part)
    return _expression(found[0]) if len(found) == 1 else _expression(part)


def _expression(value: Any) -> str:
    match value:
        case ["variable", str(name)]:
            return name
        case ["evaluate", str(command)] if "\n" not in command:
            return f"`{command}`"
        case ["call", str(name), *given]:
            return f"{name}({', '.join(map(_expression, given))})"
        case [str(word), *given] if given:
            return f"{word}({', '.join(map(_expression, given))})"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _said(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    yield from (f"{before}{key} := {json.dumps(value)}" for key, value in sorted(values.items()) if value)


def _rest(values: Mapping[str, Any]) -> str:
    """What else is set, whatever it is: just may learn of something that is not known here."""
    found = ", ".join(f"{key}={json.dumps(value)}" for key, value in sorted(values.items()) if value)
    return f"  [{found}]" if found else ""
