"""`rookery demo`: from the folder that is made to the exit code, whatever happens in between."""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from rookery.agents.install import Installer
from rookery.cli import output
from rookery.cli.failure import FAILED, Failure, report
from rookery.demo import story
from rookery.demo.hints import hints, program_name
from rookery.demo.house import House
from rookery.demo.place import Place, left_over, make_place
from rookery.demo.report import Report
from rookery.demo.telling import Telling
from rookery.demo.tour import Tour
from rookery.face import connect
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.places import ensure_private_folder, state_folder
from rookery.system.spawn import Spawner
from rookery.testing.model import scripted_model

_AUTHOR = ("-c", "user.name=Demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgSign=false")


@dataclass(frozen=True)
class DemoOptions:
    """`version` is the OpenCode that the user's agents run."""

    version: str
    once: bool = False
    keep: bool = False
    as_json: bool = False
    pictures: Path | None = None


def run_demo(options: DemoOptions) -> int:
    return asyncio.run(Demo(options).run())


class Demo:
    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._telling = Telling(silent=options.as_json)
        self._spawner = Spawner(new_id())
        # Before the environment becomes another one.
        self._program = program_name()
        self._place: Place | None = None
        self._house: House | None = None
        self._touring: asyncio.Task[None] | None = None
        self._stands = False
        self._signal: signal.Signals | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        failure: RookeryError | None = None
        self._touring = asyncio.current_task()
        try:
            await self._tour()
        except asyncio.CancelledError:
            if self._signal is None or self._touring is None:
                raise
            self._touring.uncancel()
        except RookeryError as error:
            failure = error
        except Exception as error:
            # Whatever it is, nothing of the demo may stay behind.
            failure = RookeryError("internal-error", f"{type(error).__name__}: {error}")
        finally:
            self._touring = None
        step = self._telling.step_name
        logs = await self._clean_up(failed=failure is not None)
        if failure is not None:
            return report(self._told(failure, step, logs))
        return 0 if self._signal is None or self._stands else 128 + self._signal

    def _told(self, failure: RookeryError, step: str, logs: Path | None) -> Failure:
        """With the step that failed, and where the logs are now."""
        remedy = failure.remedy
        if logs is not None and self._place is not None:
            remedy = remedy.replace(str(self._place.logs), str(logs))
            remedy = remedy if str(logs) in remedy else "; ".join(filter(None, [remedy, f"the logs are in {logs}"]))
        return Failure(failure.code, f"{step}: {failure.message}" if step else failure.message, remedy, FAILED)

    async def _tour(self) -> None:
        began = SYSTEM_CLOCK.monotonic()
        for left in left_over():
            await House(left.state).stop()
            left.remove()
        user = ensure_private_folder(state_folder())
        async with self._telling.step(f"OpenCode {self._options.version}"):
            installed = await Installer(user, self._spawner, os.environ).install(
                self._options.version, self._telling.detail
            )
        place = self._place = make_place()
        async with scripted_model(story.script()) as model:
            async with self._telling.step("A project, a home and a daemon of their own"):
                self._telling.line(f"all of it in {place.folder}")
                place.lend(installed, self._options.version)
                environment = place.environment(os.environ, self._options.version)
                os.environ.clear()
                os.environ.update(environment)
                await self._write(place, model.url)
                house = self._house = House(place.state)
                await house.start(self._telling.detail)
            async with connect() as rookery:
                tour = Tour(rookery, place, self._telling)
                pictures = self._options.pictures or place.pictures
                pictures.mkdir(parents=True, exist_ok=True)
                found = await tour.run(installed.version, pictures, began)
            self._stands = True
            self._answer(found)
            if not self._options.once:
                await asyncio.get_running_loop().create_future()

    async def _write(self, place: Place, model_url: str) -> None:
        for folder, files in ((place.home, story.user_files(model_url)), (place.project, story.FILES)):
            for name, text in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
        git = Git(self._spawner)
        for words in (("init", "-q", "-b", "main"), ("add", "."), (*_AUTHOR, "commit", "-q", "-m", "A greeter")):
            done = await git.run(place.project, *words, write=True)
            if done.returncode != 0:
                raise RookeryError("git-failed", done.stderr.decode("utf-8", "replace").strip(), "see: git --version")

    def _answer(self, found: Report) -> None:
        if self._options.as_json:
            output.answer(found.as_json())
            return
        found.tell()
        if not self._options.once:
            for line in hints(found, self._program):
                output.answer(line)

    async def _clean_up(self, *, failed: bool) -> Path | None:
        """All that was started is ended and what was made is removed; answers where the logs are, if they are kept."""
        if self._place is None:
            return None
        async with self._telling.step("Ending it all" if not self._options.keep else "Ending what runs"):
            if self._house is not None:
                await self._house.stop()
            if not self._options.keep:
                return await asyncio.to_thread(self._place.remove, keep_logs=failed)
        self._place.keep()
        self._telling.line(f"kept: {self._place.folder}")
        return self._place.logs

    def _on_signal(self, number: signal.Signals) -> None:
        if self._signal is None:
            self._signal = number
            if self._touring is not None:
                self._touring.cancel()
            return
        if self._house is not None:
            if self._house.is_starting:
                # It could not be found yet, and would come to life after us. That takes a moment only.
                return
            self._house.force()
        if self._place is not None and not self._options.keep:
            self._place.remove()
        os._exit(128 + number)
