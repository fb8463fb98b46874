"""The composition root: everything is made here, started in order, and stopped in reverse."""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rookery
from rookery.api.status import Daemon
from rookery.daemon import layers
from rookery.daemon.composition import Composition, Hands
from rookery.daemon.gauges import register_gauges
from rookery.daemon.loading import load_again
from rookery.daemon.options import Options, Starter
from rookery.daemon.parts import ChildrenService, HttpService, StoreService
from rookery.daemon.runtime import Runtime, lock_note, owner_token, write_runtime
from rookery.daemon.services import Runner, Service
from rookery.system import log, places
from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, iso
from rookery.system.errors import RookeryError
from rookery.system.files import remove
from rookery.system.ids import new_id
from rookery.system.lock import FileLock
from rookery.system.log import REDACTOR
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.wire.gate import OWNER

logger = logging.getLogger("rookery.daemon")


@dataclass
class RunningDaemon:
    """One life of the daemon, from the first service to the last."""

    options: Options
    starter: Starter
    layered: layers.Layered
    state: Path
    lock: FileLock
    instance: str = field(default_factory=new_id)

    async def run(self) -> int:
        settings = self.layered.settings()
        self._began = SYSTEM_CLOCK.monotonic()
        self._stop_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._starting: asyncio.Task[Any] | None = None
        self._spawner = Spawner(self.instance)
        self._store = Store(places.store_file(self.state))
        self._events = Bus("events", history=settings.events.history, queue=settings.events.queue)
        logs = Bus("logs", history=200, queue=settings.events.queue)
        self._tap_log(logs)
        token = owner_token(self.state)
        REDACTOR.add(token)
        made = Composition(
            settings,
            self.state,
            store=self._store,
            spawner=self._spawner,
            events=self._events,
            logs=logs,
            hands=Hands(self.instance, self._describe, self._reload, self._ask_to_stop),
        )
        made.tokens.add(token, OWNER)
        self._projects = made.projects
        self._http = HttpService(
            self.state, settings, self._store, made.tokens, made.doors, made.closing, made.gateway.bound
        )
        services: list[Service] = [
            ChildrenService(self.state, self._spawner, lambda text: self.starter.tell(progress=text)),
            StoreService(self._store),
            *made.services,
            self._http,
        ]
        register_gauges(self._began, self._spawner, self._events)
        self._catch_signals()
        runner = Runner(services, settings.daemon.stop_seconds)
        try:
            if await self._unless_stopped(self._start(runner)):
                hint = "; Ctrl-C stops it" if self.options.foreground else ""
                logger.info("up at %s, instance %s%s", self._http.url, self.instance, hint)
                await self._stop_reason
        finally:
            # Neither of these may keep the services from being stopped.
            with contextlib.suppress(OSError):
                self.lock.note(lock_note("stopping"))
            with contextlib.suppress(OSError):
                remove(places.runtime_file(self.state))
            self._events.publish("daemon.stopping")
            await runner.stop()
            logger.info("stopped")
        return 0

    async def _start(self, runner: Runner) -> None:
        await runner.start()
        await self._register_project()
        for problem in self.layered.problems:
            logger.warning("%s", problem)
        runtime = Runtime(
            pid=os.getpid(),
            started=iso(SYSTEM_CLOCK.wall()),
            url=self._http.url,
            mcp_url=f"{self._http.url}/mcp",
            socket=str(self._http.socket_file),
            token_file=str(places.token_file(self.state)),
            version=rookery.__version__,
            instance=self.instance,
        )
        write_runtime(self.state, runtime)
        self.lock.note(lock_note("running"))
        self._events.publish("daemon.started", instance=self.instance, version=rookery.__version__)
        self.starter.tell(ready={"pid": runtime.pid, "url": runtime.url, "socket": runtime.socket})
        self.starter.close()

    async def _unless_stopped(self, work: Awaitable[None]) -> bool:
        """Do `work`; being told to stop before it is done cancels it."""
        self._starting = asyncio.current_task()
        try:
            await work
        except asyncio.CancelledError:
            if not self._stop_reason.done() or self._starting is None:
                raise
            self._starting.uncancel()
            return False
        finally:
            self._starting = None
        return True

    async def _register_project(self) -> None:
        if self.options.project is None:
            return
        try:
            project, _ = await self._projects.add(self.options.project)
            logger.info("project %s (%s)", project.id, project.path)
        except RookeryError as error:
            if self.options.project_required:
                raise
            logger.info("no project registered: %s", error.message)

    def _ask_to_stop(self, reason: str) -> None:
        if not self._stop_reason.done():
            logger.info("stopping: %s", reason)
            self._stop_reason.set_result(reason)
            if self._starting is not None:
                self._starting.cancel()

    # ---- signals

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._stop_reason.done():
            self._ask_to_stop(f"{number.name}; once more forces it")
            return
        logger.error("forced to stop by %s", number.name)
        self._spawner.kill_all_now()
        for path in (places.runtime_file(self.state), self._http.socket_file):
            with contextlib.suppress(OSError):
                remove(path)
        os._exit(128 + number)

    # ---- what the routes ask for

    def _describe(self) -> Daemon:
        return Daemon(
            pid=os.getpid(),
            url=self._http.url,
            mcp_url=f"{self._http.url}/mcp",
            uptime_s=round(SYSTEM_CLOCK.monotonic() - self._began, 3),
            version=rookery.__version__,
            instance=self.instance,
            problems=[*map(str, self.layered.problems), *self._store.problems],
        )

    async def _reload(self) -> dict[str, Any]:
        return load_again(self.options, self.layered, self._events)

    def _tap_log(self, logs: Bus) -> None:
        loop, home = asyncio.get_running_loop(), threading.get_ident()

        def give(record: dict[str, Any]) -> None:
            if threading.get_ident() == home:
                logs.publish("log", **record)
            else:
                loop.call_soon_threadsafe(lambda: logs.publish("log", **record))

        logging.getLogger().addHandler(log.TapHandler(give))
