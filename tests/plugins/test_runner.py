"""Hooks of plugins: called in order, dropped if too many wait, and switched off after repeated failures."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rookery.plugins import CallEvent, House, Plugin, SessionEvent
from rookery.plugins.records import PluginLimits
from rookery.plugins.registry import PluginRegistry
from rookery.system.errors import RookeryError
from tests.support.plugins.registry import HookRecorder, idle, make_call_event, shown, start_registry
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


async def told(registry: PluginRegistry, event: SessionEvent, heard: HookRecorder) -> None:
    """Tell an event, and wait until some hook has heard it."""
    count = len(heard)
    registry.publish(event)
    await heard.has(count + 1)


@requirement("plugin.hook.registry")
async def test_hooks_are_told_one_after_the_other_be_they_async_or_run_in_a_thread(tmp_path: Path) -> None:
    plugin, heard, threads = Plugin("both"), HookRecorder(), set[str]()
    loop = asyncio.get_running_loop()

    @plugin.on("session.idle")
    async def first(event: SessionEvent, house: House) -> None:
        await asyncio.sleep(0)
        heard.take(("async", event.session_id))

    @plugin.on("session.idle")
    def second(event: SessionEvent, house: House) -> None:
        threads.add(threading.current_thread().name)
        loop.call_soon_threadsafe(heard.take, ("plain", event.session_id))

    async with start_registry(tmp_path, plugin) as registry:
        for session in ("ses_1", "ses_2"):
            registry.publish(idle(session))
        await heard.has(4)
        hooks = (await shown(registry, "both")).hooks
    assert heard == [("async", "ses_1"), ("plain", "ses_1"), ("async", "ses_2"), ("plain", "ses_2")]
    assert threads == {"plugin both"}
    assert [(one.name, one.calls, one.failures) for one in hooks] == [("session.idle", 2, 0)] * 2


@requirement("plugin.hook.registry")
async def test_a_hook_that_fails_again_and_again_is_switched_off_and_says_so(tmp_path: Path) -> None:
    plugin, heard = Plugin("flaky"), HookRecorder()
    fails = [True, True, False, True, True, True]

    @plugin.on("session.idle")
    async def _(event: SessionEvent, house: House) -> None:
        failing = fails[len(heard)]
        heard.take(failing)
        if failing:
            raise ValueError("not today")

    async with start_registry(tmp_path, plugin) as registry:
        changed = HookRecorder()
        registry.on_change = lambda: changed.take(registry.wants("session.idle"))
        for _failing in fails:
            await told(registry, idle(), heard)
        await changed.has(1)
        # One that went well in between counted anew.
        assert changed == [False]
        hook = (await shown(registry, "flaky")).hooks[0]
        assert (hook.calls, hook.failures) == (6, 5)
        assert hook.off is not None and "3 times in a row" in hook.off and "not today" in hook.off
        registry.publish(idle())
        assert len(heard) == 6


async def test_events_that_are_too_many_are_dropped_and_counted(tmp_path: Path) -> None:
    plugin, heard, go_on = Plugin("slow"), HookRecorder(), asyncio.Event()

    @plugin.on("session.idle")
    async def _(event: SessionEvent, house: House) -> None:
        heard.take(event.session_id)
        await go_on.wait()

    async with start_registry(tmp_path, plugin, limits=PluginLimits(queue=2)) as registry:
        await told(registry, idle("ses_0"), heard)
        for number in range(1, 6):
            registry.publish(idle(f"ses_{number}"))
        go_on.set()
        await heard.has(3)
        assert heard == ["ses_0", "ses_1", "ses_2"]
        assert (await shown(registry, "slow")).hooks[0].dropped == 3


async def test_around_a_tool_each_hook_sees_what_the_one_before_has_made_of_it(tmp_path: Path) -> None:
    one, two = Plugin("one"), Plugin("two")

    @one.on("tool.execute.before")
    async def _(event: CallEvent, house: House) -> Mapping[str, Any]:
        return {**event.arguments, "by": ["one"]}

    @two.on("tool.execute.before")
    def _(event: CallEvent, house: House) -> Mapping[str, Any]:
        return {**event.arguments, "by": [*event.arguments["by"], "two"]}

    @one.on("tool.execute.after")
    async def _(event: CallEvent, house: House) -> None: ...

    @two.on("tool.execute.after")
    async def _(event: CallEvent, house: House) -> Mapping[str, Any]:
        assert event.result is not None
        return {**event.result, "seen": event.arguments["path"]}

    async with start_registry(tmp_path, one, two) as registry:
        before = await registry.apply_call_hooks(make_call_event())
        assert before.arguments == {"path": "a", "by": ["one", "two"]}
        after = await registry.apply_call_hooks(make_call_event("tool.execute.after", result={"content": []}))
        assert after.result == {"content": [], "seen": "a"}


@pytest.mark.parametrize("answer", [["no object"], "text", {"a": object()}, {1: object()}])
async def test_what_a_hook_gives_that_is_no_object_is_its_failure_and_the_call_goes_on(
    tmp_path: Path, answer: Any
) -> None:
    plugin = Plugin("wrong")

    @plugin.on("tool.execute.before")
    async def _(event: CallEvent, house: House) -> Any:
        return answer

    async with start_registry(tmp_path, plugin) as registry:
        assert (await registry.apply_call_hooks(make_call_event())).arguments == {"path": "a"}
        found = await shown(registry, "wrong")
        assert found.hooks[0].failures == 1 and "the result of tool.execute.before" in (found.error or "")


@requirement("plugin.hook.registry")
async def test_a_hook_hears_only_what_comes_while_it_is_wanted(tmp_path: Path) -> None:
    plugin, heard, open_ = Plugin("choosy"), HookRecorder(), [False]

    @plugin.on("session.idle", when=lambda: open_[0])
    async def _(event: SessionEvent, house: House) -> None:
        heard.take(event.session_id)

    async with start_registry(tmp_path, plugin) as registry:
        assert not registry.wants("session.idle")
        registry.publish(idle("ses_1"))
        open_[0] = True
        assert registry.wants("session.idle")
        await told(registry, idle("ses_2"), heard)
    assert heard == ["ses_2"]


@requirement("plugin.hook.registry")
async def test_a_hook_whose_condition_fails_is_switched_off_and_says_so(tmp_path: Path) -> None:
    plugin = Plugin("undecided")

    @plugin.on("session.idle", when=lambda: 1 // 0 == 0)
    async def _(event: SessionEvent, house: House) -> None:
        raise AssertionError("nobody knows whether it is wanted")

    async with start_registry(tmp_path, plugin) as registry:
        registry.publish(idle())
        (hook,) = (await shown(registry, "undecided")).hooks
    assert hook.calls == 0
    assert hook.off == "its `when` failed: ZeroDivisionError: integer division or modulo by zero"


def test_what_changes_calls_is_there_or_not() -> None:
    with pytest.raises(RookeryError, match="does not accept `when`"):
        Plugin("late").on("tool.execute.before", when=lambda: True)
