"""The screens of sessions: the real OpenCode's interface on our terminals."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from rookery.agents.opencode.api import ApiConnection
from rookery.sessions.terminal import pool, screens
from rookery.sessions.terminal.cells import Cell, Screen
from rookery.sessions.terminal.pool import TerminalPool
from rookery.sessions.terminal.readiness import ConversationEnd
from rookery.sessions.terminal.terminal import InterfaceLaunch
from rookery.system.errors import RookeryError
from tests.support.agents.host import LIMIT
from tests.support.agents.sessions import SessionDriver, refusal, start_session_driver
from tests.support.daemon.process import alive, wait_dead
from tests.support.daemon.sessions import SCRIPT
from tests.support.opencode.screens import recorded
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookery.sessions.terminal.terminal import Terminal

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


@requirement("term.state.get", "term.real.tui", "term.close.killed")
async def test_f01_f03_a_session_is_shown_and_driven_on_its_own_terminal_and_asks_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    send = ApiConnection._send

    async def noted(self: ApiConnection, method: str, path: str, *more: Any) -> Any:
        asked.append(f"{method} {path}")
        return await send(self, method, path, *more)

    monkeypatch.setattr(ApiConnection, "_send", noted)
    async with start_session_driver(SCRIPT) as stage:
        # The user's own config, so that commands ask first.
        config = Path.home() / ".config" / "opencode" / "opencode.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "permission": {"bash": "ask"}}))
        workspace = await stage.host.create("one")
        session = await stage.session(workspace)
        await stage.sessions.send(session, "hello", timeout=LIMIT)
        await _is_rendered(stage, session)
        pid = await _is_seen(stage, session)
        await _is_driven(stage, session)
        await _is_waited_for(stage, session)
        await _asks(stage, session, workspace.path)
        # Of the calls that reach every terminal of the agent, those of the user too, only that for toasts was made.
        assert {one for one in asked if "/tui/" in one} == {"POST /tui/show-toast"}
        # Led elsewhere, that is said to the owner, and whoever sees one workspace alone sees the conversation.
        await stage.sessions.press(session, keys=["ctrl+x", "n"])
        assert (await stage.sessions.wait_for_screen(session, "Ask anything", LIMIT)).found
        seen = await stage.sessions.screen(session)
        assert seen.note is not None and "something else" in seen.note and seen.source == "terminal"
        assert (await stage.sessions.screen(session, workspace.path)).source == "rendering"
        # Whoever waits for it when it is closed is told, and its process is gone by the answer.
        waiting = asyncio.ensure_future(stage.sessions.wait_for_screen(session, "never", LIMIT))
        terminal = stage.sessions.terminals._terminals[session].terminal
        async with asyncio.timeout(LIMIT):
            # Toasts are read from every frame anyway.
            while len(terminal.listeners) < 2:  # noqa: ASYNC110 - nothing tells when somebody begins to listen
                await asyncio.sleep(0)
        found = await stage.sessions._index.find(session, None)
        await stage.sessions.close(session)
        assert not alive(pid) and stage.sessions.terminals.pids() == {}
        told = await asyncio.wait_for(waiting, LIMIT)
        assert not told.found and (told.closed or told.note == "the terminal has ended")
        # Who has found it before that, and comes only now, starts none that would stay.
        async with refusal("session-not-found"), stage.sessions._screens._use_terminal(found, None):
            pass
        assert stage.sessions.terminals.pids() == {}
        async with refusal("session-not-found"):
            await stage.sessions.screen()
        # A second one, which goes with its agent.
        other = await stage.session(workspace)
        assert (await stage.sessions.screen()).session_id == other
        pid = stage.sessions.terminals.pids()[other]
        await stage.host.agents.stop(workspace)
        await asyncio.to_thread(wait_dead, pid)


async def _is_rendered(stage: SessionDriver, session: str) -> None:
    """Where there is no terminal, and that is said."""
    rendered = await stage.sessions.screen(session, terminal=False)
    assert (rendered.source, rendered.note, rendered.columns, rendered.rows) == ("rendering", None, 120, 40)
    assert "Good morning." in rendered.text and "rendering" in rendered.lines[0]
    with_terminals = stage.sessions._screens._terminals
    launcher = stage.host.agents.launcher
    stage.sessions._screens._terminals = TerminalPool(launcher.spawner, launcher.user_environment, max_terminals=0)
    rendered = await stage.sessions.screen(session, size=(80, 20))
    assert rendered.source == "rendering" and rendered.note is not None and "no terminal" in rendered.note
    assert (rendered.columns, rendered.rows) == (80, 20) and "Good morning." in rendered.text
    stage.sessions._screens._terminals = with_terminals
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "InterfaceLaunch", _ends_at_once)
        rendered = await stage.sessions.screen(session)
    assert rendered.source == "rendering" and rendered.note is not None and "did not appear" in rendered.note


def _ends_at_once(opencode: Path, *more: Any) -> InterfaceLaunch:
    return InterfaceLaunch(Path("/bin/false"), *more)


async def _is_seen(stage: SessionDriver, session: str) -> int:
    seen = await stage.sessions.screen(progress=stage.progress)
    assert (seen.source, seen.session_id, seen.note) == ("terminal", session, None)
    assert stage.told == ["starting OpenCode's interface"]
    assert "Good morning." in seen.text and "hello" in seen.text and seen.title.endswith("a session")
    assert (seen.columns, seen.rows, len(seen.lines)) == (120, 40, 40) and seen.runs is None
    prompt, status = seen.regions.prompt, seen.regions.status
    assert prompt is not None and status is not None and seen.regions.dialog is None
    assert prompt.row < seen.cursor.row < prompt.row + prompt.rows and seen.cursor.visible
    coloured = await stage.sessions.screen(session, colours=True)
    assert coloured.runs is not None and any(run.background for row in coloured.runs for run in row)
    wide = await stage.sessions.screen(session, size=(160, 45))
    assert (wide.columns, wide.rows) == (160, 45) and wide.regions.sidebar is not None
    assert "a session" in wide.regions.sidebar.text
    narrow = await stage.sessions.screen(session, size=(120, 40))
    assert narrow.regions.sidebar is None and narrow.regions.prompt is not None
    pid = stage.sessions.terminals.pids()[session]
    password = (await _life(stage)).process.password
    assert password not in Path(f"/proc/{pid}/cmdline").read_text()
    for size in ((3, 40), (120, 4), (9999, 40)):
        async with refusal("invalid-input"):
            await stage.sessions.screen(session, size=size)
    return pid


async def _life(stage: SessionDriver):
    (workspace,) = stage.host.agents.workspaces()
    return await stage.host.agents.ensure_running(workspace)


async def _is_driven(stage: SessionDriver, session: str) -> None:
    drive = stage.sessions.press
    seen = await drive(session, text="Grüße ", paste="one\ntwo")
    assert (await stage.sessions.wait_for_screen(session, "Grüße one", LIMIT)).found
    seen = await stage.sessions.screen(session)
    assert seen.regions.prompt is not None and seen.regions.prompt.text == "Grüße one\ntwo"
    await drive(session, keys=["ctrl+p"])
    assert (await stage.sessions.wait_for_screen(session, "Commands +esc", LIMIT)).found
    seen = await stage.sessions.screen(session)
    assert seen.regions.dialog is not None and "Commands" in seen.regions.dialog.text
    await drive(session, keys=["esc"])
    # What was typed is not sent; and it is sent with a key, by this terminal itself.
    assert [one.content for one in (await stage.sessions.messages(session)).messages] == ["hello", "Good morning."]
    await drive(session, keys=["ctrl+c"])
    await drive(session, text="hello", keys=["enter"])
    assert (await stage.sessions.wait_for_message(session, "^hello$", LIMIT, role="user")).found
    assert (await stage.sessions.wait_for_screen(session, r"(?s)Good morning\..*Good morning\.", LIMIT)).found
    async with refusal("tool-denied"):
        await drive(session, Path("/somewhere"), keys=["enter"])
    async with refusal("invalid-input", "entre"):
        await drive(session, text="not typed", keys=["entre"])
    assert "not typed" not in (await stage.sessions.screen(session)).text


async def _is_waited_for(stage: SessionDriver, session: str) -> None:
    waiting = asyncio.ensure_future(
        stage.sessions.wait_for_screen(session, "all 4[12] pass", LIMIT, progress=stage.progress)
    )
    await stage.sessions.show_toast(session, "all 41 pass", duration=60_000)
    told = await asyncio.wait_for(waiting, LIMIT)
    assert (told.found, told.match, told.session_id) == (True, "all 41 pass", session)
    assert told.screen is not None and "all 41 pass" in told.screen
    seen = await stage.sessions.screen(session)
    assert seen.regions.toast is not None and seen.regions.toast.text == "all 41 pass"
    told = await stage.sessions.wait_for_screen(session, "never there", 0.2)
    assert not told.found and told.seen is not None and "Good morning." in told.seen and told.screen is None
    for pattern in ("(", "x" * 2000):
        with pytest.raises(RookeryError):
            await stage.sessions.wait_for_screen(session, pattern, 1)


async def _asks(stage: SessionDriver, session: str, scope: Path) -> None:
    """F03: a permission that nobody answers is seen by whoever may see the session, and waits."""
    await stage.sessions.send(session, "ask", wait=False)
    assert (await stage.sessions.wait_for_screen(session, "Permission required", LIMIT)).found
    await stage.until(lambda: stage.sessions._pending_asks.all())
    seen = await stage.sessions.screen(session, scope)
    assert seen.regions.dialog is not None and "echo asked > asked.txt" in seen.regions.dialog.text
    assert seen.regions.prompt is None and len(await stage.sessions.asks(session)) == 1
    told = await stage.sessions.wait_for_idle(session, 0.2)
    assert not told.found and len(await stage.sessions.asks(session)) == 1
    # The owner answers with keys.
    await stage.sessions.press(session, keys=["enter"])
    assert (await stage.sessions.wait_for_message(session, "Done", LIMIT)).found
    assert (scope / "asked.txt").read_text() == "asked\n" and await stage.sessions.asks(session) == []
    await _notes_an_ask_from_before_the_terminal(stage, session)
    async with refusal("session-not-found"):
        await stage.sessions.screen(session, Path("/somewhere"))


async def _notes_an_ask_from_before_the_terminal(stage: SessionDriver, session: str) -> None:
    """OpenCode's interface shows only what is asked while it runs."""
    await stage.sessions.terminals.end(session)
    await stage.sessions.send(session, "ask", wait=False)
    await stage.until(lambda: stage.sessions._pending_asks.all())
    (ask,) = await stage.sessions.asks(session)
    for terminal in (True, False):
        screen = await stage.sessions.screen(session, terminal=terminal)
        assert screen.source == ("terminal" if terminal else "rendering") and screen.regions.dialog is None
        assert screen.note is not None and "echo asked" in screen.note
        assert f"rookery session answer {ask.id}" in screen.note
    await stage.sessions.answer(ask.id, "once")
    assert (await stage.sessions.wait_for_idle(session, LIMIT)).found
    assert (await stage.sessions.screen(session)).note is None


