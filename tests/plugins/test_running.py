"""Hooks of plugins: told in order, given up in time, and nobody else's trouble."""

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rookery.plugins import CallEvent, House, Plugin, RookeryError, SessionEvent
from rookery.plugins.records import Limits
from rookery.plugins.registry import Registry
from tests.support.plugins import BUILT_IN, IMPATIENT, Heard, a_call, a_registry, idle, shown
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


async def told(registry: Registry, event: SessionEvent, heard: Heard) -> None:
    """Tell an event, and wait until some hook has heard it."""
    count = len(heard)
    registry.tell(event)
    await heard.has(count + 1)


@requirement("plugin.hook.registry")
async def test_hooks_are_told_one_after_the_other_be_they_async_or_run_in_a_thread(tmp_path: Path) -> None:
    plugin, heard, threads = Plugin("both"), Heard(), set[str]()
    loop = asyncio.get_running_loop()

    @plugin.on("session.idle")
    async def first(event: SessionEvent, house: House) -> None:
        await asyncio.sleep(0)
        heard.take(("async", event.session_id))

    @plugin.on("session.idle")
    def second(event: SessionEvent, house: House) -> None:
        threads.add(threading.current_thread().name)
        loop.call_soon_threadsafe(heard.take, ("plain", event.session_id))

    async with a_registry(tmp_path, plugin) as registry:
        for session in ("ses_1", "ses_2"):
            registry.tell(idle(session))
        await heard.has(4)
        hooks = (await shown(registry, "both")).hooks
    assert heard == [("async", "ses_1"), ("plain", "ses_1"), ("async", "ses_2"), ("plain", "ses_2")]
    assert threads == {"plugin both"}
    assert [(one.name, one.calls, one.failures) for one in hooks] == [("session.idle", 2, 0)] * 2


async def _raises(*told: Any) -> None:
    raise ValueError("of no use")


async def _exits(*told: Any) -> None:
    sys.exit("for good")


async def _interrupts(*told: Any) -> None:
    raise KeyboardInterrupt


async def _cancels(*told: Any) -> None:
    raise asyncio.CancelledError


def _exits_in_a_thread(*told: Any) -> None:
    sys.exit(3)


def _stops_in_a_thread(*told: Any) -> None:
    raise StopIteration


def _divides(*told: Any) -> float:
    return 1 / 0


async def _hangs(*told: Any) -> None:
    await asyncio.Event().wait()


