"""Running recipes with the real just: what runs, what is refused, and that no process is left."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.files.just.recipes import Justfile, RecipeArguments
from rookery.files.just.run import JustRunner, RecipeResult, RunLimits
from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from tests.support.daemon.process import alive
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture
async def just() -> AsyncIterator[JustRunner]:
    spawner = Spawner(new_id())
    yield JustRunner(spawner)
    await spawner.stop_all()


def justfile(folder: Path, text: str) -> Path:
    (folder / "justfile").write_text(text)
    return folder


async def refused(just: JustRunner, root: Path, name: str, arguments: RecipeArguments = ()) -> RookeryError:
    with pytest.raises(RookeryError) as raised:
        await just.run(root, name, arguments)
    return raised.value


def pid(file: Path) -> int:
    """What a recipe wrote there of itself."""
    return int(file.read_text())


@requirement("just.run.task")
async def test_a_recipe_runs_in_the_workspace_and_answers_output_exit_code_and_duration(
    just: JustRunner, tmp_path: Path
) -> None:
    root = justfile(tmp_path, "say word:\n  @echo {{word}} && echo beside >&2 && pwd\n")
    ran = await just.run(root, "say", ["hello"])
    assert ran.ok and ran.exit_code == 0 and ran.ending == "ended"
    assert sorted(ran.output.splitlines()) == sorted(["hello", "beside", str(root)])
    assert ran.seconds > 0


@requirement("just.run.failing")
async def test_a_failing_recipe_answers_its_output_and_exit_code(just: JustRunner, tmp_path: Path) -> None:
    ran = await just.run(justfile(tmp_path, "bad:\n  @echo before\n  @exit 7\n"), "bad")
    assert (ran.exit_code, ran.ok) == (7, False)
    assert ran.output.startswith("before\n")


@requirement("just.run.listed")
@pytest.mark.parametrize("name", ["none", "_inner", "private", "-f", "--list", "a; b", "a b", "x=1", "", "mod::none"])
async def test_p28_only_public_recipes_run(just: JustRunner, tmp_path: Path, name: str) -> None:
    root = justfile(tmp_path, "a:\n  touch ran\nb: a\n_inner: a\n[private]\nprivate: a\n")
    error = await refused(just, root, name)
    assert (error.code, error.remedy) == ("task-not-found", "use one of: a, b")
    assert not (root / "ran").exists()


@requirement("just.run.listed")
async def test_an_argument_reaches_the_recipe_as_it_is(just: JustRunner, tmp_path: Path) -> None:
    root = justfile(tmp_path, 'show $one *two:\n  @echo "$one" {{quote(two)}}\n')
    ran = await just.run(root, "show", ["$(touch ran); `touch ran`", "--yes"])
    assert ran.output == "$(touch ran); `touch ran` --yes\n"
    assert not (root / "ran").exists()
    assert (await refused(just, root, "show", [])).code == "invalid-input"


async def test_listing_runs_nothing(just: JustRunner, tmp_path: Path) -> None:
    root = justfile(tmp_path, "x := `touch ran`\na:\n  echo {{x}}\n")
    assert list((await just.read_justfile(root)).recipes) == ["a"]
    assert not (root / "ran").exists()


async def test_a_justfile_above_the_workspace_is_none_of_it(just: JustRunner, tmp_path: Path) -> None:
    inner = justfile(tmp_path, "above:\n  true\n") / "inner"
    inner.mkdir()
    assert (await refused(just, inner, "above")).code == "task-not-found"
    (inner / "JustFile").write_text("here:\n  true\n")
    assert list((await just.read_justfile(inner)).recipes) == ["here"]
    (inner / ".justfile").write_text("here:\n  true\n")
    assert "several justfiles" in (await refused(just, inner, "here")).message
    assert (await refused(just, inner / "gone", "here")).code == "workspace-not-found"


async def test_p29_a_bad_justfile_is_told_without_quoting_files_from_elsewhere(
    just: JustRunner, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password = hunter2 : 0\n")
    (tmp_path / "w").mkdir()
    root = justfile(tmp_path / "w", f"import '{secret}'\na:\n  true\n")
    error = await refused(just, root, "a")
    assert "outside the workspace" in error.message and "hunter2" not in error.message
    justfile(root, "a:\n  echo {{b\n")
    assert (await refused(just, root, "a")).message.endswith("unterminated interpolation (justfile:2:8)")


@requirement("just.run.bounds")
async def test_b38_a_recipe_ends_at_its_time_limit_with_all_its_descendants(just: JustRunner, tmp_path: Path) -> None:
    stray = "setsid sh -c 'trap \"\" TERM; echo $$ > stray; sleep 600' & echo $$ > own"
    root = justfile(tmp_path, f"hang:\n  {stray}; until [ -s stray ]; do :; done; echo begun; sleep 600\n")
    ran = await just.run(root, "hang", limits=RunLimits(seconds=3))
    assert (ran.ending, ran.exit_code, ran.ok) == ("timeout", None, False)
    assert "begun" in ran.output.splitlines()
    assert not alive(pid(root / "own"))
    assert not alive(pid(root / "stray"))


@requirement("just.run.bounds")
async def test_b38_what_a_recipe_leaves_behind_is_ended_with_it(just: JustRunner, tmp_path: Path) -> None:
    text = "leave:\n  setsid sh -c 'echo $$ > stray; exec sleep 600' & until [ -s stray ]; do :; done\n"
    root = justfile(tmp_path, text)
    assert (await just.run(root, "leave")).ok
    assert not alive(pid(root / "stray"))


@requirement("just.run.bounds")
async def test_a_cancelled_recipe_is_ended(just: JustRunner, tmp_path: Path) -> None:
    root = justfile(tmp_path, "hang:\n  @echo $$ > own; echo begun; sleep 600\n")
    begun = asyncio.Event()

    async def told(_: float, line: str) -> None:
        if line == "begun":
            begun.set()

    running = asyncio.get_running_loop().create_task(
        just.run(root, "hang", progress=told, limits=RunLimits(seconds=60, progress_seconds=0.02))
    )
    async with asyncio.timeout(30):
        await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(pid(root / "own"))


@requirement("just.run.bounds")
async def test_b38_output_without_end_is_capped_with_head_and_tail_kept(just: JustRunner, tmp_path: Path) -> None:
    root = justfile(tmp_path, "much:\n  @echo first; head -c 5000000 /dev/zero | tr '\\0' 'x'; echo; echo last\n")
    ran = await just.run(root, "much", limits=RunLimits(output_bytes=3000))
    assert ran.output.startswith("first\n") and ran.output.endswith("\nlast\n")
    assert ran.cut == 5_000_012 - 3000
    assert f"[... {ran.cut} bytes of output omitted ...]" in ran.output
    assert len(ran.output) < 3200


@requirement("just.run.bounds")
async def test_b38_a_recipe_has_neither_input_nor_terminal_and_leads_its_own_group(
    just: JustRunner, tmp_path: Path
) -> None:
    lines = ["ask:", "@read line || echo nothing to read", "@(: < /dev/tty) 2>/dev/null || echo no terminal"]
    ran = await just.run(justfile(tmp_path, "\n  ".join([*lines, "@cut -d' ' -f5 /proc/$$/stat\n"])), "ask")
    nothing, terminal, group = ran.output.splitlines()
    assert (nothing, terminal) == ("nothing to read", "no terminal")
    assert int(group) != os.getpgrp()


async def test_b38_a_recipe_that_kills_just_is_told(just: JustRunner, tmp_path: Path) -> None:
    ran = await just.run(justfile(tmp_path, "kill:\n  @kill -9 $PPID\n"), "kill")
    assert ran.exit_code == -9


@requirement("just.run.bounds")
async def test_progress_is_told_while_it_runs(just: JustRunner, tmp_path: Path) -> None:
    root = justfile(tmp_path, "slow:\n  @echo half; until [ -e go ]; do sleep 0.02; done; echo done\n")

    async def told(seconds: float, line: str) -> None:
        if line == "half" and seconds > 0:
            (root / "go").touch()

    ran = await just.run(root, "slow", progress=told, limits=RunLimits(seconds=60, progress_seconds=0.02))
    assert ran.output == "half\ndone\n"


async def test_what_steers_a_terminal_is_taken_from_the_output(just: JustRunner, tmp_path: Path) -> None:
    root = justfile(tmp_path, "red:\n  @printf '\\033[31mred\\033[0m\\r\\n\\033]0;title\\007end\\n'\n")
    assert (await just.run(root, "red")).output == "red\nend\n"


@requirement("just.run.confirm")
async def test_a_confirm_recipe_runs_only_after_its_user_has_agreed(just: JustRunner, tmp_path: Path) -> None:
    root = justfile(tmp_path, "[confirm('wipe?')]\nwipe:\n  touch wiped\nall: wipe\n  true\n")
    asked: list[str] = []

    def answer(yes: bool):
        async def agree(question: str, _: Justfile) -> bool:
            asked.append(question)
            return yes

        return agree

    assert (await refused(just, root, "all")).code == "needs-approval"
    with pytest.raises(RookeryError) as raised:
        await just.run(root, "all", confirm=answer(False))
    assert raised.value.code == "tool-denied"
    assert not (root / "wiped").exists()
    assert (await just.run(root, "all", confirm=answer(True))).ok
    assert (root / "wiped").exists()
    assert asked == ["wipe: wipe?"] * 2


async def test_b39_a_justfile_that_changes_while_it_is_asked_about_does_not_run(
    just: JustRunner, tmp_path: Path
) -> None:
    root = justfile(tmp_path, "a:\n  true\n")

    async def swap(_: Justfile) -> None:
        justfile(root, "a:\n  touch ran\n")

    with pytest.raises(RookeryError) as raised:
        await just.run(root, "a", approve=swap)
    assert raised.value.code == "needs-approval"
    assert not (root / "ran").exists()


async def test_content_that_is_not_approved_does_not_run(just: JustRunner, tmp_path: Path) -> None:
    async def never(asked: Justfile) -> None:
        raise RookeryError("needs-approval", asked.fingerprint)

    root = justfile(tmp_path, "a:\n  touch ran\n")
    with pytest.raises(RookeryError, match=(await just.read_justfile(root)).fingerprint):
        await just.run(root, "a", approve=never)
    assert not (root / "ran").exists()


async def test_a_recipe_that_calls_just_finds_it_and_no_setting_of_it_leaks_in(
    just: JustRunner, tmp_path: Path
) -> None:
    root = justfile(tmp_path, "inner:\n  @echo found\nouter:\n  @just inner\n")
    ran: RecipeResult = await just.run(
        root, "outer", env={"PATH": "/usr/bin:/bin", "JUST_JUSTFILE": "/none", "JUST_DRY_RUN": "1"}
    )
    assert ran.output == "found\n"