class Played:
    """A terminal that shows what a test has it draw."""

    def __init__(self) -> None:
        self.is_alive, self.is_drawing = True, False
        self.listeners: list[Callable[[], None]] = []
        self.shown = recorded("home")

    def capture(self) -> Screen:
        return self.shown

    def draw(self, screen: Screen, *, whole: bool = True) -> None:
        self.shown, self.is_drawing = screen, not whole
        if whole:
            for listener in list(self.listeners):
                listener()


DRAWN = ConversationEnd(("def", "f", "x", "return", "x"), ("hello",), is_answer=True)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time limits for tests."""
    for name, seconds in {"_QUIET": 0.05, "_STUCK": 0.1, "_WORKING": 0.3, "_SETTLE": 1.0}.items():
        monkeypatch.setattr(screens, f"{name}_SECONDS", seconds)


def settling(terminal: Played, expected: ConversationEnd = DRAWN, *, running: bool = False) -> "asyncio.Task[bool]":
    task = asyncio.ensure_future(screens._wait_until_settled(cast("Terminal", terminal), expected, running=running))
    assert isinstance(task, asyncio.Task)
    return task


@pytest.mark.usefixtures("soon")
async def test_a_screen_has_settled_when_the_conversation_is_drawn_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(screens, "_SETTLE_SECONDS", 3600.0)
    terminal = Played()
    task = settling(terminal)
    await asyncio.sleep(0)
    # A frame that is not whole does not count, whatever stands on it.
    terminal.draw(recorded("toast"), whole=False)
    assert not (await asyncio.wait([task], timeout=0.2))[0]
    terminal.draw(recorded("toast"))
    assert await task and not terminal.listeners


@pytest.mark.usefixtures("soon")
async def test_what_is_not_drawn_in_time_or_not_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the prompt, until the time is up.
    assert not await settling(Played())
    # Something else than what is expected: nobody waits that long then.
    monkeypatch.setattr(screens, "_SETTLE_SECONDS", 3600.0)
    stuck = Played()
    stuck.shown = recorded("permission")
    assert not await settling(stuck, ConversationEnd(("never", "drawn")))
    # A terminal that has ended.
    ended = Played()
    ended.is_alive = False
    assert not await settling(ended)


@pytest.mark.usefixtures("soon")
async def test_the_screen_of_a_session_that_works_need_not_rest() -> None:
    terminal = Played()
    terminal.shown = recorded("toast")
    task = settling(terminal, running=True)
    for number in range(1_000_000):
        cells = [list(row) for row in recorded("toast").cells]
        cells[0][0] = Cell(str(number % 10))
        terminal.draw(replace(recorded("toast"), cells=cells))
        await asyncio.sleep(0)
        if task.done():
            break
    assert await task
