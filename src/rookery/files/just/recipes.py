"""Recipes of a justfile, and the arguments that they accept.

Recipes come from the output of `just --dump --dump-format json`; no justfile is parsed here. Arguments are checked
against the parameters of the recipe before anything runs. Values of parameters that a recipe writes unquoted into a
shell line may not contain characters that are special to a shell.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from rookery.system.errors import RookeryError

_DEFAULT_QUESTION = "Run this recipe?"
_MAX_ARGUMENTS = 256
_MAX_LENGTH = 32_768
# Characters that are safe in a shell. Globs and blanks may be expanded or split, but run nothing.
_SHELL_SAFE = re.compile(r"[\w ./:=@%+,*?\[\]~-]*")


def find_unquoted(body: Sequence[Sequence[Any]], *, single_script: bool) -> Iterator[str]:
    """Yield the variables that are unquoted in a recipe's body; `single_script` if one shell runs all its lines."""
    before = ""
    for line in body:
        for part in line:
            if isinstance(part, str):
                before += part
            else:
                # Inside of quotes, the quotes that `quote` adds would end them.
                yield from find_variables(part, quotable=not _inside_quotes(before))
        before = before if single_script or before.endswith("\\") else ""


def _inside_quotes(text: str) -> bool:
    """Return whether a quote is open at the end of the text. An apostrophe counts as one, to be safe."""
    return text.count('"') % 2 == 1 or text.count("'") % 2 == 1


def find_variables(expression: Any, *, quotable: bool = True) -> Iterator[str]:
    """Yield the variables of an expression, except for quoted ones."""
    if not isinstance(expression, Sequence) or isinstance(expression, str):
        return
    parts = cast(Sequence[Any], expression)
    if len(parts) == 2 and parts[0] == "variable" and isinstance(parts[1], str):
        yield parts[1]
    elif not quotable or [*parts[:2]] != ["call", "quote"]:
        for part in parts:
            yield from find_variables(part, quotable=quotable)


