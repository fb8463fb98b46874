"""The first five minutes of a new user, with only the commands that the README names."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rookery.testing.model import scripted_model
from tests.support.cli.user import at_a_terminal
from tests.support.daemon.process import ROOKERY, rookery
from tests.support.daemon.system import LIMIT, offline_environment
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

# Not in git; brought along, and there before the agent reads its first prompt.
FILES = {".gitignore": ".env\n", ".keepfiles": ".env\n"}
SCRIPT = {
    "step": [
        {"call": "bash", "with": {"command": "cat .env", "description": "Looks"}, "expect": "Fix the login"},
        {"call": "write", "with": {"filePath": "login.txt", "content": "works"}, "expect": "KEY=a secret"},
        {"say": "The login works again."},
    ]
}
# A terminal of a size, as a person's has one.
ATTACH = 'stty rows 40 cols 120; exec "$0" agent attach fix-login'


class User:
    """At the main checkout, with nothing running yet."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder, self._env = folder, env

    async def runs(self, *words: str, code: int = 0) -> str:
        """What the command answers; that it ends with `code` is seen to."""
        done = await asyncio.to_thread(rookery, *words, env=self._env, cwd=self._folder)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout.strip() if code == 0 else done.stderr

    async def lists(self) -> dict[str, Any]:
        return {one["name"]: one for one in json.loads(await self.runs("ws", "list", "--json"))}

    def looks(self, wanted: str) -> int:
        """Attaches until `wanted` is on the screen, and leaves with the TUI's own key."""
        with at_a_terminal(argv=["sh", "-c", ATTACH, str(ROOKERY)], cwd=self._folder, env=self._env) as person:
            person.reads(wanted, LIMIT)
            person.types("\x03")
            return person.ends()


@requirement("ws.create.barrier", "ws.delete.restore", "agent.cli.verbs")
async def test_a_prompt_a_look_at_the_agent_and_a_workspace_that_is_deleted_and_comes_back(tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app", FILES)
    (app / ".env").write_text("KEY=a secret")
    async with scripted_model(SCRIPT) as model:
        user = User(app, await asyncio.to_thread(offline_environment, model.url))
        try:
            place = Path(await user.runs("ws", "create", "fix-login", "--prompt", "Fix the login, please."))
            async with asyncio.timeout(LIMIT):
                await model.requests.wait_for(lambda one: one.step == 3 and one.ended == "answered")
            assert (place / "login.txt").read_text() == "works"
            assert model.requests.unforeseen == []

            shown = await user.lists()
            assert shown["fix-login"]["status"]["isDirty"] is True
            assert shown["fix-login"]["agent"]["state"] == "running"
            assert await asyncio.to_thread(user.looks, "The login works again.") == 0

            refused = await user.runs("ws", "rm", "fix-login", code=3)
            assert "login.txt" in refused and place.exists()
            await user.runs("ws", "rm", "fix-login", "--force")
            assert not place.exists()
            assert set(await user.lists()) == {"@main"}

            assert Path(await user.runs("ws", "restore", "fix-login")) == place
            assert (place / "login.txt").read_text() == "works"
            assert (place / ".env").read_text() == "KEY=a secret"
            assert git(place, "branch", "--show-current") == "fix-login"
            await user.runs("agent", "start", "fix-login")
            assert await asyncio.to_thread(user.looks, "The login works again.") == 0
        finally:
            await user.runs("down")
