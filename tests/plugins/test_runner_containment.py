"""A plugin cannot affect anything else, whatever it does."""

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rookery.plugins import CallEvent, House, Plugin, RookeryError, SessionEvent
from tests.support.plugins.registry import (
    BUILT_IN,
    IMPATIENT,
    HookRecorder,
    idle,
    make_call_event,
    shown,
    start_registry,
)
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


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
        (_hangs, "it took longer than 1 s"),
        (_hangs_on, "it took longer than 1 s"),
    ],
)
async def test_a_hook_that_fails_however_it_does_is_shown_and_breaks_nothing_else(
    tmp_path: Path, fails: Callable[..., Any], said: str
) -> None:
    wrong, right, heard = Plugin("wrong"), Plugin("right"), HookRecorder()

    wrong.on("session.idle")(fails)

    @wrong.on("session.idle")
    async def other(event: SessionEvent, house: House) -> None:
        heard.take("the same plugin")

    @right.on("session.idle")
    async def told(event: SessionEvent, house: House) -> None:
        heard.take("another plugin")

    async with start_registry(tmp_path, wrong, right, limits=IMPATIENT) as registry:
        registry.publish(idle())
        await heard.has(2)
        found = await shown(registry, "wrong")
        assert sorted(heard) == ["another plugin", "the same plugin"]
        assert found.error is not None and found.error.startswith("session.idle: ") and said in found.error
        assert (found.failures, found.error_at) == (1, 0)
        assert [one.failures for one in found.hooks] == [1, 0]
        assert (await shown(registry, "right")).error is None


async def test_a_plain_function_that_never_returns_holds_up_neither_the_loop_nor_others(tmp_path: Path) -> None:
    stuck, other, heard, release = Plugin("stuck"), Plugin("other"), HookRecorder(), threading.Event()
    off = HookRecorder()

    @stuck.on("session.idle")
    def _(event: SessionEvent, house: House) -> None:
        release.wait()

    @other.on("session.idle")
    async def _(event: SessionEvent, house: House) -> None:
        heard.take(event.session_id)

    async with start_registry(tmp_path, stuck, other, limits=IMPATIENT) as registry:
        registry.on_change = lambda: off.take("off")
        for number in range(1, 6):
            registry.publish(idle())
            await heard.has(number)
        await off.has(1)
        assert "failed 3 times in a row" in ((await shown(registry, "stuck")).hooks[0].off or "")
        release.set()


async def test_a_tool_does_not_wait_for_a_hanging_hook_and_keeps_its_arguments(tmp_path: Path) -> None:
    stuck, right = Plugin("stuck"), Plugin("right")
    stuck.on("tool.execute.before")(_hangs)

    @right.on("tool.execute.before")
    async def _(event: CallEvent, house: House) -> Mapping[str, Any]:
        return {**event.arguments, "by": "right"}

    async with start_registry(tmp_path, stuck, right, limits=IMPATIENT) as registry:
        assert (await registry.apply_call_hooks(make_call_event())).arguments == {"path": "a", "by": "right"}
        assert "it took longer than" in ((await shown(registry, "stuck")).error or "")
        for _again in range(IMPATIENT.failures - 1):
            await registry.apply_call_hooks(make_call_event())
        # From now on nobody waits for it at all.
        assert not [one for one in (await shown(registry, "stuck")).hooks if one.off is None]


async def test_whoever_stops_waiting_for_an_action_ends_it(tmp_path: Path) -> None:
    plugin, heard = Plugin("slow"), HookRecorder()

    @plugin.action("work")
    async def _(args: Mapping[str, Any], house: House) -> None:
        heard.take("begun")
        try:
            await asyncio.Event().wait()
        finally:
            heard.take("ended")

    async with start_registry(tmp_path, plugin) as registry:
        (running,) = registry.visible_to(None).values()
        asking = asyncio.ensure_future(running.trigger(plugin.actions["work"], {}, None))
        await heard.has(1)
        asking.cancel()
        await heard.has(2)
        assert (await shown(registry, "slow")).failures == 0


async def test_a_task_that_would_end_the_daemon_has_only_crashed(tmp_path: Path) -> None:
    plugin, ended = Plugin("tasks"), HookRecorder()

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

    async with start_registry(tmp_path, plugin) as registry:
        found = await shown(registry, "tasks")
        assert found.error is not None and "exits" in found.error and "SystemExit: for good" in found.error
        assert not ended
    assert ended == ["with its plugin"]


async def test_a_plugin_that_cannot_start_does_not_run_and_one_that_cannot_stop_is_ended(tmp_path: Path) -> None:
    wrong, stubborn = Plugin("wrong"), Plugin("stubborn")
    wrong.start(_divides)
    stubborn.stop(_divides)
    async with start_registry(tmp_path, stubborn) as registry:
        with pytest.raises(RookeryError, match="plugin wrong failed: ZeroDivisionError"):
            await registry.add(wrong, BUILT_IN)
        assert [key.name for key in registry.visible_to(None)] == ["stubborn"]
