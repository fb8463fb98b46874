"""Run one request in a helper process, and end that process in every case."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from rookery.system.causes import find_cause
from rookery.system.errors import RookeryError
from rookery.system.process import environment
from rookery.system.process.child import Child, TailBuffer
from rookery.system.process.spawn import Priority, Spawner
from rookery.upstreams.oauth.messages import (
    NETWORK_SECONDS,
    BrowserPrompt,
    BrowserRedirect,
    FailureResult,
    HelperMessage,
    HelperRequest,
    Outcome,
    RedirectReply,
    SignInStep,
)
from rookery.wire.http_client.proxy import ProxySettings

# Importing the SDK takes half a second, and longer on a busy machine.
_START_SECONDS = 30.0
_PRIORITY = Priority(nice=10, long_slice=True)

MessageCallback = Callable[[SignInStep | BrowserPrompt | RedirectReply], None]


class HelperProcess:
    """A process that runs one request. It gets everything on stdin: no token is in its arguments or environment."""

    def __init__(self, spawner: Spawner, folder: Path, proxies: ProxySettings) -> None:
        self._spawner = spawner
        self._folder = folder
        self._proxies = proxies
        self._child: Child | None = None

    async def run(self, request: HelperRequest, on_message: MessageCallback = lambda message: None) -> Outcome:
        """Run a request and return its result. Raise the error if it failed."""
        argv = [sys.executable, "-P", "-m", "rookery.upstreams.oauth"]
        errors = TailBuffer(4096)
        self._child = child = await self._spawner.start(
            argv,
            name="sign-in",
            cwd=self._folder,
            env=environment.allowed_environment(),
            stdin=True,
            stdout="stream",
            stderr=errors,
            # A login waits for a person anyway; calls wait for a renewal.
            priority=_PRIORITY if request.mode in ("login", "look") else None,
        )
        try:
            self._send(msgspec.structs.replace(request, proxies=self._proxies))
            async with asyncio.timeout(request.seconds + NETWORK_SECONDS + _START_SECONDS):
                outcome = await self._receive(child, on_message)
        except TimeoutError:
            raise RookeryError("timeout", "the sign-in took too long and was stopped") from None
        finally:
            await _stop(child)
        if outcome is None:
            printed = errors.text().strip()
            cause = find_cause(child.returncode or 0, printed, (self._folder,))
            why = cause.message if cause is not None else printed.rpartition("\n")[2][:200]
            remedy = cause.remedy if cause is not None else "try again"
            raise RookeryError("sign-in-failed", f"the sign-in process ended early: {why}", remedy)
        if isinstance(outcome, FailureResult):
            raise RookeryError(outcome.code, outcome.message, outcome.remedy)
        return outcome

    def send_redirect(self, url: str) -> None:
        """Send the address that the browser was redirected to, as pasted by a person."""
        self._send(BrowserRedirect(url))

    def _send(self, message: HelperRequest | BrowserRedirect) -> None:
        child = self._child
        if child is not None and child.stdin is not None:
            with contextlib.suppress(ConnectionError):
                child.stdin.write(msgspec.json.encode(message) + b"\n")

    async def _receive(self, child: Child, on_message: MessageCallback) -> Outcome | None:
        assert child.stdout is not None
        while line := await child.stdout.readline():
            message = msgspec.json.decode(line, type=HelperMessage)
            if not isinstance(message, SignInStep | BrowserPrompt | RedirectReply):
                return message
            on_message(message)
        return None


async def _stop(child: Child) -> None:
    """Stop the process in every case, even if the caller is cancelled meanwhile."""
    try:
        await child.stop()
    except asyncio.CancelledError:
        await child.stop()
        raise