async def _hangs_on(*told: Any) -> None:
    """It does not even heed that it is cancelled, for a while."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0.3)


@requirement("plugin.hook.registry")
@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (_raises, "ValueError: of no use"),
        (_exits, "SystemExit: for good"),
        (_interrupts, "KeyboardInterrupt"),
        (_cancels, "CancelledError"),
        (_exits_in_a_thread, "SystemExit: 3"),
        (_stops_in_a_thread, "StopIteration"),
        (_hangs, "it took longer than 0.2 s"),
        (_hangs_on, "it took longer than 0.2 s"),
    ],
)
async def test_a_hook_that_fails_however_it_does_is_shown_and_breaks_nothing_else(
    tmp_path: Path, fails: Callable[..., Any], said: str
) -> None:
    wrong, right, heard = Plugin("wrong"), Plugin("right"), Heard()

    wrong.on("session.idle")(fails)

    @wrong.on("session.idle")
    async def other(event: SessionEvent, house: House) -> None:
        heard.take("the same plugin")

    @right.on("session.idle")
    async def told(event: SessionEvent, house: House) -> None:
        heard.take("another plugin")

    async with a_registry(tmp_path, wrong, right, limits=IMPATIENT) as registry:
        registry.tell(idle())
        await heard.has(2)
        found = await shown(registry, "wrong")
        assert sorted(heard) == ["another plugin", "the same plugin"]
        assert found.error is not None and found.error.startswith("session.idle: ") and said in found.error
        assert (found.failures, found.error_at) == (1, 0)
        assert [one.failures for one in found.hooks] == [1, 0]
        assert (await shown(registry, "right")).error is None


async def test_a_plain_function_that_never_returns_holds_up_neither_the_loop_nor_others(tmp_path: Path) -> None:
    stuck, other, heard, release = Plugin("stuck"), Plugin("other"), Heard(), threading.Event()
    off = Heard()

    @stuck.on("session.idle")
    def _(event: SessionEvent, house: House) -> None:
        release.wait()

    @other.on("session.idle")
    async def _(event: SessionEvent, house: House) -> None:
        heard.take(event.session_id)

    async with a_registry(tmp_path, stuck, other, limits=IMPATIENT) as registry:
        registry.on_change = lambda: off.take("off")
        for _number in range(5):
            await told(registry, idle(), heard)
        await off.has(1)
        assert "failed 3 times in a row" in ((await shown(registry, "stuck")).hooks[0].off or "")
        release.set()


@requirement("plugin.hook.registry")
async def test_a_hook_that_fails_again_and_again_is_switched_off_and_says_so(tmp_path: Path) -> None:
    plugin, heard = Plugin("flaky"), Heard()
    fails = [True, True, False, True, True, True]

    @plugin.on("session.idle")
    async def _(event: SessionEvent, house: House) -> None:
        failing = fails[len(heard)]
        heard.take(failing)
        if failing:
            raise ValueError("not today")

    async with a_registry(tmp_path, plugin) as registry:
        changed = Heard()
        registry.on_change = lambda: changed.take(registry.wants("session.idle"))
        for _failing in fails:
            await told(registry, idle(), heard)
        await changed.has(1)
        # One that went well in between counted anew.
        assert changed == [False]
        hook = (await shown(registry, "flaky")).hooks[0]
        assert (hook.calls, hook.failures) == (6, 5)
        assert hook.off is not None and "3 times in a row" in hook.off and "not today" in hook.off
        registry.tell(idle())
        assert len(heard) == 6


async def test_events_that_are_too_many_are_dropped_and_counted(tmp_path: Path) -> None:
    plugin, heard, go_on = Plugin("slow"), Heard(), asyncio.Event()

    @plugin.on("session.idle")
    async def _(event: SessionEvent, house: House) -> None:
        heard.take(event.session_id)
        await go_on.wait()

    async with a_registry(tmp_path, plugin, limits=Limits(queue=2)) as registry:
        await told(registry, idle("ses_0"), heard)
        for number in range(1, 6):
            registry.tell(idle(f"ses_{number}"))
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

    async with a_registry(tmp_path, one, two) as registry:
        before = await registry.passed(a_call())
        assert before.arguments == {"path": "a", "by": ["one", "two"]}
        after = await registry.passed(a_call("tool.execute.after", result={"content": []}))
        assert after.result == {"content": [], "seen": "a"}


@pytest.mark.parametrize("answer", [["no object"], "text", {"a": object()}, {1: object()}])
async def test_what_a_hook_gives_that_is_no_object_is_its_failure_and_the_call_goes_on(
    tmp_path: Path, answer: Any
) -> None:
    plugin = Plugin("wrong")

    @plugin.on("tool.execute.before")
    async def _(event: CallEvent, house: House) -> Any:
        return answer

    async with a_registry(tmp_path, plugin) as registry:
        assert (await registry.passed(a_call())).arguments == {"path": "a"}
        found = await shown(registry, "wrong")
        assert found.hooks[0].failures == 1 and "what tool.execute.before answers" in (found.error or "")


async def test_a_task_that_would_end_the_daemon_has_only_crashed(tmp_path: Path) -> None:
    plugin, ended = Plugin("tasks"), Heard()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.take("with its plugin")

    @plugin.start
    async def _(house: House) -> None:
        house.tasks.start(forever(), "forever")
        task = house.tasks.start(_exits(), "exits")
        await asyncio.wait([task])
        await asyncio.sleep(0)

    async with a_registry(tmp_path, plugin) as registry:
        found = await shown(registry, "tasks")
        assert found.error is not None and "exits" in found.error and "SystemExit: for good" in found.error
        assert not ended
    assert ended == ["with its plugin"]


async def test_a_plugin_that_cannot_start_does_not_run_and_one_that_cannot_stop_is_ended(tmp_path: Path) -> None:
    wrong, stubborn = Plugin("wrong"), Plugin("stubborn")
    wrong.start(_divides)
    stubborn.stop(_divides)
    async with a_registry(tmp_path, stubborn) as registry:
        with pytest.raises(RookeryError, match="plugin wrong failed: ZeroDivisionError"):
            await registry.add(wrong, BUILT_IN)
        assert [key.name for key in registry.seen(None)] == ["stubborn"]
