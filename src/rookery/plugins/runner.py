"""Run one plugin: its events wait in a queue of its own, and a hook that keeps failing is switched off.

An exception of a plugin's function, or one that never returns, affects only that plugin.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rookery.plugins.api import AFTER, BEFORE, Action, CallEvent, Event, Hook, House, Plugin, PluginFunction
from rookery.plugins.records import ActionShown, HookShown, PluginLimits
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError
from rookery.system.log import REDACTOR
from rookery.system.tasks import TaskSet
from rookery.system.threads import FatalInThread, SerialThread

logger = logging.getLogger("rookery.plugins")

T = TypeVar("T")
_MAX_ERROR_CHARS = 500
_STOP_SECONDS = 5.0
# An exception that ends a loop or a process is a failure of the plugin like any other.
_FATAL = (SystemExit, KeyboardInterrupt)


class PluginFault(msgspec.Struct, frozen=True):
    """The last failure: its message, its location, and its time in milliseconds since the epoch."""

    message: str
    where: str
    at: float


class PluginTasks(TaskSet):
    """The tasks of a plugin. An exception that would end the daemon only counts as a crash of the task."""

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return super().start(_contain_fatal(work), name)


class PluginCalls:
    """Calls the functions of one plugin. `failures` counts all failures, `last` is the newest one."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.failures = 0
        self.last: PluginFault | None = None
        self._name = name
        self._clock = clock
        self._thread = SerialThread(f"plugin {name}")
        # `calls` are the calls of its functions; `tasks` are those that the plugin starts itself.
        self.calls = TaskSet(f"plugin {name}")
        self.tasks = PluginTasks(f"plugin {name}", self._crashed)

    async def call(
        self,
        where: str,
        function: Callable[..., Any],
        *args: Any,
        seconds: float,
        result_type: Any = None,
        may_refuse: bool = False,
    ) -> Any:
        """Call a function and return its result; raise RookeryError `plugin-failed` if it fails or takes too long.

        A call that takes longer than `seconds` is cancelled, without waiting for its end. With `may_refuse`, a
        RookeryError of the function is raised as it is, and is no failure. The result must be plain data of the type
        `result_type`.
        """
        task = self.calls.start(self._outcome(function, args), where)
        try:
            await asyncio.wait([task], timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            raise self._failed(RookeryError("timeout", f"it took longer than {seconds:g} s"), where)
        if task.cancelled():
            raise self._failed(RookeryError("plugin-failed", "it was cancelled"), where)
        value, error = task.result()
        if may_refuse and isinstance(error, RookeryError):
            raise error
        if error is not None:
            raise self._failed(error, where)
        try:
            return _to_plain_data(value, result_type) if result_type is not None else value
        except (TypeError, ValueError, OverflowError, RecursionError) as conversion_error:
            raise self._failed(conversion_error, f"the result of {where}") from None

    async def close(self) -> None:
        """Cancel everything that runs; tasks that do not end in time are left behind."""
        self._thread.close()
        for tasks in (self.calls, self.tasks):
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await tasks.close()
            except TimeoutError:
                self._record(RookeryError("timeout", "its tasks did not end in time"), "stop")

    async def _outcome(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*args), None
            result = await self._thread.run(lambda: function(*args))
            return (await result if inspect.isawaitable(result) else result), None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None, error
        except (Exception, *_FATAL) as error:
            return None, error

    def _failed(self, error: BaseException, where: str) -> RookeryError:
        fault = self._record(error, where)
        return RookeryError("plugin-failed", f"plugin {self._name} failed: {fault.message} ({where})")

    def _crashed(self, task: str, error: BaseException) -> None:
        self._record(error, f"task {task}")

    def _record(self, error: BaseException, where: str) -> PluginFault:
        self.failures += 1
        fault = self.last = PluginFault(describe_error(error), where, self._clock.wall() * 1000)
        logger.error("plugin %s failed: %s", self._name, where, exc_info=error)
        return fault


def describe_error(error: BaseException) -> str:
    """Return an error as one line, without the secrets of this process."""
    message = error.message if isinstance(error, RookeryError) else f"{type(error).__name__}: {error}"
    message = REDACTOR.clean(str(error) if isinstance(error, FatalInThread) else message)
    return " ".join(message.split())[:_MAX_ERROR_CHARS]


def _to_plain_data(value: Any, kind: Any) -> Any:
    """Return the value as the caller will decode it."""
    return msgspec.convert(msgspec.json.decode(msgspec.json.encode(value)), kind)


async def _contain_fatal(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except _FATAL as error:
        raise FatalInThread(f"{type(error).__name__}: {error}") from None


@dataclass
class HookState:
    """A hook, and the counts of its calls."""

    hook: Hook
    calls: int = 0
    failures: int = 0
    consecutive_failures: int = 0
    dropped: int = 0
    disabled_reason: str | None = None

    def wants(self, name: str) -> bool:
        """Return whether the hook receives events of this name at present."""
        if self.hook.name != name or self.disabled_reason is not None:
            return False
        try:
            return self.hook.when is None or bool(self.hook.when())
        except Exception as error:
            self.disabled_reason = f"its `when` failed: {type(error).__name__}: {error}"
            return False

    def describe(self) -> HookShown:
        return HookShown(
            name=self.hook.name,
            calls=self.calls,
            failures=self.failures,
            dropped=self.dropped,
            off=self.disabled_reason,
        )


class RunningPlugin:
    """A plugin that runs. `house` has no scope; each caller gets one with its scope.

    `changed` is called when a hook was switched off.
    """

    def __init__(
        self, plugin: Plugin, house: House, caller: PluginCalls, limits: PluginLimits, changed: Callable[[], None]
    ) -> None:
        self.plugin = plugin
        self.caller = caller
        self._house = house
        self._limits = limits
        self._on_change = changed
        self.hooks = [HookState(hook) for hook in plugin.hooks]
        self._events: deque[Event] = deque()
        self._queued = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    async def start(self) -> None:
        if self.plugin.start_function is not None:
            await self._call("start", self.plugin.start_function, self._house)
        if any(hook_state.hook.name not in (BEFORE, AFTER) for hook_state in self.hooks):
            self.caller.calls.keep_running(self._deliver_events, "events")

    async def stop(self) -> None:
        try:
            if self.plugin.stop_function is not None:
                await self._call("stop", self.plugin.stop_function, self._house)
        except RookeryError:
            self._house.log.warning("%s is stopped anyway", self.plugin.name)
        finally:
            await self.caller.close()

    # Events

    def enqueue(self, event: Event) -> None:
        """Queue an event without waiting; if the queue is full, the event is dropped and counted."""
        receivers = [hook_state for hook_state in self.hooks if hook_state.wants(event.hook)]
        if receivers and len(self._events) >= self._limits.queue:
            for hook_state in receivers:
                hook_state.dropped += 1
        elif receivers:
            self._events.append(event)
            self._drained.clear()
            self._queued.set()

    async def wait_until_drained(self) -> None:
        """Wait until all events that were queued so far are handled."""
        await self._drained.wait()

    async def _deliver_events(self) -> None:
        """Call the hooks with each queued event in turn."""
        while True:
            await self._queued.wait()
            while self._events:
                event = self._events.popleft()
                for hook_state in self.hooks:
                    if hook_state.wants(event.hook):
                        await self._run(hook_state, event, self._limits.event_seconds)
            self._queued.clear()
            self._drained.set()

    async def apply_call_hooks(self, event: CallEvent) -> CallEvent:
        """Return the call with the arguments or the result as the hooks have changed them."""
        field = "arguments" if event.hook == BEFORE else "result"
        for hook_state in self.hooks:
            if hook_state.wants(event.hook):
                replacement = await self._run(hook_state, event, self._limits.seconds)
                event = msgspec.structs.replace(event, **{field: replacement}) if replacement is not None else event
        return event

    async def _run(self, hook_state: HookState, event: Event, seconds: float) -> Any:
        hook_state.calls += 1
        gives = dict[str, Any] | None if isinstance(event, CallEvent) else None
        try:
            result = await self.caller.call(
                event.hook, hook_state.hook.run, event, self._house, seconds=seconds, result_type=gives
            )
        except RookeryError as error:
            hook_state.failures += 1
            hook_state.consecutive_failures += 1
            if hook_state.consecutive_failures >= self._limits.failures:
                failures = hook_state.consecutive_failures
                hook_state.disabled_reason = (
                    f"it failed {failures} times in a row and is no longer called; last error: {error.message}"
                )
                self._house.log.error(
                    "%s: %s is switched off: %s", self.plugin.name, event.hook, hook_state.disabled_reason
                )
                self._on_change()
            return None
        hook_state.consecutive_failures = 0
        return result

    # State and actions

    async def state(self, scope: Path | None) -> dict[str, Any]:
        """Return the state of the plugin, as far as `scope` may see it."""
        if self.plugin.state_function is None:
            return {}
        house = replace(self._house, scope=scope)
        return await self._call("state", self.plugin.state_function, house, gives=dict[str, Any])

    async def trigger(self, action: Action, args: Mapping[str, Any], scope: Path | None) -> Any:
        """Run an action and return its result; raise RookeryError `invalid-input` if the arguments do not fit."""
        arguments: Any = args
        if action.takes is not None:
            try:
                arguments = msgspec.convert(dict(args), action.takes)
            except msgspec.ValidationError as error:
                raise RookeryError(
                    "invalid-input",
                    f"the arguments of {action.name} are invalid: {error}",
                    f"it takes: {', '.join(action.takes.__struct_encode_fields__) or 'nothing'}",
                ) from None
        where = f"action {action.name}"
        house = replace(self._house, scope=scope)
        return await self._call(where, action.run, arguments, house, seconds=self._limits.event_seconds, gives=Any)

    async def _call(
        self, where: str, run: PluginFunction, *args: Any, seconds: float | None = None, gives: Any = None
    ) -> Any:
        limit = seconds if seconds is not None else self._limits.seconds
        return await self.caller.call(where, run, *args, seconds=limit, result_type=gives, may_refuse=True)

    def describe_actions(self) -> tuple[ActionShown, ...]:
        return tuple(
            ActionShown(
                name=action.name,
                description=action.description,
                owner_only=not action.scoped,
                args=action.schema,
            )
            for action in self.plugin.actions.values()
        )
