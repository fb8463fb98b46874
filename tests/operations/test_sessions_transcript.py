"""The calls that the guide documents, repeated with a real agent."""

import json
import re
from pathlib import Path
from typing import Any

import mcp_types
import pytest

from tests.support.daemon.sdk_client import open_sdk_client
from tests.support.daemon.sessions import start_system_with_sessions
from tests.support.mcp.sdk_client import MODERN

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "sessions.md"


def transcript() -> list[tuple[str, str, Any]]:
    """Each call of the page: the tool, its arguments as they are written, and what it answers."""
    (text,) = re.findall(r"```text\n(create_session.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found: list[tuple[str, str, Any]] = []
    for block in text.strip().split("\n\n"):
        called, _, answer = block.partition("\n")
        name, _, given = called.partition(" ")
        found.append((name, given, json.loads(answer)))
    return found


def fits(shown: Any, told: Any) -> bool:
    """Whether what is shown is a part of what was told; an ellipsis stands for anything, or for the rest of a text."""
    if isinstance(shown, str) and shown.endswith("…"):
        return shown == "…" or str(told).startswith(shown[:-1])
    if isinstance(shown, dict):
        parts: dict[str, Any] = shown  # pyright: ignore[reportUnknownVariableType]
        return all(key in told and fits(value, told[key]) for key, value in parts.items())
    if isinstance(shown, list):
        each: list[Any] = shown  # pyright: ignore[reportUnknownVariableType]
        return len(each) == len(told) and all(map(fits, each, told))
    return shown == told


async def test_the_run_in_the_docs_goes_as_they_say() -> None:
    calls = transcript()
    assert len(calls) > 10
    async with start_system_with_sessions() as (system, _), open_sdk_client(system.daemon, "http", MODERN) as client:
        here = {"/home/you/src/app": str(Path.home() / "src" / "app")}
        for name, written, shown in calls:
            given = json.loads(_replaced(written, here))
            if name == "wait_for_toast":
                toast = {"message": "Tests passed", "variant": "success"}
                await system.rest("POST", f"/api/sessions/{given['sessionId']}/toasts", toast)
            found = await client.call_tool(name, given)
            content = found.content[0]
            assert isinstance(content, mcp_types.TextContent)
            told: Any = found.structured_content if found.is_error else json.loads(content.text)
            assert fits(json.loads(_replaced(json.dumps(shown, ensure_ascii=False), here)), told), (name, told)
            if name == "create_session":
                here["ses_…"] = told["id"]


def _replaced(text: str, here: dict[str, str]) -> str:
    for shown, real in here.items():
        text = text.replace(shown, real)
    return text
