"""just reads only in the workspace: no link, path, module or environment file leads out, even when swapped."""

import asyncio
import errno
import os
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from rookery.files.just.run import JustRunner, find_just
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id, project_id
from rookery.system.process.spawn import Spawner
from tests.support.gateway.gateway import start_gateway, view_of
from tests.support.mcp.caller import words
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

SECRET = "hunter2"
# As little a justfile as a file of secrets is, a justfile of somebody else's, and lines of variables.
OUTSIDE = {
    "garbage": f"password = {SECRET} : 0\n",
    "justfile": f"test:\n  @echo {SECRET}\n\n{SECRET}:\n  @echo {SECRET}\n",
    "variables": f"FOO={SECRET}\n{SECRET} is no variable\n",
}
TEST = '\ntest:\n  @echo "tested ${FOO:-}"\n'


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner(new_id())
    yield made
    await made.stop_all()


@pytest.fixture(params=sorted(OUTSIDE))
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder above the workspace, which is `w`; the secret file has many names."""
    text = OUTSIDE[request.param]
    for name in ("secret", ".env", "more.env", "far/mod.just", "far/justfile", "far/m.just", "far/.env"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    Path.home().joinpath("secret").write_text(text)
    (tmp_path / "w").mkdir()
    return tmp_path


def fill(root: Path, files: Mapping[str, str], links: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.format(outside=root.parent).encode())
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target.format(outside=root.parent))


def imports(line: str) -> dict[str, str]:
    return {"justfile": f"{line}\n{TEST.replace('{', '{{').replace('}', '}}')}"}


LEADING_OUT: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "the justfile is a link": ({}, {"justfile": "../secret"}),
    "the justfile is an absolute link": ({}, {"Justfile": "{outside}/secret"}),
    "the justfile is a link to a link": ({}, {".justfile": "b", "b": "c/d", "c/d": "../../secret"}),
    "a path upwards": (imports("import '../secret'"), {}),
    "a path down and upwards": (imports("import 'x/y/../../../secret'"), {}),
    "an absolute path": (imports("import '{outside}/secret'"), {}),
    "an optional import": (imports("import? '../secret'"), {}),
    "without a blank": (imports("import'../secret'"), {}),
    "an optional import without a blank": (imports("import?'../secret'"), {}),
    "the home folder": (imports("import '~/secret'"), {}),
    "a variable": (imports("import x'$HOME/secret'"), {}),
    "a home folder that is expanded": (imports("import x'~/secret'"), {}),
    "an escape": (imports('import "\\u{{2e}}./secret"'), {}),
    "double quotes": (imports('import "../secret"'), {}),
    "three quotes": (imports("import '''\n  ../secret\n'''"), {}),
    "three double quotes": (imports('import """../secret"""'), {}),
    "a line that goes on": (imports("import\\\n  '../secret'"), {}),
    "tabs and a remark": (imports("import \t '../secret' # a remark"), {}),
    "a carriage return": (imports("import '../secret'\r"), {}),
    "a byte order mark": ({"justfile": "\ufeffimport '../secret'\n"}, {}),
    "an attribute": (imports("[unix]\nimport '../secret'"), {}),
    "behind other lines": ({"justfile": "a := '1'\n\nb:\n  true\n\nimport '../secret'\n"}, {}),
    "an import that is a link": (imports("import 'a.just'"), {"a.just": "../secret"}),
    "a folder that is a link": (imports("import 'd/secret'"), {"d": ".."}),
    "an import of an import": ({**imports("import 'd/a.just'"), "d/a.just": "import '../../secret'\n"}, {}),
    "an import of an import that is a link": (
        {**imports("import 'd/a.just'"), "d/a.just": "import? 'b.just'\n"},
        {"d/b.just": "../../secret"},
    ),
    "an import of a linked file": (
        {**imports("import 'a.just'"), "d/a.just": "import 'b.just'\n"},
        {"a.just": "d/a.just", "b.just": "../secret"},
    ),
    "a module with a path": (imports("mod m '../secret'"), {}),
    "a module without a blank": (imports("mod m'../secret'"), {}),
    "an optional module with a path": (imports("mod? m '../secret'"), {}),
    "a module with a path of a folder": (imports("mod m '../far'"), {}),
    "a module on lines that go on": (imports("mod \\\n m \\\n '../secret'"), {}),
    "a module called x": (imports("mod x'../secret'"), {}),
    "a module whose path expands": (imports("mod m x'~/secret'"), {}),
    "a module whose file is a link": (imports("mod m"), {"m.just": "../secret"}),
    "a module whose folder is a link": (imports("mod m"), {"m": "../far"}),
    "a module whose mod.just is a link": (imports("mod m"), {"m/mod.just": "../../secret"}),
    "a module whose justfile is a link": (imports("mod? m"), {"m/JUSTFILE": "../../secret"}),
    "a module whose path is a link": (imports("mod m 'd'"), {"d": "../far"}),
    "a module of a module": ({**imports("mod m"), "m/mod.just": "mod n '../../secret'\n"}, {}),
    "an import of a module": ({**imports("mod m"), "m.just": "import '../secret'\n"}, {}),
    "an environment file that is a link": (imports("set dotenv-load"), {".env": "../secret"}),
    "a path of an environment file": (imports("set dotenv-path := '../more.env'"), {}),
    "an absolute path of an environment file": (imports("set dotenv-path := '{outside}/more.env'"), {}),
    "a name of an environment file upwards": (imports("set dotenv-filename := '../more.env'"), {}),
    "an environment file that is another link": (imports("set dotenv-filename := 'a.env'"), {"a.env": "../secret"}),
    "an environment file in a linked folder": (imports("set dotenv-path := 'd/.env'"), {"d": "../far"}),
    "an environment file of a module": (
        {**imports("set dotenv-load\nmod m"), "m/mod.just": "set dotenv-load\n", ".env": "FOO=1\n"},
        {"m/.env": "../../secret"},
    ),
}


def assert_untold(error: RookeryError) -> None:
    assert error.code in ("path-outside-root", "invalid-input"), error
    assert SECRET not in f"{error.message} {error.remedy}"


@requirement("just.links.outside")
@pytest.mark.parametrize("case", sorted(LEADING_OUT))
async def test_p29_no_content_of_a_file_outside_is_told(spawner: Spawner, outside: Path, case: str) -> None:
    root = outside / "w"
    fill(root, *LEADING_OUT[case])
    just = JustRunner(spawner)
    for work in (just.read_justfile(root), just.run(root, "test")):
        with pytest.raises(RookeryError) as raised:
            await work
        assert_untold(raised.value)


@requirement("just.links.outside")
async def test_environment_files_above_the_workspace_are_not_loaded(spawner: Spawner, outside: Path) -> None:
    root = outside / "w"
    fill(root, {**imports("set dotenv-load\nmod m"), "m/mod.just": imports("set dotenv-load")["justfile"]}, {})
    for task in ("test", "m::test"):
        assert (await JustRunner(spawner).run(root, task)).output == "tested \n"
    # A file for one of them only is no answer to the question what the other would load.
    fill(root, {"m/.env": "FOO=1\n"}, {})
    with pytest.raises(RookeryError, match="from above it") as raised:
        await JustRunner(spawner).run(root, "test")
    assert_untold(raised.value)


@requirement("just.links.outside", "just.run.task")
async def test_imports_modules_and_environment_files_inside_work_as_ever(spawner: Spawner, tmp_path: Path) -> None:
    root = tmp_path / "w"
    named = "import? 'gone.just'\nimport 'd/a.just'\nmod m\nmod? gone\nmod n 'o'\n"
    where = "  @echo {{justfile_directory()}} {{source_directory()}} $(pwd) $FOO\n"
    files = {
        "Justfile": f"set dotenv-load\n{named}root:\n{where}",
        "d/a.just": f"import '../common.just'\nimport './e/../link.just'\na:\n{where}",
        "common.just": f"common:\n{where}",
        "d/real.just": f"linked:\n{where}",
        "m/mod.just": f"import '../common.just'\nmod deep\ninner:\n{where}",
        "m/deep.just": f"deepest:\n{where}",
        "o/JUSTFILE": f"other:\n{where}",
        ".env": "FOO=foo\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "d/link.just").symlink_to("../d/real.just")
    just = JustRunner(spawner)
    wanted = {
        "root": ("", ""),
        "a": ("d", ""),
        "common": ("", ""),
        "linked": ("d", ""),
        "m::inner": ("m", "m"),
        "m::common": ("", "m"),
        "m::deep::deepest": ("m", "m"),
        "n::other": ("o", "o"),
    }
    assert sorted((await just.read_justfile(root)).recipes) == sorted(wanted)
    for task, (source, folder) in wanted.items():
        ran = await just.run(root, task)
        assert ran.output.split() == [str(root), str(root / source), str(root / folder), "foo"], (task, ran.output)


# Stands before the real just. When a recipe is to run, it swaps a file for another, and back when just has ended; what
# just has printed comes after that, as if just were as fast as that.
SWAPPING = """#!{python}
import os, subprocess, sys
place, other = {place!r}, {other!r}
swaps = "--one" in sys.argv
if swaps:
    if os.path.lexists(place):
        os.rename(place, place + ".aside")
    os.symlink(other, place)
