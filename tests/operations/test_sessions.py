"""`/api/sessions` with a real daemon and the real OpenCode."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rookery.system.ids import project_id
from tests.support.daemon.sessions import README, start_system_with_sessions
from tests.support.daemon.system import FullSystem
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]


async def refused(system: FullSystem, method: str, path: str, body: Any = None) -> tuple[int, str]:
    """Status and code of a request that fails."""
    data = json.dumps(body).encode() if body is not None else None
    kind = {"Content-Type": "application/json"}
    answer = await asyncio.to_thread(system.daemon.http, method, f"/api/sessions{path}", data, headers=kind)
    assert answer.status >= 400, answer.body
    return answer.status, answer.json()["error"]["code"]


@requirement("session.create.input", "session.list.all", "session.send.wait", "session.messages.since")
@requirement("session.toasts.get", "session.history.get", "session.asks.visible", "session.close.one")
@requirement("session.face.all")
async def test_the_routes_do_what_the_tools_do() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):

        async def ask(method: str, rest: str = "", body: Any = None) -> Any:
            return await system.rest(method, f"/api/sessions{rest}", body)

        made = await ask("POST", "", {"directory": str(path), "title": "By REST"})
        one = f"/{made['id']}"
        assert [each["id"] for each in await ask("GET")] == [made["id"]]
        project = project_id(Path.home() / "src" / "app")
        assert len(await ask("GET", f"?project={project}&workspace=fix")) == 1
        assert await ask("GET", "?workspace=other") == []

        turn = await ask("POST", f"{one}/messages", {"content": "list", "timeout": 120_000})
        assert (turn["status"], [each["tool"] for each in turn["parts"]]) == ("finished", ["glob"])
        said = (await ask("GET", f"{one}/messages"))["messages"]
        assert [each["role"] for each in said] == ["user", "assistant", "assistant"]
        assert (await ask("GET", f"{one}/messages?limit=2&since={said[0]['time']}"))["messages"] == said[1:]
        assert (await ask("POST", f"{one}/wait", {"for": "message", "pattern": "There"}))["message"] == said[2]
        assert (await ask("POST", f"{one}/wait", {"for": "tool", "tool": "glob"}))["tool"]["output"]
        assert (await ask("POST", f"{one}/wait", {"for": "file", "path": "README.md"}))["found"]
        assert (await ask("POST", f"{one}/wait", {"for": "idle"}))["session"]["status"] == "idle"

        await ask("POST", f"{one}/toasts", {"message": "done", "title": "Tests", "duration": 60_000})
        toast = (await ask("POST", f"{one}/wait", {"for": "toast", "pattern": "d.ne"}))["toast"]
        assert (toast["message"], toast["title"], toast["workspace"]) == ("done", "Tests", "fix")
        for place in (f"{one}/toasts", "/toasts", "/toasts?since=0"):
            assert await ask("GET", place) == [toast]

        run = await ask("POST", f"{one}/tools", {"tool": "read", "args": {"filePath": f"{path}/README.md"}})
        assert README.strip() in run["output"]
        for place in (f"{one}/tools", "/tools?limit=2"):
            assert [each["tool"] for each in await ask("GET", place)] == ["glob", "read"]

        taken = await ask("POST", f"{one}/messages", {"content": "ask", "wait": False})
        assert taken["status"] == "taken"
        await system.until_all(lambda all_: all_["fix"]["attention"])
        (asked,) = await ask("GET", f"{one}/asks")
        assert await ask("GET", "/asks") == [asked]
        told = await ask("POST", f"{one}/asks/{asked['id']}", {"reply": "reject", "message": "Not now."})
        assert told["id"] == asked["id"]
        await ask("POST", f"{one}/wait", {"for": "idle", "timeout": 120_000})
        assert not (path / "asked.txt").exists() and await ask("GET", "/asks") == []
        assert (await ask("GET", f"{one}/tools?limit=1"))[0]["status"] == "error"

        assert (await ask("DELETE", f"{one}?delete=true"))["deleted"] is True
        assert await ask("GET") == []


@requirement("session.get.one", "session.wait.pattern")
async def test_bad_requests_have_a_status_and_a_code_and_who_goes_away_waits_no_longer() -> None:
    async with start_system_with_sessions("fix") as (system, (path,)):
        made = await system.rest("POST", "/api/sessions", {"directory": str(path)})
        one = f"/{made['id']}"
        for method, rest, body, wanted in (
            ("GET", "/ses_unknown", None, (404, "session-not-found")),
            ("GET", "/ses_unknown/messages", None, (404, "session-not-found")),
            ("POST", "", {"directory": "/nowhere"}, (404, "workspace-not-found")),
            ("POST", "", {"folder": "/nowhere"}, (400, "invalid-input")),
            ("GET", f"{one}/messages?limit=many", None, (400, "invalid-input")),
            ("POST", f"{one}/wait", {"for": "rain"}, (400, "invalid-input")),
            ("POST", f"{one}/wait", {"for": "message"}, (400, "invalid-input")),
            ("POST", f"{one}/wait", {"for": "message", "pattern": "("}, (400, "invalid-input")),
            ("POST", f"{one}/tools", {"tool": "nothing"}, (400, "invalid-input")),
        ):
            assert await refused(system, method, rest, body) == wanted, (method, rest)

        never = {"for": "message", "pattern": "never", "timeout": 3_600_000}
        waiting = asyncio.ensure_future(system.rest("POST", f"/api/sessions{one}/wait", never))
        turn = await system.rest("POST", f"/api/sessions{one}/messages", {"content": "hello", "timeout": 120_000})
        assert turn["content"] == "Good morning." and not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # A session that is closed ends its waits; that the daemon stops at once afterwards shows that none is left.
        await system.rest("DELETE", f"/api/sessions{one}")