ParameterKind = Literal["singular", "star", "plus"]


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a recipe. `default` is a text, or else an expression of just.

    `long` and `short` make it an option, given by name.
    """

    name: str
    kind: ParameterKind = "singular"
    default: Any = None
    help: str | None = None
    long: str | None = None
    short: str | None = None
    flag: bool = False
    multiple: bool = False
    value: Any = None

    @property
    def option(self) -> str | None:
        return f"--{self.long}" if self.long else f"-{self.short}" if self.short else None

    @property
    def is_switch(self) -> bool:
        """Whether it is an option without a value: present or not."""
        return self.flag or self.value is not None

    @property
    def required(self) -> bool:
        return self.default is None and self.kind != "star" and not self.is_switch

    def describe(self) -> dict[str, Any]:
        """Return the parameter for a client; a default that just computes at run time is left out."""
        fields: dict[str, Any] = {"name": self.name, "required": self.required}
        fields |= {"default": self.default} if isinstance(self.default, str) else {}
        fields |= {"variadic": True} if self.kind != "singular" or self.multiple else {}
        fields |= {"option": self.option, "switch": self.is_switch} if self.option else {}
        return fields | ({"description": self.help} if self.help else {})


@dataclass(frozen=True)
class Recipe:
    """A recipe.

    `confirmations` are its questions and those of its dependencies; `shell_parameters` the parameters used as shell
    text.
    """

    name: str
    doc: str
    groups: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    confirmations: tuple[str, ...]
    shell_parameters: frozenset[str]

    def describe(self) -> dict[str, Any]:
        """Return the recipe for a client."""
        fields: dict[str, Any] = {"name": self.name, "description": self.doc}
        fields["parameters"] = [parameter.describe() for parameter in self.parameters]
        fields |= {"groups": list(self.groups)} if self.groups else {}
        return fields | ({"confirm": list(self.confirmations)} if self.confirmations else {})


@dataclass(frozen=True)
class Justfile:
    """A parsed justfile, including imports and modules; `fingerprint` is the hash of its content.

    `content` does not depend on where the folder is. `is_complete` is False if unstable features are on: just does not
    dump all of those, so that the hash does not identify such a justfile.
    """

    recipes: dict[str, Recipe]
    content: str
    is_complete: bool

    @property
    def fingerprint(self) -> str:
        """The SHA-256 hash of the content."""
        return hashlib.sha256(self.content.encode()).hexdigest()


class _DumpedDependency(msgspec.Struct):
    recipe: str
    arguments: list[Any] = []
    star: Any = None


class _DumpedRecipe(msgspec.Struct):
    namepath: str
    private: bool
    parameters: list[Parameter]
    attributes: list[Any] = []
    body: list[list[Any]] = []
    dependencies: list[_DumpedDependency] = []
    doc: str | None = None
    shebang: bool = False


class _DumpedModule(msgspec.Struct):
    recipes: dict[str, _DumpedRecipe]
    modules: dict[str, "_DumpedModule"]
    settings: dict[str, Any]

    def walk(self) -> "Iterator[_DumpedModule]":
        yield self
        for module in self.modules.values():
            yield from module.walk()


def parse_dump(output: bytes, root: Path) -> Justfile:
    """Return the public recipes by the names that run them, those of modules as `module::recipe`."""
    try:
        dump = msgspec.json.decode(output, type=_DumpedModule)
        plain = msgspec.json.decode(output)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RookeryError(
            "internal-error", f"the output of just --dump cannot be parsed: {error}", "pip install -U rust-just"
        ) from error
    modules = list(dump.walk())
    all_recipes = {recipe.namepath: recipe for module in modules for recipe in module.recipes.values()}
    content = msgspec.json.encode(_with_relative_sources(plain, str(root)), order="sorted").decode()
    public = {
        name: _build_recipe(recipe, all_recipes) for name, recipe in sorted(all_recipes.items()) if not recipe.private
    }
    return Justfile(public, content, not any(module.settings.get("unstable") for module in modules))


def _build_recipe(recipe: _DumpedRecipe, all_recipes: dict[str, _DumpedRecipe]) -> Recipe:
    return Recipe(
        name=recipe.namepath,
        doc=recipe.doc or "",
        groups=tuple(str(group) for group in _find_attributes(recipe, "group")),
        parameters=tuple(recipe.parameters),
        confirmations=tuple(dict.fromkeys(_find_confirms(recipe, all_recipes, set()))),
        shell_parameters=frozenset(_find_raw_parameters(recipe)),
    )


def _find_attributes(recipe: _DumpedRecipe, name: str) -> Iterator[Any]:
    """Yield the value of each attribute with this name; None for one without a value."""
    for attribute in recipe.attributes:
        if attribute == name:
            yield None
        elif isinstance(attribute, dict) and name in attribute:
            yield cast(dict[str, Any], attribute)[name]


def _find_confirms(recipe: _DumpedRecipe, all_recipes: dict[str, _DumpedRecipe], seen: set[str]) -> Iterator[str]:
    """Yield the questions of a recipe and of all its dependencies, since just gets one confirmation for all."""
    if recipe.namepath in seen:
        return
    seen.add(recipe.namepath)
    for question in _find_attributes(recipe, "confirm"):
        yield f"{recipe.namepath}: {question if isinstance(question, str) else _DEFAULT_QUESTION}"
    module = recipe.namepath.rpartition("::")[0]
    for dependency in recipe.dependencies:
        inner = f"{module}::{dependency.recipe}" if module else dependency.recipe
        target = all_recipes.get(inner) or all_recipes.get(dependency.recipe)
        if target is not None:
            yield from _find_confirms(target, all_recipes, seen)


def _find_raw_parameters(recipe: _DumpedRecipe) -> set[str]:
    """Return the parameters that may reach a shell as text, also by way of a dependency or a default."""
    elsewhere = [[*dependency.arguments, [dependency.star]] for dependency in recipe.dependencies]
    # A default may use the parameters before it.
    elsewhere += [[parameter.default] for parameter in recipe.parameters]
    variables = {*find_unquoted(recipe.body, single_script=recipe.shebang), *find_variables(elsewhere, quotable=False)}
    return variables & {parameter.name for parameter in recipe.parameters}


def _with_relative_sources(value: Any, root: str) -> Any:
    """Return the dump with each `source` relative to the root."""
    if isinstance(value, list):
        return [_with_relative_sources(item, root) for item in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    return {
        name: os.path.relpath(item, root)
        if name == "source" and isinstance(item, str)
        else _with_relative_sources(item, root)
        for name, item in cast(dict[str, Any], value).items()
    }


# Values in order, or by parameter name.
RecipeArguments = Sequence[str] | Mapping[str, str | Sequence[str]]


def build_arguments(recipe: Recipe, arguments: RecipeArguments) -> list[str]:
    """Return the arguments to pass after the recipe's name; raise if they do not fit its parameters."""
    options = [parameter for parameter in recipe.parameters if parameter.option]
    values = _values_by_name(recipe, arguments)
    words = [word for option in options for word in _option_words(recipe, option, values.get(option.name))]
    positional = list(_positional_words(recipe, values))
    count = len(words) + len(positional)
    if count > _MAX_ARGUMENTS:
        raise _arguments_error(recipe, f"{count} arguments exceed the limit of {_MAX_ARGUMENTS}")
    # Only recipes with options accept a double hyphen; for others it would be an argument.
    return [*words, "--", *positional] if options else positional


