"""List and run recipes of a workspace's justfile, with limits on time and output.

A recipe is code of the repository: callers decide who has to approve it. The head and the tail of the output are kept
in bounded memory, with both streams in the order of their lines.
"""

import asyncio
import contextlib
import importlib.metadata
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import msgspec

from rookery.files.just.recipes import Justfile, Recipe, RecipeArguments, build_arguments, parse_dump
from rookery.files.just.sources import (
    TICK_SECONDS,
    JustSources,
    SourceWatch,
    add_environment_files,
    find_justfile_name,
    read_sources,
)
from rookery.system.causes import describe_end, explain_os_error, find_cause
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.errors import RookeryError
from rookery.system.process import environment
from rookery.system.process.child import Child, HeadBuffer, StopTimeouts, TailBuffer
from rookery.system.process.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.system.text import remove_invisible

# A longer line is passed on in parts.
_MAX_LINE = 8192

_DUMP_SECONDS = 10.0
# A file system in memory on Linux.
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - the folder in it has a random name and is private
_MAX_TRIES = 20
# How many lines are searched for the cause of a failure: earlier output did not end the recipe.
_CAUSE_LINES = 5
# The exit code of just if it cannot read a justfile.
_INVALID_JUSTFILE_CODE = 1
_STOP_TIMEOUTS = StopTimeouts(after_term=2.0, after_kill=2.0)


