"""`python -m rookery.daemon serve`: from the settings to the exit code."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable

from rookery.cli.failure import Failure, report
from rookery.daemon.loading import load_settings
from rookery.daemon.options import Options, Starter
from rookery.daemon.running import RunningDaemon
from rookery.daemon.runtime import describe_running, lock_note
from rookery.system import log, metrics, places
from rookery.system.errors import RookeryError
from rookery.system.lock import FileLock

logger = logging.getLogger("rookery.daemon")

# How many new objects there are when the collector comes by, and how often it looks at the older ones then.
_GARBAGE = (20_000, 20, 20)
# How long a thread that computes may keep the loop from whoever calls; Python's own 5 ms are ten calls.
_SWITCH_SECONDS = 0.0005


def serve(options: Options) -> int:
    """Run the daemon until it is told to stop; answers the exit code."""
    starter = Starter(options.ready_fd)
    try:
        layered = load_settings(options)
        settings = layered.settings()
        state = places.ensure_private_folder(places.state_folder())
        # Held until the process is gone: whoever waits for the lock waits for just that.
        lock = FileLock(places.lock_file(state))
        if not lock.acquire(lock_note("starting")):
            raise describe_running(state, lock.holder())
        # Its own folder, not one that a user may want to remove or unmount.
        os.chdir(state)
        handler = log.set_up(
            places.log_file(state),
            level=settings.log.level,
            max_bytes=settings.log.max_bytes,
            files=settings.log.files,
            terminal=options.foreground,
        )
        metrics.gauge("rookery_log_records_lost", "Log records that could not be written.", lambda: handler.lost)
        # What is made until here stays, and need not be looked at again; calls leave next to no circles behind.
        gc.freeze()
        gc.set_threshold(*_GARBAGE)
        sys.setswitchinterval(_SWITCH_SECONDS)
        daemon = RunningDaemon(options, starter, layered, state, lock)
        with asyncio.Runner(loop_factory=_loop_factory(settings.daemon.loop)) as runner:
            return runner.run(daemon.run())
    except (RookeryError, OSError) as fault:
        error = fault if isinstance(fault, RookeryError) else _of_system(fault)
        starter.tell(error=error.as_dict())
        if logging.getLogger().handlers:
            logger.error("cannot run: %s (%s)", error.message, error.remedy)
        elif options.ready_fd is None:
            report(Failure(error.code, error.message, error.remedy))
        # The pipe is left to end with the process: whoever reads it waits for just that.
        return Failure(error.code, error.message).exit_code


def _of_system(error: OSError) -> RookeryError:
    """A full disk, a folder that cannot be written, and the like."""
    where = f" ({error.filename})" if error.filename else ""
    return RookeryError("state-unusable", f"{error.strerror or error}{where}", "see: rookery doctor")


def _loop_factory(wanted: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if wanted == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if wanted == "uvloop":
            raise RookeryError("invalid-settings", "uvloop is not installed", "set daemon.loop to auto") from None
        return None
    return uvloop.new_event_loop
