"""The running daemon: makes all its parts, starts them in order, and stops them in reverse order."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import threading
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

import rookery
from rookery.daemon.approvals import why_started_by_rookery
from rookery.daemon.composition import Composition, DaemonCallbacks
from rookery.daemon.lifecycle import Service, ServiceRunner
from rookery.daemon.options import Options, StartReporter
from rookery.daemon.presence import Presence, Runtime, format_lock_note, load_owner_token, write_runtime
from rookery.daemon.services.core import ChildrenService, HttpService, StoreService
from rookery.daemon.settings import layers
from rookery.daemon.settings.layers import reload_settings
from rookery.guard.digests import load_digests
from rookery.operations.status import DaemonStatus, ReloadedSettings
from rookery.system import log, metrics
from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, iso
from rookery.system.errors import RookeryError
from rookery.system.fs import paths
from rookery.system.fs.atomic import remove_file
from rookery.system.fs.lock import FileLock
from rookery.system.log import REDACTOR
from rookery.system.process.leftovers import new_instance
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.system.tasks import CRASH_LOG, record_stray_crashes
from rookery.wire.http.auth import OWNER
from rookery.workspaces.projects import Registration

logger = logging.getLogger("rookery.daemon")


def register_gauges(started_at: float, spawner: Spawner, events: Bus) -> None:
    """Register the metrics of the daemon's own process: uptime, children, event readers, memory and open files."""
    process = psutil.Process()
    metrics.gauge(
        "rookery_uptime_seconds", "Seconds since the daemon started.", lambda: SYSTEM_CLOCK.monotonic() - started_at
    )
    metrics.gauge("rookery_children", "Running processes that the daemon started.", lambda: len(spawner.children))
    metrics.gauge("rookery_event_readers", "Readers of the event stream.", lambda: events.reader_count)
    metrics.gauge("rookery_resident_bytes", "Memory of the daemon itself.", lambda: process.memory_info().rss)
    metrics.gauge("rookery_open_files", "File descriptors in use.", process.num_fds)
    metrics.gauge(
        "rookery_open_files_limit",
        "File descriptors allowed.",
        lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


@dataclass
class RunningDaemon:
    """One run of the daemon, from the start of the first service to the stop of the last."""

    options: Options
    starter: StartReporter
    layered: layers.LayeredSettings
    state: Path
    lock: FileLock
    # Descriptions of the damage that was found before the services started.
    damage_reports: Sequence[str] = ()
    instance: str = field(default_factory=new_instance)
    _presence: Presence | None = field(default=None, init=False)

    async def run(self) -> int:
        """Run the daemon until it is asked to stop, and return the exit code."""
        settings = self.layered.settings()
        self._started_at = SYSTEM_CLOCK.monotonic()
        self._stop_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._starting: asyncio.Task[Any] | None = None
        self._spawner = Spawner(self.instance)
        self._store = Store(paths.store_file(self.state), is_owner=lambda: not self.lock.is_lost())
        self._events = Bus("events", history=settings.events.history, max_queue=settings.events.queue)
        logs = Bus("logs", history=200, max_queue=settings.events.queue)
        self._publish_log_records(logs)
        record_stray_crashes(asyncio.get_running_loop())
        digests = self._load_digests()
        token, problem = load_owner_token(self.state)
        if problem:
            logger.error("%s", problem)
            self._store.problems.append(problem)
        REDACTOR.add(token)
        composition = Composition(
            settings,
            self.state,
            store=self._store,
            spawner=self._spawner,
            events=self._events,
            logs=logs,
            callbacks=DaemonCallbacks(self.instance, self._describe, self._reload, self._ask_to_stop),
            digests=digests,
        )
        composition.tokens.add(token, OWNER)
        # Requests for a session wait until all services run.
        self._agents_complete = composition.workspaces.agents.restored
        self._agents_complete.clear()
        self._audit = composition.audit
        self._approvals = composition.approvals
        self._projects = composition.projects
        self._notifier = composition.upkeep.notifier
        self._workspaces = composition.workspaces.tools
        self._http = HttpService(
            self.state,
            settings,
            self._store,
            composition.callers,
            composition.endpoint_router,
            composition.shares,
            composition.on_closing,
            composition.gateway.on_bound,
        )
        self._children = ChildrenService(
            self.state, self._spawner, lambda text: self.starter.send(progress=text), self.lock.is_intact
        )
        services: list[Service] = [
            self._children,
            StoreService(self._store),
            composition.audit,
            *composition.services,
            self._http,
        ]
        register_gauges(self._started_at, self._spawner, self._events)
        self._catch_signals()
        runner = ServiceRunner(services, settings.daemon.stop_seconds)
        try:
            if await self._run_until_stopped(self._start(runner)):
                hint = "; Ctrl-C stops it" if self.options.foreground else ""
                logger.info("up at %s, instance %s%s", self._http.url, self.instance, hint)
                await self._stop_reason
        finally:
            # None of these steps may prevent the services from being stopped.
            if self._presence is not None:
                await self._presence.close()
            with contextlib.suppress(OSError):
                self.lock.write_note(format_lock_note("stopping"))
            self._remove_runtime_file()
            self._events.publish("daemon.stopping")
            await runner.stop()
            logger.info("stopped")
        return 0

    async def _start(self, runner: ServiceRunner) -> None:
        await runner.start()
        if self._audit.is_new:
            await self._approvals.record_all()
        await self._audit.record_settings(self.layered.values)
        self._agents_complete.set()
        registration = await self._register_project()
        for problem in self.layered.problems:
            logger.warning("%s", problem)
        runtime = Runtime(
            pid=os.getpid(),
            started=iso(SYSTEM_CLOCK.wall()),
            url=self._http.url,
            mcp_url=f"{self._http.url}/mcp",
            socket=str(self._http.socket_file),
            token_file=str(paths.token_file(self.state)),
            version=rookery.__version__,
            instance=self.instance,
            auth=self.layered.values["auth"],
        )
        write_runtime(self.state, runtime)
        self.lock.write_note(format_lock_note("running"))
        self._presence = Presence(self.state, self.lock, self._http, runtime, self._ask_to_stop)
        self._events.publish("daemon.started", instance=self.instance, version=rookery.__version__)
        ready: dict[str, Any] = {"pid": runtime.pid, "url": runtime.url, "socket": runtime.socket}
        if registration is not None:
            ready |= {"approved": msgspec.to_builtins(registration.approved), "note": registration.note}
        self.starter.send(ready=ready)
        self.starter.close()

    async def _run_until_stopped(self, work: Awaitable[None]) -> bool:
        """Await `work` and return True. Return False if a request to stop cancels it first."""
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

    async def _register_project(self) -> Registration | None:
        if self.options.project is None:
            return None
        try:
            registration = await self._projects.add(self.options.project, by_user=why_started_by_rookery() is None)
        except RookeryError as error:
            if self.options.project_required:
                raise
            logger.info("no project registered: %s", error.message)
            return None
        logger.info("project %s (%s)", registration.project.id, registration.project.path)
        try:
            await self._workspaces.open_main(registration.project)
        except RookeryError as error:
            logger.warning("the main checkout of %s is not open: %s", registration.project.id, error.message)
        return registration

    def _ask_to_stop(self, reason: str) -> None:
        if not self._stop_reason.done():
            logger.info("stopping: %s", reason)
            self._stop_reason.set_result(reason)
            if self._starting is not None:
                self._starting.cancel()

    def _load_digests(self) -> dict[str, str]:
        """Return the digests that the owner approves in advance; none if Rookery itself started this daemon."""
        digests = load_digests(os.environ, paths.config_folder())
        if digests and (why := why_started_by_rookery()):
            problem = f"{len(digests)} digests are ignored because {why}; start the daemon yourself"
            logger.warning("%s", problem)
            self._store.problems.append(problem)
            return {}
        return digests

    # Signals

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._stop_reason.done():
            self._ask_to_stop(f"{number.name}; a second signal forces it")
            return
        logger.error("forced to stop by %s", number.name)
        self._spawner.kill_all_now()
        self._remove_runtime_file()
        with contextlib.suppress(OSError):
            self._http.remove_socket()
        os._exit(128 + number)

    def _remove_runtime_file(self) -> None:
        """Remove the runtime file, unless another daemon owns it by now."""
        with contextlib.suppress(OSError):
            if self.lock.is_intact():
                remove_file(paths.runtime_file(self.state))

    # Functions for the HTTP routes

    def _describe(self) -> DaemonStatus:
        return DaemonStatus(
            pid=os.getpid(),
            url=self._http.url,
            mcp_url=f"{self._http.url}/mcp",
            uptime_s=round(SYSTEM_CLOCK.monotonic() - self._started_at, 3),
            version=rookery.__version__,
            instance=self.instance,
            problems=[*map(str, self.layered.problems), *self._describe_damage()],
            crashes=CRASH_LOG.entries(),
            auth="loopback" if self._http.callers.allows_tokenless else "token",
            notify_failure=self._notifier.failure,
        )

    def _describe_damage(self) -> list[str]:
        """Return descriptions of what was damaged, and was set aside and replaced."""
        return [*self.damage_reports, *self._children.problems, *self._store.problems, *self._audit.problems]

    async def _reload(self) -> ReloadedSettings:
        reloaded = reload_settings(self.options, self.layered, self._events)
        await self._audit.record_settings(self.layered.values)
        return msgspec.convert(reloaded, ReloadedSettings)

    def _publish_log_records(self, logs: Bus) -> None:
        """Publish every log record on the `logs` bus, from any thread."""
        loop = asyncio.get_running_loop()
        loop_thread = threading.get_ident()

        def publish_record(record: dict[str, Any]) -> None:
            if threading.get_ident() == loop_thread:
                logs.publish("log", **record)
            else:
                loop.call_soon_threadsafe(lambda: logs.publish("log", **record))

        logging.getLogger().addHandler(log.CallbackHandler(publish_record))
