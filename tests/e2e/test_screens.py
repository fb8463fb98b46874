"""The screens of the real OpenCode, compared cell by cell with recorded and reviewed ones.

CONTRIBUTING describes how to record them again.
"""

import json
import os
import re
from pathlib import Path

import pytest

from rookery.sessions.drawing.picture import draw_picture
from rookery.sessions.drawing.screenshot import take_screenshot
from rookery.sessions.terminal.rendering import RENDERING_NOTICE
from rookery.sessions.terminal.terminal import Terminal
from tests.support.agents.sessions import SessionDriver, start_session_driver
from tests.support.opencode.screens import written
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

KEPT = Path(__file__).parent / "screens"
PICTURES = Path(__file__).parents[2] / "dist" / "screens"
UPDATE = os.environ.get("ROOKERY_UPDATE_SCREENS") == "1"
SIZE = (120, 40)
# To be kept, a screen must not have changed for so long: OpenCode colours what was said some time after it is there.
QUIET_SECONDS = 6.0
TOAST_MS = 30_000 if UPDATE else 5_000
SECONDS = 60.0
# In this order; no pattern fits what an earlier one has masked.
MASKS = {
    "example": re.compile(r'(?<=Ask anything… )".*?"'),
    "tip": re.compile(r"● Tip .*\S"),
    "tokens": re.compile(r"\d[\d.,]*K? \(\d+%\)"),
    "time": re.compile(r"\b\d+(\.\d+)?m?s\b"),
    "version": re.compile(r"\b\d+\.\d+\.\d+\b"),
    "path": re.compile(r"(~|/[\w.-]+)/[\w./:…-]*"),
}
SAID = "Good morning.\n\n# The plan\n\n- read **all** of it\n- run `make test`\n"
SCRIPT = {
    "turn": [
        {"when": "hello", "step": [{"say": SAID}]},
        {"when": "ask", "step": [{"call": "bash", "with": {"command": "make test", "description": "Runs the tests"}}]},
    ]
}


@requirement("term.real.tui")
async def test_home_conversation_toast_and_permission_look_as_they_did(tmp_path: Path) -> None:
    async with start_session_driver(SCRIPT) as stage:
        config = Path.home() / ".config" / "opencode" / "opencode.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "permission": {"bash": "ask"}}))
        workspace = await stage.host.create("one")
        session = await stage.session(workspace)
        try:
            await stage.sessions.send(session, "hello", timeout=SECONDS)
            await _is_rendered_without_a_terminal(stage, session)
            await stage.sessions.screen(session, size=SIZE)
            terminal = stage.sessions.terminals._terminals[session].terminal
            look = Look(terminal, tmp_path)
            await look.at("conversation")
            await stage.sessions.show_toast(
                session, "All 41 of them pass.", title="Tests", variant="success", duration=TOAST_MS
            )
            await look.at("toast")
            assert await terminal.wait_until(lambda: "All 41" not in terminal.text or None, SECONDS)
            await stage.sessions.send(session, "ask", wait=False)
            await look.at("permission")
            # Nothing is sent to the user's own terminals: all of it is keys in this one.
            await stage.sessions.press(session, keys=["right", "right", "enter"])
            await stage.sessions.press(session, keys=["enter"])
            await stage.until_is(workspace, session, "idle")
            await stage.sessions.press(session, keys=["ctrl+x", "n"])
            await look.at("home")
        finally:
            await stage.sessions.close(session)


async def _is_rendered_without_a_terminal(stage: SessionDriver, session: str) -> None:
    shot = await take_screenshot(stage.sessions, session, size=(80, 24), terminal=False)
    assert not stage.sessions.terminals.pids()
    assert shot.make_record().source == "rendering"
    lines = shot.capture.screen.lines
    assert lines[0].strip() == RENDERING_NOTICE
    assert lines[3:6] == ["┃ hello", "", "  Good morning."]
    assert (shot.picture.width, shot.picture.height) == (720, 432)


class Look:
    def __init__(self, terminal: Terminal, folder: Path) -> None:
        self._terminal, self._folder = terminal, folder

    async def at(self, name: str) -> None:
        """See that the screen comes to be as it was kept; or keep it as it is."""
        file = KEPT / f"{name}.txt"
        if UPDATE:
            while await self._terminal.wait_until_drawn(self._terminal.frames, QUIET_SECONDS):
                pass
            file.write_text(self._now())
            PICTURES.mkdir(parents=True, exist_ok=True)
            (PICTURES / f"{name}.png").write_bytes(draw_picture(self._terminal.capture()).data)
            return
        kept = file.read_text()
        if await self._terminal.wait_until(lambda: self._now() == kept or None, SECONDS) is None:
            (self._folder / f"{name}.png").write_bytes(draw_picture(self._terminal.capture()).data)
            assert self._now() == kept, f"{name} looks otherwise: see {self._folder / name}.png"

    def _now(self) -> str:
        return written(self._terminal.capture(), MASKS)
