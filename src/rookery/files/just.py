"""Running a recipe of a workspace's justfile, within bounds. It is the repository's code: see who approves it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rookery.files.just_arguments import Arguments, words_of
from rookery.files.just_output import Lines, Printed
from rookery.files.just_program import find_just, with_just
from rookery.files.recipes import Justfile, Recipe, read_dump
from rookery.system import environment
from rookery.system.child import Child, Ladder
from rookery.system.clean import clean
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet

_NAMES = ("justfile", ".justfile")
_SECONDS_TO_LIST = 10.0
_ROUGH = Ladder(after_term=2.0, after_kill=2.0)

# Raises an error if this content may not run.
Approve = Callable[[Justfile], Awaitable[None]]
# Whether the user says yes to a question of a `[confirm]` recipe, as this justfile has it.
Agree = Callable[[str, Justfile], Awaitable[bool]]
# How many seconds it has run, and the last line that it printed.
Progress = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True)
class Ran:
    """`exit_code` is missing if it was ended at its time limit; `cut` counts the bytes missing amid the output."""

    task: str
    exit_code: int | None
    seconds: float
    output: str
    cut: int
    ending: Literal["ended", "timeout"]

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class Bounds:
    seconds: float = 300.0
    output_bytes: int = 48_000
    # How often progress is told.
    every: float = 1.0


class Just:
    def __init__(self, spawner: Spawner, *, clock: Clock = SYSTEM_CLOCK, program: Path | None = None) -> None:
        self._spawner = spawner
        self._clock = clock
        self._program = program
        self._tasks = TaskSet("just")

    async def listed(self, root: Path) -> Justfile:
        """What the justfile in the workspace's root says now. Reading it runs nothing of it."""
        argv = [*self._start_of(root), "--dump", "--dump-format", "json"]
        env = with_just(environment.allowed(), self._just())
        done = await self._spawner.run(argv, name="just --dump", cwd=root, env=env, timeout=_SECONDS_TO_LIST)
        if done.returncode != 0 or done.cut:
            raise RookeryError("invalid-input", f"the justfile cannot be read: {_why(done.stderr)}", "mend it")
        return read_dump(done.stdout, root)

    async def run(
        self,
        root: Path,
        name: str,
        arguments: Arguments = (),
        *,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        env: Mapping[str, str] | None = None,
        approve: Approve | None = None,
        agree: Agree | None = None,
        progress: Progress | None = None,
    ) -> Ran:
        """Run a public recipe to its end. When this returns or is cancelled, nothing that it started is left."""
        justfile = await self.listed(root)
        recipe = find_recipe(justfile, name)
        words = words_of(recipe, arguments)
        if approve is not None:
            await approve(justfile)
        await _agreed(recipe, justfile, agree)
        if approve is not None or recipe.confirms:
            # People take their time, and what they said yes to has to be what runs.
            await self._unchanged(root, justfile)
        yes = ["--yes"] if recipe.confirms else []
        argv = [*self._start_of(root), "--one", *yes, "--", recipe.name, *words]
        printed = Printed(bounds.output_bytes)
        begun = self._clock.monotonic()
        child = await self._spawner.start(
            argv,
            name=f"just {recipe.name}",
            cwd=root,
            env=with_just(environment.allowed() if env is None else env, self._just()),
            stdout=Lines(printed),
            stderr=Lines(printed),
        )
        telling = self._tasks.start(self._tell(progress, begun, printed, bounds.every), name) if progress else None
        try:
            code = await _ended(child, bounds.seconds)
        finally:
            if telling is not None:
                telling.cancel()
            await child.stop(_ROUGH)
        seconds = self._clock.monotonic() - begun
        ending = "ended" if code is not None else "timeout"
        return Ran(recipe.name, code, seconds, printed.text(), printed.cut, ending)

    async def _tell(self, progress: Progress, begun: float, printed: Printed, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            await progress(self._clock.monotonic() - begun, printed.last_line)

    async def _unchanged(self, root: Path, before: Justfile) -> None:
        if (await self.listed(root)).fingerprint != before.fingerprint:
            raise RookeryError("needs-approval", "the justfile was changed while it was asked about", "ask again")

    def _just(self) -> Path:
        self._program = self._program or find_just()
        return self._program

    def _start_of(self, root: Path) -> list[str]:
        """Both places are named: just would look for them in the folders above."""
        file = find_justfile(root)
        if file is None:
            raise RookeryError("task-not-found", f"there is no justfile in {root}", "add one with recipes in it")
        places = ["--justfile", str(file), "--working-directory", str(root)]
        return [str(self._just()), *places, "--color", "never"]


def find_justfile(root: Path) -> Path | None:
    """The justfile in the folder itself, by the names that just knows, in any case."""
    try:
        with os.scandir(root) as entries:
            found = sorted(entry.name for entry in entries if entry.name.casefold() in _NAMES and entry.is_file())
    except OSError as error:
        raise RookeryError("workspace-not-found", f"{root} cannot be looked into: {error.strerror}") from error
    if len(found) > 1:
        raise RookeryError("invalid-input", f"there are several justfiles: {', '.join(found)}", "keep one of them")
    return root / found[0] if found else None


def find_recipe(justfile: Justfile, name: str) -> Recipe:
    """By its whole name alone; everything else, an option of just among it, is no recipe."""
    recipe = justfile.recipes.get(name)
    if recipe is None:
        known = ", ".join(justfile.recipes) or "none"
        raise RookeryError("task-not-found", f"there is no public recipe {clean(name)!r}", f"use one of: {known}")
    return recipe


async def _agreed(recipe: Recipe, justfile: Justfile, agree: Agree | None) -> None:
    for question in recipe.confirms:
        if agree is None:
            remedy = f"run it in a terminal: just {recipe.name}"
            raise RookeryError("needs-approval", f"the recipe wants to be confirmed ({question})", remedy)
        if not await agree(question, justfile):
            raise RookeryError("tool-denied", f"the recipe {recipe.name!r} was not agreed to ({question})")


async def _ended(child: Child, seconds: float) -> int | None:
    """Its exit code; nothing if it took too long."""
    try:
        async with asyncio.timeout(seconds):
            code = await child.wait()
    except TimeoutError:
        return None
    # A descendant may hold the output open; what it prints later is not waited for.
    await child.drained(1.0)
    return code


def _why(stderr: bytes) -> str:
    """What just found wrong, and where. The line that it quotes may be one of a file elsewhere that is no justfile."""
    lines = clean(stderr.decode("utf-8", "replace")).splitlines()
    said = lines[0].removeprefix("error: ") if lines else "just says nothing"
    places = [line.partition("▶ ")[2] for line in lines[:4] if "▶ " in line]
    if places and Path(places[0]).is_absolute():
        return "it imports a file outside the workspace that is no justfile"
    return f"{said} ({places[0]})" if places else said
