"""The words after a recipe's name: checked against its parameters before anything runs."""

import re
from collections.abc import Iterator, Mapping, Sequence

from rookery.files.recipes import Parameter, Recipe
from rookery.system.errors import RookeryError

# In order, or by the names of the parameters.
Arguments = Sequence[str] | Mapping[str, str | Sequence[str]]

_MOST = 256
_LONGEST = 32_768
# What a shell takes as it is. Globs and blanks may be split or expanded, but run nothing.
_TAME = re.compile(r"[\w ./:=@%+,*?\[\]~-]*")


def words_of(recipe: Recipe, arguments: Arguments) -> list[str]:
    """What to write after the recipe's name."""
    options = [parameter for parameter in recipe.parameters if parameter.option]
    named = _named(recipe, arguments)
    words = [word for option in options for word in _option(recipe, option, named.get(option.name))]
    positional = list(_positional(recipe, named))
    count = len(words) + len(positional)
    if count > _MOST:
        raise _refused(recipe, f"{count} arguments are more than {_MOST}")
    # Only a recipe with options knows a double hyphen; for another one it would be an argument.
    return [*words, "--", *positional] if options else positional


def usage(recipe: Recipe) -> str:
    """How the recipe is called, for an error to tell."""
    return " ".join([recipe.name, *(_shown(parameter) for parameter in recipe.parameters)])


def _shown(parameter: Parameter) -> str:
    name = f"{parameter.option} {parameter.name}" if parameter.option else parameter.name
    name += "..." if parameter.kind != "singular" or parameter.multiple else ""
    return name if parameter.required else f"[{name}]"


def _named(recipe: Recipe, arguments: Arguments) -> dict[str, list[str]]:
    """The values of each parameter that was given any."""
    if isinstance(arguments, Mapping):
        known = {parameter.name for parameter in recipe.parameters}
        unknown = sorted(set(arguments) - known)
        if unknown:
            raise _refused(recipe, f"it has no parameter {', '.join(map(repr, unknown))}")
        found = {name: [value] if isinstance(value, str) else [*value] for name, value in arguments.items()}
    else:
        found = _in_order(recipe, [*arguments])
    for parameter in recipe.parameters:
        for value in found.get(parameter.name, ()):
            _check(recipe, parameter, value)
    return found


def _in_order(recipe: Recipe, values: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for parameter in [parameter for parameter in recipe.parameters if not parameter.option]:
        taken = len(values) if parameter.kind != "singular" else 1
        if values[:taken]:
            found[parameter.name] = values[:taken]
        values = values[taken:]
    if values:
        # Just would run them as further recipes.
        raise _refused(recipe, f"{len(values)} arguments more than it has parameters for")
    return found


def _positional(recipe: Recipe, named: Mapping[str, list[str]]) -> Iterator[str]:
    ended: str | None = None
    for parameter in [parameter for parameter in recipe.parameters if not parameter.option]:
        values = named.get(parameter.name)
        if not values:
            if parameter.required:
                raise _refused(recipe, f"the parameter {parameter.name!r} has no value")
            ended = ended or parameter.name
            continue
        if ended is not None:
            raise _refused(recipe, f"{parameter.name!r} has a value, but {ended!r} before it has none")
        if len(values) > 1 and parameter.kind == "singular":
            raise _refused(recipe, f"the parameter {parameter.name!r} takes one value")
        yield from values


def _option(recipe: Recipe, parameter: Parameter, values: list[str] | None) -> Iterator[str]:
    assert parameter.option is not None
    if not values:
        if parameter.required:
            raise _refused(recipe, f"the option {parameter.name!r} has no value; give it by its name")
        return
    if parameter.is_switch:
        if values not in (["true"], ["false"]):
            raise _refused(recipe, f"the switch {parameter.name!r} is 'true' or 'false'")
        yield from [parameter.option] if values == ["true"] else []
        return
    if len(values) > 1 and not parameter.multiple:
        raise _refused(recipe, f"the option {parameter.name!r} takes one value")
    for value in values:
        yield from [f"{parameter.option}={value}"] if parameter.long else [parameter.option, value]


def _check(recipe: Recipe, parameter: Parameter, value: str) -> None:
    if "\0" in value or len(value) > _LONGEST or not value.isprintable():
        raise _refused(recipe, f"the value of {parameter.name!r} has control characters or is too long")
    if parameter.name in recipe.raw and not parameter.is_switch and not _TAME.fullmatch(value):
        raise RookeryError(
            "invalid-input",
            f"the recipe {recipe.name!r} writes {parameter.name!r} into a shell line as it is, and the value that was "
            "given has characters that a shell acts upon",
            f"leave those out, or write {{{{quote({parameter.name})}}}} in the justfile",
        )


def _refused(recipe: Recipe, why: str) -> RookeryError:
    message = f"the recipe {recipe.name!r} cannot be run so: {why}"
    return RookeryError("invalid-input", message, f"usage: {usage(recipe)}")