done = subprocess.run([{just!r}, *sys.argv[1:]], capture_output=True)
if swaps:
    os.unlink(place)
    if os.path.lexists(place + ".aside"):
        os.rename(place + ".aside", place)
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
sys.exit(done.returncode)
"""
SWAPPED = {
    "justfile": "justfile",
    "an import": "a.just",
    "an import of an import": "d/b.just",
    "a link inside": "link.just",
    "a module": "m/mod.just",
    "an environment file": ".env",
}
READ = {
    "justfile": f"set dotenv-load\nimport 'a.just'\nimport? 'gone.just'\nimport 'link.just'\nmod m\n{TEST}",
    "a.just": "import 'd/b.just'\na:\n  @echo a\n",
    "d/b.just": "b:\n  @echo b\n",
    "d/c.just": "c:\n  @echo c\n",
    "m/mod.just": "build:\n  @echo built\n",
    ".env": "FOO=1\n",
}


def a_swapping_just(folder: Path, place: Path, other: Path) -> Path:
    program = folder / "just"
    text = SWAPPING.format(python=sys.executable, place=str(place), other=str(other), just=str(find_just()))
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def fill_workspace(root: Path) -> None:
    for name, text in READ.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "link.just").symlink_to("d/c.just")


@requirement("just.links.outside")
@pytest.mark.parametrize("swapped", sorted(SWAPPED))
async def test_b39_a_file_that_is_swapped_while_just_reads_tells_nothing(
    spawner: Spawner, outside: Path, swapped: str
) -> None:
    root = outside / "w"
    fill_workspace(root)
    program = a_swapping_just(outside, root / SWAPPED[swapped], outside / "secret")
    with pytest.raises(RookeryError, match="is withheld") as raised:
        await JustRunner(spawner, program=program).run(root, "test")
    assert SECRET not in f"{raised.value.message} {raised.value.remedy}"
    # It is as it was, and runs.
    assert (await JustRunner(spawner).run(root, "test")).output == "tested 1\n"


# What is swapped, for a file or folder outside with which content, and the task that would tell of it. The first ones
# are faults that just would quote, the others justfiles that it would run.
MOMENTS: dict[str, tuple[str, dict[str, str], str]] = {
    "an optional import": ("gone.just", {"": OUTSIDE["garbage"]}, "test"),
    "a module with a fault": ("m", {"mod.just": OUTSIDE["garbage"]}, "test"),
    "a module": ("m", {"mod.just": f"build:\n  @echo {SECRET}\n"}, "m::build"),
    "a module that prints errors": ("m", {"mod.just": f"build:\n  @echo error: {SECRET} >&2; exit 1\n"}, "m::build"),
    "a folder of imports": (
        "d",
        {"b.just": f"b:\n  @echo {SECRET}\n", "c.just": "c:\n  @echo c\n"},
        "b",
    ),
    "the workspace": (".", {"justfile": f"test:\n  @echo {SECRET}\n"}, "test"),
}


def no_watch(told: object) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@requirement("just.links.outside")
@pytest.mark.parametrize("case", [*MOMENTS, "a module with a fault, unwatched", "an optional import, unwatched"])
async def test_b39_what_is_there_only_for_a_moment_tells_nothing(
    spawner: Spawner, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, files, task = MOMENTS[case.removesuffix(", unwatched")]
    for name, text in files.items():
        path = tmp_path / "far" / name if name else tmp_path / "far"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    root = tmp_path / "w"
    fill_workspace(root)
    if case.endswith("unwatched"):
        monkeypatch.setattr("rookery.files.just.sources.TreeWatch", no_watch)
    program = a_swapping_just(tmp_path, root / place, tmp_path / "far")
    with pytest.raises(RookeryError, match="is withheld") as raised:
        await JustRunner(spawner, program=program).run(root, task)
    assert SECRET not in f"{raised.value.message} {raised.value.remedy}"
    # It is as it was, and runs.
    assert (await JustRunner(spawner).run(root, task)).ok


@requirement("just.links.outside")
async def test_b39_nothing_comes_from_outside_while_files_are_swapped_all_the_time(
    spawner: Spawner, outside: Path
) -> None:
    root = outside / "w"
    fill_workspace(root)
    (root / "evil.just").symlink_to("../secret")
    (root / "evil.env").symlink_to("../secret")
    over = asyncio.Event()

    def flip(good: Path, evil: Path) -> None:
        aside = good.with_name(f"{good.name}.aside")
        while not over.is_set():
            good.rename(aside)
            evil.rename(good)
            good.rename(evil)
            aside.rename(good)

    threads = [
        asyncio.to_thread(flip, root / "a.just", root / "evil.just"),
        asyncio.to_thread(flip, root / ".env", root / "evil.env"),
    ]
    flipping = asyncio.gather(*threads)
    codes: set[str] = set()
    try:
        for _ in range(15):
            for work in (JustRunner(spawner).read_justfile(root), JustRunner(spawner).run(root, "test")):
                try:
                    done = await work
                    assert SECRET not in str(done)
                except RookeryError as error:
                    codes.add(error.code)
                    assert SECRET not in f"{error.message} {error.remedy}"
    finally:
        over.set()
        await flipping
    assert "path-outside-root" in codes, "there was no race"
    assert codes <= {"path-outside-root", "needs-approval", "invalid-input"}


@requirement("just.run.task")
async def test_a_recipe_that_makes_files_and_then_fails_is_told_in_full(spawner: Spawner, tmp_path: Path) -> None:
    late = "  @touch new; echo error: broken >&2; echo made; exit 1\n"
    quiet = "  @touch newer; echo error: broken >&2; exit 3\n"
    (tmp_path / "justfile").write_text(f"import? 'gone.just'\nlate:\n{late}\nquiet:\n{quiet}")
    ran = await JustRunner(spawner).run(tmp_path, "late")
    assert ran.exit_code == 1 and "error: broken\n" in ran.output and "made\n" in ran.output
    ran = await JustRunner(spawner).run(tmp_path, "quiet")
    assert ran.exit_code == 3 and "error: broken\n" in ran.output


@requirement("just.links.outside")
@pytest.mark.parametrize(
    "case", ["the justfile is a link", "an import that is a link", "a module whose folder is a link"]
)
async def test_no_tool_tells_a_client_of_a_file_outside(case: str, tmp_path: Path) -> None:
    app = make_repository(Path.home() / "src" / "app", {"README.md": "an app\n"})
    for name in ("secret", "far/mod.just"):
        (app.parent / name).parent.mkdir(exist_ok=True)
        (app.parent / name).write_text(OUTSIDE["garbage"])
    fill(app, *LEADING_OUT[case])
    async with start_gateway(None, app) as gateway:
        assert (await gateway.workspaces.list(project_id(app)))[0].path == app
        caller = await gateway.caller(view_of(app))
        answers = [
            await caller.call("list_just_tasks"),
            await caller.call("run_just_task", {"task_name": "test"}),
            await caller.call("get_project_context"),
        ]
        assert "outside the workspace" in words(answers[1])
        assert all(SECRET not in str(answer) for answer in answers)
        assert SECRET not in str(await gateway.parts.justfiles.list_subjects())
        assert os.path.lexists(app / "justfile")
