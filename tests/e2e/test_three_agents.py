"""Three concurrent agents in their own workspaces, one of which deletes its workspace."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.opencode.ports import is_port_taken
from rookery.testing.request_log import LoggedRequest
from tests.support.daemon.endpoints import listens
from tests.support.daemon.process import wait_dead
from tests.support.daemon.system import FullSystem, Shown, is_ready, place_of, start_system
from tests.support.requirements import requirement
from tests.support.workspaces.service import branches, git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

COLOURS = ("red", "green", "blue")
SEED = ("get_status", "get_metadata", "set_metadata", "get_opencode_port", "delete")
OFFERED = [f"rookery_workspace_{name}" for name in SEED]


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"call": f"rookery_workspace_{name}", "with": given}


def script() -> dict[str, Any]:
    """All ask at the same moment; then red deletes its workspace, and the others go on when it is gone."""
    looks = [call("get_status"), call("get_metadata"), call("get_opencode_port")]

    def steps(colour: str) -> list[dict[str, Any]]:
        begins: list[dict[str, Any]] = [
            {**call("set_metadata", key="colour", value=colour), "expect_tools": OFFERED},
            {"parallel": looks, "hold": "all are there", "expect": "null"},
        ]
        if colour == "red":
            return [*begins, {**call("delete"), "hold": "red goes"}, {"say": "Never said.", "hold": "for ever"}]
        return [
            *begins,
            {"call": "write", "with": {"filePath": "note.txt", "content": colour}, "hold": "red is gone"},
            {"parallel": looks},
            # Work that is nowhere else is not deleted just so.
            call("delete"),
            {**call("delete", force=True, keepBranch=True), "expect": "note.txt"},
            {"say": "Never said.", "hold": "for ever"},
        ]

    return {"conversation": [{"when": colour, "turn": [{"step": steps(colour)}]} for colour in COLOURS]}


@requirement("ws.e2e.three", "ws.delete.others", "ws.delete.sequence", "agent.config.merged", "ws.port.get")
@requirement("ws.endpoint.stop")
async def test_f06_three_agents_get_their_own_results_while_one_deletes_its_workspace(
    tmp_path: Path,
) -> None:
    app, other = make_repository(tmp_path / "app"), make_repository(tmp_path / "日本")
    places = {"red": app, "green": app, "blue": other}
    config = Path(os.environ["HOME"]) / ".config" / "opencode" / "opencode.json"
    async with start_system(script(), app, other) as system:
        written = config.read_bytes()
        each = [system.create(colour, f"You are {colour}.", place.name) for colour, place in places.items()]
        made = dict(zip(places, await asyncio.gather(*each), strict=True))
        assert "日本" in made["blue"]["path"]
        for number, _ in enumerate(COLOURS, 1):
            await step(system, number, 2)
        there = await system.workspaces()
        assert all(is_ready(one) for one in there.values())
        ports = {colour: there[colour]["agent"]["port"] for colour in COLOURS}
        assert len(set(ports.values())) == 3

        system.model.release("all are there")
        for number, colour in enumerate(COLOURS, 1):
            status, metadata, port = told(await step(system, number, 3))
            assert status["isDirty"] is False
            assert status["agent"] == {"type": "busy", "counts": {"idle": 0, "busy": 1, "total": 1}}
            assert metadata == {"base": "main", "colour": colour}
            assert port == ports[colour]

        system.model.release("red goes")
        await is_gone(system, made["red"], there["red"])
        assert "red" not in branches(app)
        after = await system.workspaces()
        assert set(after) == {"green", "blue"}
        for colour in after:
            assert after[colour]["agent"] == there[colour]["agent"]
            assert after[colour]["status"]["agent"]["type"] == "busy"
            assert git(Path(made[colour]["path"]), "status", "--porcelain", "--ignored") == ""

        system.model.release("red is gone")
        for number, colour in enumerate(COLOURS[1:], 2):
            status, metadata, port = told(await step(system, number, 5))
            assert (status["isDirty"], metadata["colour"], port) == (True, colour, ports[colour])
            await is_gone(system, made[colour], there[colour])
            assert colour in branches(places[colour])
            assert colour not in git(places[colour], "worktree", "list")
        assert system.model.requests.unforeseen == []
        assert config.read_bytes() == written
        assert {one["name"] for one in await system.rest("GET", "/api/trash")} == set(COLOURS)

        # The turn that deleted its own workspace was ended with it, which is not to be taken up again.
        await system.rest("POST", "/api/trash/red/restore")
        await system.rest("POST", f"{place_of(made['red'])}/agent/start")
        back = await system.until(made["red"], lambda one: one["status"]["agent"]["counts"]["total"])
        assert (back["status"]["agent"]["type"], back["attention"]) == ("idle", [])


async def step(system: FullSystem, conversation: int, number: int) -> LoggedRequest:
    return await system.asked(lambda one: (one.conversation, one.step) == (conversation, number))


def told(record: LoggedRequest) -> Sequence[Any]:
    return [json.loads(result) for result in record.results]


async def is_gone(system: FullSystem, made: Shown, was: Shown) -> None:
    """Neither process nor port nor folder is there any more, and the trash has what was in it."""
    name, process = made["name"], was["agent"]
    await system.until_all(lambda found: name not in found)
    assert process["pid"] and process["port"] and was["mcp"]["server_running"]
    wait_dead(process["pid"])
    assert not is_port_taken(process["port"])
    assert not listens(system.daemon.pid, was["mcp"]["port"])
    assert not Path(made["path"]).exists()
    (kept,) = [one for one in await system.rest("GET", "/api/trash") if one["name"] == name]
    assert (system.daemon.state / "trash" / kept["id"] / "README").read_text() == "one\n"