class RecipeOutput:
    """Keeps the head and the tail of an output. The head gets a third: errors are mostly at the end."""

    def __init__(self, limit: int) -> None:
        self._last = b""
        self._head = HeadBuffer(limit // 3)
        self._tail = TailBuffer(limit - limit // 3)

    @property
    def cut(self) -> int:
        """How many bytes between head and tail were dropped."""
        return self._tail.dropped

    @property
    def last_line(self) -> str:
        return _decode_output(self._last).rstrip().rpartition("\n")[2]

    def write(self, data: bytes) -> None:
        free = max(self._head.limit - len(self._head.data), 0)
        self._head.write(data[:free])
        self._tail.write(data[free:])
        # Decoded on demand: there may be a lot of output, and the last line is rarely needed.
        self._last = data[-_MAX_LINE:] if not data.isspace() else self._last

    def text(self) -> str:
        """Return head and tail as clean text, with a note between them if bytes were dropped."""
        head = _decode_output(bytes(self._head.data))
        tail = _decode_output(bytes(self._tail))
        if not self.cut:
            return _decode_output(bytes(self._head.data) + bytes(self._tail))
        return f"{head.rstrip()}\n[... {self.cut} bytes of output omitted ...]\n{tail.lstrip()}"


class LineBuffer:
    """Passes on whole lines of one stream, so that two streams do not break up each other's lines."""

    def __init__(self, output: RecipeOutput) -> None:
        self._output = output
        self._partial = bytearray()

    def data(self, data: bytes) -> None:
        self._partial += data
        length = self._partial.rfind(b"\n") + 1
        if not length and len(self._partial) > _MAX_LINE:
            length = len(self._partial)
        if length:
            self._output.write(bytes(self._partial[:length]))
            del self._partial[:length]

    def end(self) -> None:
        if self._partial:
            self._output.write(bytes(self._partial))
            self._partial.clear()


def _decode_output(data: bytes) -> str:
    return remove_invisible(data.decode("utf-8", "replace"))


def find_just() -> Path:
    """Return the program of the package `rust-just`, whose version is known; else the one on PATH."""
    try:
        files = importlib.metadata.files("rust-just") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    candidates = [Path(str(file.locate())) for file in files if file.stem == "just" and file.suffix in ("", ".exe")]
    for path in candidates:
        if path.is_file():
            return path.resolve()
    program = shutil.which("just")
    if program is None:
        raise RookeryError("spawn-failed", "the program `just` was not found", "pip install rust-just")
    return Path(program)


def prepare_environment(env: Mapping[str, str], program: Path) -> dict[str, str]:
    """Return the environment of a recipe: without settings of just, and with just on PATH for its calls."""
    prepared = {name: value for name, value in env.items() if not name.startswith("JUST_")}
    path = prepared.get("PATH", "")
    if shutil.which("just", path=path) is None:
        # At the end of PATH, since the folder contains other programs too.
        prepared["PATH"] = f"{path}:{program.parent}" if path else str(program.parent)
    return prepared


# Raises if this content may not run.
ApproveJustfile = Callable[[Justfile], Awaitable[None]]
# Returns whether the user confirms the question of a `[confirm]` recipe of this justfile.
ConfirmRecipe = Callable[[str, Justfile], Awaitable[bool]]
# Receives how many seconds the recipe has run, and the last line of its output.
ReportProgress = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True)
class RecipeResult:
    """The result of a recipe. `exit_code` is None if it was stopped at its time limit; `cut` counts the bytes left out.

    `cause` is the full disk, the missing permission or the unset variable that made it fail, if known.
    """

    task: str
    exit_code: int | None
    seconds: float
    output: str
    cut: int
    ending: Literal["ended", "timeout"]
    cause: str = ""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class RunLimits:
    """Limits of a run: time in seconds and size of the output."""

    seconds: float = 300.0
    output_bytes: int = 48_000
    # The interval of progress reports, in seconds.
    progress_seconds: float = 1.0


@dataclass(frozen=True)
class _JustfileFiles:
    """The name of a justfile, the files that belong to it, and whether it loads environment files."""

    name: str
    sources: JustSources
    loads_environment: bool


class JustRunner:
    """Lists and runs the recipes of justfiles."""

    def __init__(self, spawner: Spawner, *, clock: Clock = SYSTEM_CLOCK, program: Path | None = None) -> None:
        self._spawner = spawner
        self._clock = clock
        self._program = program
        self._tasks = TaskSet("just")

    async def read_justfile(self, root: Path) -> Justfile:
        """Return the current justfile in the workspace's root. Reading it runs nothing of it."""
        return (await self._read_justfile(root))[0]

    async def _read_justfile(self, root: Path) -> tuple[Justfile, _JustfileFiles]:
        """Run just on a copy of the files, so that it cannot be led out of the workspace meanwhile."""
        env = prepare_environment(environment.allowed_environment(), self._just())
        # Confined programs write to the folder in memory, and see which names appear there.
        with _scratch_folder(in_memory=not self._spawner.has_confined) as folder:
            snapshot = Path(folder).resolve()
            sources, name = await asyncio.to_thread(_copy_sources, root, snapshot)
            argv = [*self._base_command(snapshot, name), "--no-dotenv", "--dump", "--dump-format", "json"]
            dumped = await self._spawner.run(argv, name="just --dump", cwd=snapshot, env=env, timeout=_DUMP_SECONDS)
            if dumped.returncode != 0 or dumped.cut:
                message = _explain_dump_error(dumped.stderr, snapshot)
                cause = find_cause(dumped.returncode, message, (snapshot, root))
                reason = cause.message if cause is not None else message or f"just {describe_end(dumped.returncode)}"
                raise RookeryError("invalid-input", f"the justfile cannot be read: {reason}", "fix the justfile")
            justfile = parse_dump(dumped.stdout, snapshot)
            dump = msgspec.json.decode(dumped.stdout)
            loads = await asyncio.to_thread(add_environment_files, sources, dump, snapshot)
        return justfile, _JustfileFiles(name, sources, loads)

    async def _read_stable(self, root: Path) -> tuple[Justfile, _JustfileFiles]:
        """Return the same as `_read_justfile`, once the files are so old that any further change is detected."""
        for _ in range(_MAX_TRIES):
            justfile, files = await self._read_justfile(root)
            if not files.sources.has_changed_within(TICK_SECONDS, self._clock.wall()):
                return justfile, files
            await asyncio.sleep(TICK_SECONDS)
        raise RookeryError("needs-approval", "the justfile, or a file that it reads, keeps changing", "try again")

    async def run(
        self,
        root: Path,
        name: str,
        arguments: RecipeArguments = (),
        *,
        limits: RunLimits = RunLimits(),  # noqa: B008 - frozen
        env: Mapping[str, str] | None = None,
        confinement: ConfinementPolicy | None = None,
        approve: ApproveJustfile | None = None,
        confirm: ConfirmRecipe | None = None,
        progress: ReportProgress | None = None,
    ) -> RecipeResult:
        """Run a public recipe to its end. When this returns or is cancelled, no process of the recipe is left."""
        justfile, files = await self._read_stable(root)
        recipe = find_recipe(justfile, name)
        words = build_arguments(recipe, arguments)
        if approve is not None:
            await approve(justfile)
        await _require_confirmed(recipe, justfile, confirm)
        if approve is not None or recipe.confirmations:
            # An approval takes time, and exactly what was approved must run.
            files = await self._require_unchanged(root, justfile)
        options = [*(["--yes"] if recipe.confirmations else []), *([] if files.loads_environment else ["--no-dotenv"])]
        argv = [*self._base_command(root, files.name), "--one", *options, "--", recipe.name, *words]
        printed = RecipeOutput(limits.output_bytes)
        reporting: asyncio.Task[None] | None = None
        with _SourceCheck(files.sources) as check:
            check.require_unchanged()
            started = self._clock.monotonic()
            child = await self._spawner.start(
                argv,
                name=f"just {recipe.name}",
                cwd=root,
                env=prepare_environment(environment.allowed_environment() if env is None else env, self._just()),
                stdout=check.sink(LineBuffer(printed), of_recipes=True),
                stderr=check.sink(LineBuffer(printed)),
                works_for=root,
                confinement=confinement,
            )
            if progress is not None:
                reporting = self._tasks.start(
                    self._report_progress(progress, started, printed, check, limits.progress_seconds), name
                )
            try:
                code = await _wait_for_exit(child, limits.seconds, check.refused)
            finally:
                if reporting is not None:
                    reporting.cancel()
                await child.stop(_STOP_TIMEOUTS)
        check.require_trusted_output(code)
        seconds = self._clock.monotonic() - started
        ending = "ended" if code is not None else "timeout"
        return RecipeResult(
            recipe.name,
            code,
            seconds,
            printed.text(),
            printed.cut,
            ending,
            _find_failure_cause(code, printed.text(), root),
        )

    async def _report_progress(
        self, progress: ReportProgress, started: float, output: RecipeOutput, check: "_SourceCheck", interval: float
    ) -> None:
        """Report progress at an interval until cancelled."""
        while True:
            await asyncio.sleep(interval)
            await progress(self._clock.monotonic() - started, "" if check.is_doubtful else output.last_line)

    async def _require_unchanged(self, root: Path, approved: Justfile) -> _JustfileFiles:
        """Read the justfile again; raise if it is not the one that was approved."""
        justfile, files = await self._read_stable(root)
        if justfile.fingerprint != approved.fingerprint:
            raise RookeryError("needs-approval", "the justfile was changed while approval was pending", "try again")
        return files

    def _just(self) -> Path:
        self._program = self._program or find_just()
        return self._program

    def _base_command(self, root: Path, name: str) -> list[str]:
        """Return the command with explicit paths: just would search the folders above for them."""
        paths = ["--justfile", str(root / name), "--working-directory", str(root)]
        return [str(self._just()), *paths, "--color", "never"]


def find_justfile(root: Path) -> Path | None:
    """Return the justfile in a folder, by the names that just accepts, in any case."""
    name = find_justfile_name(root)
    return root / name if name is not None else None


def _scratch_folder(*, in_memory: bool) -> "tempfile.TemporaryDirectory[str]":
    """Create a folder for a copy, `in_memory` if possible, so that reading works on a full disk too."""
    if in_memory and _MEMORY_FOLDER.is_dir():
        with contextlib.suppress(OSError):
            return tempfile.TemporaryDirectory(prefix="rookery-just-", dir=_MEMORY_FOLDER)
    return tempfile.TemporaryDirectory(prefix="rookery-just-")


def _copy_sources(root: Path, snapshot: Path) -> tuple[JustSources, str]:
    """Read the files of a justfile and write them to `snapshot`; return them and the name of the justfile."""
    sources = read_sources(root)
    try:
        sources.copy_to(snapshot)
    except OSError as error:
        # The error of a write contains no path.
        raise explain_os_error(error, snapshot) or error from error
    return sources, next(iter(sources.files))


class _SourceCheck:
    """Withholds the output of just if a file changed before the first output: just may have read another file.

    If the system does not notify of changes that were undone, an error of just itself may quote a file that existed
    only for a moment, which only the folders show. But a recipe may have created files in them by then, and may print
    errors too: such output is `is_doubtful` until just ends.
    """

    def __init__(self, sources: JustSources) -> None:
        self._sources = sources
        self._has_output = False
        self.is_doubtful = False
        self.refused = asyncio.Event()
        try:
            self._watch: SourceWatch | None = SourceWatch(sources)
        except OSError:
            self._watch = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._unwatch()

    def sink(self, lines: LineBuffer, *, of_recipes: bool = False) -> "_CheckedSink":
        """Return a feed that passes output to `lines`; `of_recipes` if just itself prints nothing there."""
        return _CheckedSink(self, lines, of_recipes)

    def check_output(self, data: bytes, of_recipes: bool) -> bool:
        """Check the files at the first output; return whether output may be passed on."""
        if not self._has_output:
            # After a warning just may still read environment files.
            self._has_output = of_recipes or not data.startswith(b"warning")
            if not self._sources.is_unchanged(folders=False) or (self._watch is not None and self._watch.has_changed()):
                self.refused.set()
            elif self._watch is None and data.startswith((b"error", b"warning")):
                self.is_doubtful = not self._sources.is_unchanged(folders=True)
            if self._has_output:
                self._unwatch()
        # A recipe runs, so just has found no error.
        self.is_doubtful = self.is_doubtful and not of_recipes
        return not self.refused.is_set()

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def require_unchanged(self) -> None:
        """Raise if a file has changed before just starts: then nothing of it may run."""
        if self._watch is not None and self._watch.has_changed():
            raise RookeryError(
                "needs-approval", "the justfile, or a file that it reads, was changed before just started", "try again"
            )

    def require_trusted_output(self, code: int | None) -> None:
        """Raise if the output may come from another file than the one that was checked."""
        if self.refused.is_set() or (self.is_doubtful and code == _INVALID_JUSTFILE_CODE):
            raise RookeryError(
                "needs-approval",
                "the justfile, or a file that it reads, was changed while just read it; the output is withheld",
                "try again",
            )


class _CheckedSink:
    def __init__(self, check: _SourceCheck, lines: LineBuffer, of_recipes: bool) -> None:
        self._check = check
        self._lines = lines
        self._of_recipes = of_recipes

    def data(self, data: bytes) -> None:
        if self._check.check_output(data, self._of_recipes):
            self._lines.data(data)

    def end(self) -> None:
        self._lines.end()


def find_recipe(justfile: Justfile, name: str) -> Recipe:
    """Return the recipe with this full name; raise for anything else, such as an option of just."""
    recipe = justfile.recipes.get(name)
    if recipe is None:
        names = ", ".join(justfile.recipes) or "none"
        raise RookeryError(
            "task-not-found", f"there is no public recipe {remove_invisible(name)!r}", f"use one of: {names}"
        )
    return recipe


async def _require_confirmed(recipe: Recipe, justfile: Justfile, confirm: ConfirmRecipe | None) -> None:
    """Raise unless the user confirms each question of the recipe."""
    for question in recipe.confirmations:
        if confirm is None:
            remedy = f"run it in a terminal: just {recipe.name}"
            raise RookeryError("needs-approval", f"the recipe needs confirmation ({question})", remedy)
        if not await confirm(question, justfile):
            raise RookeryError("tool-denied", f"the recipe {recipe.name!r} was not confirmed ({question})")


async def _wait_for_exit(child: Child, seconds: float, refused: asyncio.Event) -> int | None:
    """Return the exit code; None if the time limit was reached, or the output is refused."""
    try:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            waiting = group.create_task(child.wait())
            stopping = group.create_task(refused.wait())
            await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
            code = waiting.result() if waiting.done() else None
            waiting.cancel()
            stopping.cancel()
    except TimeoutError:
        return None
    # A descendant may keep the output open; do not wait for its later output.
    await child.wait_drained(1.0)
    return code


def _find_failure_cause(code: int | None, output: str, root: Path) -> str:
    """Return the disk or permission problem that made a recipe fail, from the end of its output; else empty."""
    last_lines = "\n".join(output.splitlines()[-_CAUSE_LINES:])
    cause = find_cause(code, last_lines, (root, tempfile.gettempdir())) if code else None
    return cause.message if cause is not None else ""


def _explain_dump_error(stderr: bytes, snapshot: Path) -> str:
    """Return the error that just reported, and its location."""
    lines = remove_invisible(stderr.decode("utf-8", "replace")).replace(f"{snapshot}/", "").splitlines()
    if not lines:
        return ""
    message = lines[0].removeprefix("error: ")
    places = [line.partition("▶ ")[2] for line in lines[:4] if "▶ " in line]
    if places and (Path(places[0]).is_absolute() or ".." in Path(places[0]).parts):
        return "it imports a file outside the workspace that is not a justfile"
    return f"{message} ({places[0]})" if places else message
