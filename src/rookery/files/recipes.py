"""The recipes of a justfile, read from what `just --dump --dump-format json` prints; nothing is parsed by ourselves."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from rookery.files.just_quoting import variables, written
from rookery.system.errors import RookeryError

Kind = Literal["singular", "star", "plus"]
_UNSAID = "Run this recipe?"


class Parameter(msgspec.Struct, frozen=True):
    """`default` is an expression where it is no plain text; `long` and `short` make it an option, given by name."""

    name: str
    kind: Kind = "singular"
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
        """An option that takes no value: it is there or it is not."""
        return self.flag or self.value is not None

    @property
    def required(self) -> bool:
        return self.default is None and self.kind != "star" and not self.is_switch

    def described(self) -> dict[str, Any]:
        """For a client to read; a default that just works out when it runs is left untold."""
        found: dict[str, Any] = {"name": self.name, "required": self.required}
        found |= {"default": self.default} if isinstance(self.default, str) else {}
        found |= {"variadic": True} if self.kind != "singular" or self.multiple else {}
        found |= {"option": self.option, "switch": self.is_switch} if self.option else {}
        return found | ({"description": self.help} if self.help else {})


@dataclass(frozen=True)
class Recipe:
    """`confirms` are the questions that it and its dependencies ask; `raw` the parameters that become shell text."""

    name: str
    doc: str
    groups: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    confirms: tuple[str, ...]
    raw: frozenset[str]

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "description": self.doc}
        found["parameters"] = [parameter.described() for parameter in self.parameters]
        found |= {"groups": list(self.groups)} if self.groups else {}
        return found | ({"confirm": list(self.confirms)} if self.confirms else {})


@dataclass(frozen=True)
class Justfile:
    """What a justfile says, imports and modules included, and the hash of that.

    `content` is the same wherever the folder lies. It is not `whole` if unstable features are on: just does not tell
    all of those, so that such a justfile cannot be known by its hash.
    """

    recipes: dict[str, Recipe]
    content: str
    whole: bool

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


class _Dependency(msgspec.Struct):
    recipe: str
    arguments: list[Any] = []
    star: Any = None


class _Recipe(msgspec.Struct):
    namepath: str
    private: bool
    parameters: list[Parameter]
    attributes: list[Any] = []
    body: list[list[Any]] = []
    dependencies: list[_Dependency] = []
    doc: str | None = None
    shebang: bool = False


class _Module(msgspec.Struct):
    recipes: dict[str, _Recipe]
    modules: dict[str, "_Module"]
    settings: dict[str, Any]

    def walk(self) -> "Iterator[_Module]":
        yield self
        for module in self.modules.values():
            yield from module.walk()


def read_dump(printed: bytes, root: Path) -> Justfile:
    """The public recipes under the names that run them, those of modules as `module::recipe`."""
    try:
        dump = msgspec.json.decode(printed, type=_Module)
        plain = msgspec.json.decode(printed)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RookeryError(
            "internal-error", f"just answered a listing that cannot be read: {error}", "pip install -U rust-just"
        ) from error
    modules = list(dump.walk())
    every = {recipe.namepath: recipe for module in modules for recipe in module.recipes.values()}
    content = msgspec.json.encode(_relative(plain, str(root)), order="sorted").decode()
    public = {name: _recipe(recipe, every) for name, recipe in sorted(every.items()) if not recipe.private}
    return Justfile(public, content, not any(module.settings.get("unstable") for module in modules))


def _recipe(recipe: _Recipe, every: dict[str, _Recipe]) -> Recipe:
    return Recipe(
        name=recipe.namepath,
        doc=recipe.doc or "",
        groups=tuple(str(group) for group in _attributes(recipe, "group")),
        parameters=tuple(recipe.parameters),
        confirms=tuple(dict.fromkeys(_confirms(recipe, every, set()))),
        raw=frozenset(_raw(recipe)),
    )


def _attributes(recipe: _Recipe, name: str) -> Iterator[Any]:
    for attribute in recipe.attributes:
        if attribute == name:
            yield None
        elif isinstance(attribute, dict) and name in attribute:
            yield cast(dict[str, Any], attribute)[name]


def _confirms(recipe: _Recipe, every: dict[str, _Recipe], seen: set[str]) -> Iterator[str]:
    """Agreeing to a recipe agrees to all that it depends on, since just is told so once."""
    if recipe.namepath in seen:
        return
    seen.add(recipe.namepath)
    for question in _attributes(recipe, "confirm"):
        yield f"{recipe.namepath}: {question if isinstance(question, str) else _UNSAID}"
    module = recipe.namepath.rpartition("::")[0]
    for dependency in recipe.dependencies:
        inner = f"{module}::{dependency.recipe}" if module else dependency.recipe
        found = every.get(inner) or every.get(dependency.recipe)
        if found is not None:
            yield from _confirms(found, every, seen)


def _raw(recipe: _Recipe) -> set[str]:
    """Of the parameters those that may reach a shell as text; what is passed on may be written there."""
    elsewhere = [[*dependency.arguments, [dependency.star]] for dependency in recipe.dependencies]
    # A default may be made of the parameters before it.
    elsewhere += [[parameter.default] for parameter in recipe.parameters]
    found = {*written(recipe.body, one_text=recipe.shebang), *variables(elsewhere, quotable=False)}
    return found & {parameter.name for parameter in recipe.parameters}


def _relative(value: Any, root: str) -> Any:
    """The dump with each `source` as it lies from the root."""
    if isinstance(value, list):
        return [_relative(one, root) for one in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    return {
        name: os.path.relpath(one, root) if name == "source" and isinstance(one, str) else _relative(one, root)
        for name, one in cast(dict[str, Any], value).items()
    }
