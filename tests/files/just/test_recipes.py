"""Reading just's own listing of a justfile."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.files.just.recipes import Justfile, RecipeArguments, build_arguments, parse_dump
from rookery.files.just.run import JustRunner
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

JUSTFILE = """
import 'more.just'
mod docs 'docs/mod.just'

# build it
[group('dev')]
build target='all' *flags: (_step target)
  echo {{target}} {{quote(flags)}}

_step name:
  echo {{name}}

[private]
hidden:
  true

[confirm('wipe the disk?')]
wipe:
  true

[confirm]
all: wipe docs::serve
  true

safe name $shown:
  echo {{quote(name)}} $shown

[arg('level', long='level', help='how loud')]
[arg('quick', long='quick', value='true')]
tuned level quick='false' rest='':
  echo {{level}} {{quick}} {{rest}}

several +names:
  echo {{names}}
"""


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner(new_id())
    yield made
    await made.stop_all()


def fill(folder: Path, text: str = JUSTFILE) -> Path:
    (folder / "docs").mkdir(parents=True)
    (folder / "justfile").write_text(text)
    (folder / "more.just").write_text("imported:\n  true\n")
    (folder / "docs/mod.just").write_text("[confirm('serve?')]\nserve:\n  true\n\n_inner:\n  true\n")
    return folder


@pytest.fixture
async def justfile(spawner: Spawner, tmp_path: Path) -> Justfile:
    return await JustRunner(spawner).read_justfile(fill(tmp_path / "w"))


@requirement("just.list.tasks")
async def test_public_recipes_are_listed_with_documentation_and_parameters(justfile: Justfile) -> None:
    names = ["all", "build", "docs::serve", "imported", "safe", "several", "tuned", "wipe"]
    assert list(justfile.recipes) == names
    assert justfile.recipes["build"].describe() == {
        "name": "build",
        "description": "build it",
        "parameters": [
            {"name": "target", "required": False, "default": "all"},
            {"name": "flags", "required": False, "variadic": True},
        ],
        "groups": ["dev"],
    }
    level, quick, rest = justfile.recipes["tuned"].describe()["parameters"]
    assert level == {
        "name": "level",
        "required": True,
        "option": "--level",
        "switch": False,
        "description": "how loud",
    }
    assert quick["switch"] and not quick["required"]
    assert "option" not in rest


async def test_a_recipe_is_confirmed_together_with_all_that_it_depends_on(justfile: Justfile) -> None:
    asked = ("all: Run this recipe?", "wipe: wipe the disk?", "docs::serve: serve?")
    assert justfile.recipes["all"].confirmations == asked
    assert justfile.recipes["build"].confirmations == ()


async def test_parameters_that_reach_a_shell_unquoted_are_known(justfile: Justfile) -> None:
    assert justfile.recipes["build"].shell_parameters == {"target"}
    assert justfile.recipes["safe"].shell_parameters == frozenset()
    assert justfile.recipes["several"].shell_parameters == {"names"}


async def test_a_parameter_that_is_quoted_within_quotes_counts_as_unquoted(spawner: Spawner, tmp_path: Path) -> None:
    twice = (
        "double a b:\n  echo \"{{quote(a)}}\" {{quote(b)}}\nsingle a b:\n  echo '{{quote(a)}}'\n  echo {{quote(b)}}\n"
    )
    script = "script a b:\n  #!/bin/sh\n  echo {{quote(a)}} '\n  {{quote(b)}}'\n"
    listed = await JustRunner(spawner).read_justfile(fill(tmp_path / "w", twice + script))
    raw = {name: set(recipe.shell_parameters) for name, recipe in listed.recipes.items()}
    assert raw == {"double": {"a"}, "single": {"a"}, "script": {"b"}}


async def test_the_same_justfile_has_the_same_fingerprint_wherever_it_lies(spawner: Spawner, tmp_path: Path) -> None:
    here, there = fill(tmp_path / "here"), fill(tmp_path / "there")
    just = JustRunner(spawner)
    first = await just.read_justfile(here)
    assert (await just.read_justfile(there)).fingerprint == first.fingerprint
    for file in ("more.just", "docs/mod.just"):
        (there / file).write_text((there / file).read_text().replace("true", "false"))
        changed = (await just.read_justfile(there)).fingerprint
        assert changed != first.fingerprint
        (there / file).write_text((here / file).read_text())


async def test_a_justfile_with_unstable_features_cannot_be_known_by_its_fingerprint(
    spawner: Spawner, tmp_path: Path
) -> None:
    assert (await JustRunner(spawner).read_justfile(fill(tmp_path / "w"))).is_complete
    (tmp_path / "w/docs/mod.just").write_text("set unstable\nserve:\n  true\n")
    assert not (await JustRunner(spawner).read_justfile(tmp_path / "w")).is_complete


def test_a_listing_that_is_none_is_told() -> None:
    with pytest.raises(RookeryError, match="cannot be parsed"):
        parse_dump(b'{"recipes": 3}', Path("/"))


@requirement("just.run.listed")
@pytest.mark.parametrize(
    ("recipe", "arguments", "words"),
    [
        ("build", [], []),
        ("build", ["x"], ["x"]),
        ("build", ["x", "-a", "--", "it's; $(b)"], ["x", "-a", "--", "it's; $(b)"]),
        ("build", {"target": "x", "flags": ["-a", "-b"]}, ["x", "-a", "-b"]),
        ("safe", ["$(rm)", "`rm`"], ["$(rm)", "`rm`"]),
        ("several", ["a", "src/*.py", "k=v"], ["a", "src/*.py", "k=v"]),
        ("tuned", {"level": "3", "quick": "true", "rest": "-x"}, ["--level=3", "--quick", "--", "-x"]),
        ("tuned", {"level": "3", "quick": "false"}, ["--level=3", "--"]),
    ],
)
async def test_arguments_that_fit_become_words(
    justfile: Justfile, recipe: str, arguments: RecipeArguments, words: list[str]
) -> None:
    assert build_arguments(justfile.recipes[recipe], arguments) == words


@requirement("just.run.listed")
@pytest.mark.parametrize(
    ("recipe", "arguments", "why"),
    [
        ("wipe", ["build"], "1 arguments too many"),
        ("safe", ["one"], "'shown' has no value"),
        ("safe", {"name": ["a", "b"], "shown": "c"}, "takes one value"),
        ("build", {"flags": "-a"}, "'target' before it has none"),
        ("build", {"nothing": "a"}, "no parameter 'nothing'"),
        ("several", [], "'names' has no value"),
        ("several", ["a\nb"], "control characters"),
        ("several", ["a"] * 300, "exceed the limit of 256"),
        ("tuned", ["3"], "give it by its name"),
        ("tuned", {"level": "3", "quick": "yes"}, "'true' or 'false'"),
        ("build", ["a; rm -rf ."], "special to a shell"),
        ("several", ["$(id)"], "special to a shell"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(
    justfile: Justfile, recipe: str, arguments: RecipeArguments, why: str
) -> None:
    with pytest.raises(RookeryError) as raised:
        build_arguments(justfile.recipes[recipe], arguments)
    assert raised.value.code == "invalid-input"
    assert why in raised.value.message + raised.value.remedy
