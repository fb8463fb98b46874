"""`rookery demo`: sets up, runs the tour and cleans up, also after a failure."""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from rookery.agents.opencode.install import Installer
from rookery.cli import output
from rookery.daemon_client.failure import FAILED, Failure, report_failure
from rookery.demo import scenario
from rookery.demo.daemon import DemoDaemon
from rookery.demo.folder import DemoFolder, find_sandbox_mode, lock_leftovers, make_folder
from rookery.demo.progress import StepProgress
from rookery.demo.report import Report, find_program_name, format_hints
from rookery.demo.tour import Tour
from rookery.sdk import connect
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.confinement.kernel import find_support
from rookery.system.confinement.policy import ConfinementPolicy
from rookery.system.confinement.rules import list_missing
from rookery.system.errors import RookeryError
from rookery.system.fs.paths import ensure_private_folder, state_folder
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.testing.model import scripted_model

_AUTHOR = ("-c", "user.name=Demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgSign=false")


@dataclass(frozen=True)
class DemoOptions:
    """The options of `rookery demo`. `version` is the OpenCode that the user's agents run."""

    version: str
    once: bool = False
    keep: bool = False
    as_json: bool = False
    pictures: Path | None = None


def run_demo(options: DemoOptions) -> int:
    return asyncio.run(Demo(options).run())


def _describe_sandbox() -> str:
    """Return whether the kernel confines the agents."""
    if find_sandbox_mode() == "off":
        return "the agents are not confined: this machine has no Landlock"
    missing = list_missing(find_support(), ConfinementPolicy())
    suffix = f", except for {', '.join(missing)}" if missing else ""
    return f"the kernel confines the agents to their workspaces{suffix}"


class Demo:
    """One run of the demo."""

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._progress = StepProgress(silent=options.as_json)
        self._spawner = Spawner(new_id())
        # Determined before the environment is replaced.
        self._program = find_program_name()
        self._folder: DemoFolder | None = None
        self._daemon: DemoDaemon | None = None
        self._tour_task: asyncio.Task[None] | None = None
        self._is_complete = False
        self._signal: signal.Signals | None = None

    async def run(self) -> int:
        """Run the demo until its end or a signal, clean up, and return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        failure: RookeryError | None = None
        self._tour_task = asyncio.current_task()
        try:
            await self._tour()
        except asyncio.CancelledError:
            if self._signal is None or self._tour_task is None:
                raise
            self._tour_task.uncancel()
        except RookeryError as error:
            failure = error
        except Exception as error:
            # Any error: the demo is cleaned up all the same.
            failure = RookeryError("internal-error", f"{type(error).__name__}: {error}")
        finally:
            self._tour_task = None
        step = self._progress.step_name
        logs = await self._clean_up(failed=failure is not None)
        if failure is not None:
            return report_failure(self._make_failure(failure, step, logs))
        return 0 if self._signal is None or self._is_complete else 128 + self._signal

    def _make_failure(self, failure: RookeryError, step: str, logs: Path | None) -> Failure:
        """Return the failure with the step that failed, and where the logs are."""
        remedy = failure.remedy
        if logs is not None and self._folder is not None:
            remedy = remedy.replace(str(self._folder.logs), str(logs))
            remedy = remedy if str(logs) in remedy else "; ".join(filter(None, [remedy, f"the logs are in {logs}"]))
        return Failure(failure.code, f"{step}: {failure.message}" if step else failure.message, remedy, FAILED)

    async def _tour(self) -> None:
        started_at = SYSTEM_CLOCK.monotonic()
        for leftover in lock_leftovers():
            await DemoDaemon(leftover.state).stop()
            leftover.remove()
        user = ensure_private_folder(state_folder())
        async with self._progress.step(f"OpenCode {self._options.version}"):
            installed = await Installer(user, self._spawner, os.environ).install(
                self._options.version, self._progress.detail
            )
        demo_folder = self._folder = make_folder()
        async with scripted_model(scenario.build_script()) as model:
            async with self._progress.step("A separate project, home folder and daemon"):
                self._progress.line(f"all files are in {demo_folder.folder}")
                demo_folder.link_opencode(installed, self._options.version)
                environment = demo_folder.environment(os.environ, self._options.version)
                os.environ.clear()
                os.environ.update(environment)
                await self._write_files(demo_folder, model.url)
                daemon = self._daemon = DemoDaemon(demo_folder.state)
                await daemon.start(self._progress.detail)
                self._progress.line(_describe_sandbox())
            async with connect() as rookery:
                tour = Tour(rookery, demo_folder, self._progress)
                pictures = self._options.pictures or demo_folder.pictures
                pictures.mkdir(parents=True, exist_ok=True)
                report = await tour.run(installed.version, pictures, started_at)
            self._is_complete = True
            self._write_report(report)
            if not self._options.once:
                await asyncio.get_running_loop().create_future()

    async def _write_files(self, demo_folder: DemoFolder, model_url: str) -> None:
        for folder, files in (
            (demo_folder.home, scenario.build_user_files(model_url)),
            (demo_folder.project, scenario.FILES),
        ):
            for name, text in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
        git = Git(self._spawner)
        for words in (("init", "-q", "-b", "main"), ("add", "."), (*_AUTHOR, "commit", "-q", "-m", "A greeter")):
            result = await git.run(demo_folder.project, *words, write=True)
            if result.returncode != 0:
                raise RookeryError("git-failed", result.stderr.decode("utf-8", "replace").strip(), "see: git --version")

    def _write_report(self, report: Report) -> None:
        if self._options.as_json:
            output.write(report.as_json())
            return
        report.write_diffs()
        if not self._options.once:
            for line in format_hints(report, self._program):
                output.write(line)

    async def _clean_up(self, *, failed: bool) -> Path | None:
        """Stop all processes of the demo and remove its files. Return where the logs are, if they are kept."""
        if self._folder is None:
            return None
        async with self._progress.step(
            "Stopping and removing everything" if not self._options.keep else "Stopping everything"
        ):
            if self._daemon is not None:
                await self._daemon.stop()
            if not self._options.keep:
                return await asyncio.to_thread(self._folder.remove, keep_logs=failed)
        self._folder.keep()
        self._progress.line(f"kept: {self._folder.folder}")
        return self._folder.logs

    def _on_signal(self, number: signal.Signals) -> None:
        """Cancel the tour at the first signal. At the second one, end everything at once and exit."""
        if self._signal is None:
            self._signal = number
            if self._tour_task is not None:
                self._tour_task.cancel()
            return
        if self._daemon is not None:
            if self._daemon.is_starting:
                # A starting daemon cannot be found yet, and would outlive this process. The start takes only a moment.
                return
            self._daemon.force()
        if self._folder is not None and not self._options.keep:
            self._folder.remove()
        os._exit(128 + number)