def format_usage(recipe: Recipe) -> str:
    """Return how to call the recipe, for error messages."""
    return " ".join([recipe.name, *(_format_parameter(parameter) for parameter in recipe.parameters)])


def _format_parameter(parameter: Parameter) -> str:
    name = f"{parameter.option} {parameter.name}" if parameter.option else parameter.name
    name += "..." if parameter.kind != "singular" or parameter.multiple else ""
    return name if parameter.required else f"[{name}]"


def _values_by_name(recipe: Recipe, arguments: RecipeArguments) -> dict[str, list[str]]:
    """Return the values of each parameter that has any, checked."""
    if isinstance(arguments, Mapping):
        names = {parameter.name for parameter in recipe.parameters}
        unknown = sorted(set(arguments) - names)
        if unknown:
            raise _arguments_error(recipe, f"it has no parameter {', '.join(map(repr, unknown))}")
        values_by_name = {name: [value] if isinstance(value, str) else [*value] for name, value in arguments.items()}
    else:
        values_by_name = _values_in_order(recipe, [*arguments])
    for parameter in recipe.parameters:
        for value in values_by_name.get(parameter.name, ()):
            _check_value(recipe, parameter, value)
    return values_by_name


def _values_in_order(recipe: Recipe, values: list[str]) -> dict[str, list[str]]:
    values_by_name: dict[str, list[str]] = {}
    for parameter in [parameter for parameter in recipe.parameters if not parameter.option]:
        taken = len(values) if parameter.kind != "singular" else 1
        if values[:taken]:
            values_by_name[parameter.name] = values[:taken]
        values = values[taken:]
    if values:
        # just would run them as further recipes.
        raise _arguments_error(recipe, f"{len(values)} arguments too many")
    return values_by_name


def _positional_words(recipe: Recipe, values_by_name: Mapping[str, list[str]]) -> Iterator[str]:
    skipped: str | None = None
    for parameter in [parameter for parameter in recipe.parameters if not parameter.option]:
        values = values_by_name.get(parameter.name)
        if not values:
            if parameter.required:
                raise _arguments_error(recipe, f"the parameter {parameter.name!r} has no value")
            skipped = skipped or parameter.name
            continue
        if skipped is not None:
            raise _arguments_error(recipe, f"{parameter.name!r} has a value, but {skipped!r} before it has none")
        if len(values) > 1 and parameter.kind == "singular":
            raise _arguments_error(recipe, f"the parameter {parameter.name!r} takes one value")
        yield from values


def _option_words(recipe: Recipe, parameter: Parameter, values: list[str] | None) -> Iterator[str]:
    assert parameter.option is not None
    if not values:
        if parameter.required:
            raise _arguments_error(recipe, f"the option {parameter.name!r} has no value; give it by its name")
        return
    if parameter.is_switch:
        if values not in (["true"], ["false"]):
            raise _arguments_error(recipe, f"the switch {parameter.name!r} must be 'true' or 'false'")
        yield from [parameter.option] if values == ["true"] else []
        return
    if len(values) > 1 and not parameter.multiple:
        raise _arguments_error(recipe, f"the option {parameter.name!r} takes one value")
    for value in values:
        yield from [f"{parameter.option}={value}"] if parameter.long else [parameter.option, value]


def _check_value(recipe: Recipe, parameter: Parameter, value: str) -> None:
    if "\0" in value or len(value) > _MAX_LENGTH or not value.isprintable():
        raise _arguments_error(recipe, f"the value of {parameter.name!r} has control characters or is too long")
    if parameter.name in recipe.shell_parameters and not parameter.is_switch and not _SHELL_SAFE.fullmatch(value):
        raise RookeryError(
            "invalid-input",
            f"the recipe {recipe.name!r} inserts {parameter.name!r} into a shell line unquoted, and the value "
            "contains characters that are special to a shell",
            f"remove those characters, or write {{{{quote({parameter.name})}}}} in the justfile",
        )


def _arguments_error(recipe: Recipe, reason: str) -> RookeryError:
    message = f"invalid arguments for the recipe {recipe.name!r}: {reason}"
    return RookeryError("invalid-input", message, f"usage: {format_usage(recipe)}")
