"""`python -m rookery.daemon serve`: run the daemon, from loading the settings to the exit code."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable

from rookery.daemon.app import RunningDaemon
from rookery.daemon.options import Options, StartReporter
from rookery.daemon.presence import describe_running, format_lock_note
from rookery.daemon.settings.layers import load_settings
from rookery.daemon_client.failure import Failure, report_failure
from rookery.guard.pins.store import make_seal
from rookery.guard.seal import Seal
from rookery.system import log, metrics
from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.fs import paths
from rookery.system.fs.atomic import set_aside_unusable
from rookery.system.fs.lock import FileLock
from rookery.system.process import table
from rookery.system.process.leftovers import InstanceRegistry, require_user

logger = logging.getLogger("rookery.daemon")

# The thresholds of the garbage collector: new objects before a run, and runs before older objects are scanned.
_GC_THRESHOLDS = (20_000, 20, 20)
# How long a computing thread may block the event loop; Python's default of 5 ms is the time of ten calls.
_SWITCH_SECONDS = 0.0005
_ENDING_SECONDS = 2.0


def serve(options: Options) -> int:
    """Run the daemon until it is asked to stop, and return the exit code."""
    starter = StartReporter(options.ready_fd)
    notices: _StartErrorHandler | None = None
    try:
        layered = load_settings(options)
        settings = layered.settings()
        state = paths.ensure_private_folder(paths.state_folder())
        require_user(state, "starting the daemon")
        # Only a regular file can be locked.
        damage = [problem for problem in [set_aside_unusable(paths.lock_file(state))] if problem]
        # Held until the process has ended: processes that wait for the lock wait for that.
        lock = FileLock(paths.lock_file(state))
        if not lock.acquire(format_lock_note("starting")):
            raise describe_running(state, lock.read_note())
        # The lock file of a running daemon may have been deleted. A daemon that has just ended may still be listed.
        if running := InstanceRegistry(state).find_running():
            table.wait_for_exits([running], _ENDING_SECONDS)
            if table.is_alive(running):
                raise describe_running(state, f"pid {running.pid}")
        damage += paths.set_aside_unusable_files(state)
        # Before any other file is created there: files that exist without a seal count as left by an earlier daemon.
        Seal.for_store(paths.store_file(state)).create()
        make_seal(paths.store_file(state)).create()
        # The daemon's own folder, not one that a user may want to remove or unmount.
        os.chdir(state)
        handler = log.set_up(
            paths.log_file(state),
            level=settings.log.level,
            max_bytes=settings.log.max_bytes,
            files=settings.log.files,
            terminal=options.foreground,
        )
        metrics.gauge(
            "rookery_log_records_lost", "Log records that could not be written.", lambda: handler.lost_records
        )
        # Objects created so far stay and need no further scan; calls leave almost no reference cycles.
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        sys.setswitchinterval(_SWITCH_SECONDS)
        notices = _StartErrorHandler(starter)
        logging.getLogger().addHandler(notices)
        for problem in damage:
            logger.error("%s", problem)
        daemon = RunningDaemon(options, starter, layered, state, lock, damage)
        with asyncio.Runner(loop_factory=_loop_factory(settings.daemon.loop)) as runner:
            return runner.run(daemon.run())
    except (RookeryError, OSError) as fault:
        error = fault if isinstance(fault, RookeryError) else _from_os_error(fault)
        starter.send(error=error.as_dict())
        if notices is not None:
            logging.getLogger().removeHandler(notices)
        if logging.getLogger().handlers:
            logger.error("cannot run: %s (%s)", error.message, error.remedy)
            # Notes are failures that followed from this error. The remedy is a note, too.
            for note in getattr(fault, "__notes__", ()):
                if note != error.remedy:
                    logger.warning("%s", note)
        elif options.ready_fd is None:
            report_failure(Failure(error.code, error.message, error.remedy))
        # The pipe closes when the process ends; its reader waits for that.
        return Failure(error.code, error.message).exit_code


class _StartErrorHandler(logging.Handler):
    """Reports errors during the start, such as files that were set aside, to the process that starts the daemon."""

    def __init__(self, starter: StartReporter) -> None:
        super().__init__(logging.ERROR)
        self._starter = starter
        self._reported: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = log.REDACTOR.clean(record.getMessage())
        if text not in self._reported:
            self._reported.add(text)
            self._starter.send(notice=text)


def _from_os_error(error: OSError) -> RookeryError:
    """Return the error for a full disk, a folder that cannot be written, and the like."""
    explained = explain_os_error(error, paths.state_folder())
    if explained is not None:
        return explained
    where = f" ({error.filename})" if error.filename else ""
    return RookeryError("state-unusable", f"{error.strerror or error}{where}", "see: rookery doctor")


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if name == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if name == "uvloop":
            raise RookeryError("invalid-settings", "uvloop is not installed", "set daemon.loop to auto") from None
        return None
    return uvloop.new_event_loop
