"""The first prompt of a workspace is sent exactly once, even if its agent or the daemon restarts meanwhile."""

import asyncio
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from rookery.agents import first_prompt
from rookery.agents.opencode.api import ApiConnection
from rookery.agents.policy import SupervisionIntervals
from rookery.agents.status import CONTINUE_PROMPT
from rookery.workspaces.model import Workspace
from tests.support.agents.host import AgentHost, start_agent_host
from tests.support.agents.watcher import make_script
from tests.support.daemon.events import Reader
from tests.support.daemon.process import wait_dead
from tests.support.daemon.system import LIMIT, FullSystem, Shown, place_of, start_system
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

SCRIPT = make_script(hello=[{"say": "hello yourself"}])
ANSWER = {"step": [{"say": "hello yourself"}]}
PROMPTED = {"conversation": [{"when": "hello", "turn": [ANSWER, ANSWER]}]}


def asked(host: AgentHost) -> int:
    """How often the model was asked to answer the prompt."""
    return sum(one.kind == "step" and one.user == "hello" for one in host.model.requests)


async def sent_once(host: AgentHost, made: Workspace) -> None:
    """That the prompt was answered, and that there is no other trace of it."""
    session = await host.said(made, "hello yourself")
    life = await host.agents.ensure_running(made)
    said = await life.client.messages(session)
    assert [one.text for one in said if one.info.role == "user"] == ["hello"]
    assert asked(host) == 1
    assert [one.id for one in await life.client.sessions()] == [session]
    assert (await host.agents.process(made)).attention == ()
    kept = host.agents.agents[made.path].git_folder / "rookery"
    assert not list(kept.glob("first-prompt*"))


def at_step(monkeypatch: pytest.MonkeyPatch, name: str, do: Callable[[], None]) -> None:
    """Do something the first time that a prompt on its way passes this step."""
    done: list[str] = []

    async def step(passed: str) -> None:
        if passed == name and not done:
            done.append(passed)
            do()

    monkeypatch.setattr(first_prompt, "fault_point", step)


def stop_when_listening(reader: Reader, names: Collection[str]) -> dict[str, int]:
    """Stop the agents of these workspaces as soon as they listen; their process ids."""
    stopped: dict[str, int] = {}
    while stopped.keys() != set(names):
        data = reader.until("agent.state")["data"]
        if data["agent"]["pid"] is not None and data["name"] not in stopped:
            stopped[data["name"]] = data["agent"]["pid"]
            os.kill(data["agent"]["pid"], signal.SIGSTOP)
    return stopped


async def prompted_once(system: FullSystem, made: Shown, activity: str = "finished") -> None:
    """That the prompt was answered, and that there is no other trace of it."""
    await system.until(made, lambda now: now["activity"] == activity and not now["attention"])
    (session,) = [one for one in await system.rest("GET", "/api/sessions") if one["workspace"] == made["name"]]
    said = (await system.rest("GET", f"/api/sessions/{session['id']}/messages"))["messages"]
    assert [(one["role"], one["content"]) for one in said] == [("user", "hello"), ("assistant", "hello yourself")]
    assert_forgotten(made)


def assert_forgotten(made: Shown) -> None:
    kept = Path(git(Path(made["path"]), "rev-parse", "--absolute-git-dir").strip()) / "rookery"
    assert kept.is_dir() and not list(kept.glob("first-prompt*"))


@requirement("agent.prompt.sent")
async def test_an_unsent_prompt_is_sent_by_itself_also_over_a_kill_of_the_daemon(tmp_path: Path) -> None:
    """One agent answers again while the daemon runs, the other one is replaced after the daemon was killed."""
    app, settings = make_repository(tmp_path / "app"), {"ROOKERY_AGENTS_ANSWER_SECONDS": "4"}
    async with start_system(SCRIPT, app, settings=settings) as system:
        reader = Reader(system.daemon, "/api/events")
        stopping = asyncio.ensure_future(asyncio.to_thread(stop_when_listening, reader, ("same", "next")))
        asked = [{"name": name, "prompt": "hello"} for name in ("same", "next")]
        same, next_ = [await system.rest("POST", "/api/workspaces", one) for one in asked]
        async with asyncio.timeout(LIMIT):
            stopped = await stopping
        reader.close()
        for made in (same, next_):
            needy = await system.until(made, lambda now: [n["reason"] for n in now["attention"]] == ["prompt-not-sent"])
            assert needy["activity"] == "queued" and "did not respond" in needy["attention"][0]["text"]
        os.kill(stopped["same"], signal.SIGCONT)
        await prompted_once(system, same)
        assert (await system.show(next_))["activity"] == "queued"
        await system.killed()
        await system.start_again()
        # A wait may begin before the prompt has made the session. Its end counts as a look at the session.
        waited = await system.cli("session", "wait", "next", "--idle", "--timeout", "120", cwd=app)
        assert waited.returncode == 0, waited.stderr
        await prompted_once(system, next_, "idle")
        assert sum(one.kind == "step" for one in system.model.requests) == 2


@requirement("agent.prompt.sent")
async def test_a_prompt_that_lies_in_the_socket_of_a_stopped_agent_is_sent_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with start_agent_host(SCRIPT, make_repository(Path.home() / "src" / "app")) as host:
        made = await host.create_only("task", prompt="hello")
        links = list[ApiConnection]()

        def stop() -> None:
            life = host.agents.agents[made.path].supervisor.run
            assert life is not None
            links.append(life.client.connection)
            # Nobody waits for long for one that is known not to answer.
            links[0].response_seconds = 2.0
            os.kill(life.process.pid, signal.SIGSTOP)

        at_step(monkeypatch, "prompt.session", stop)
        needy = await host.until(made, lambda agent: [one.reason for one in agent.attention] == ["prompt-not-sent"])
        assert needy.pid is not None
        links[0].response_seconds = LIMIT
        os.kill(needy.pid, signal.SIGCONT)
        await host.until(made, lambda agent: not agent.attention)
        await sent_once(host, made)


@requirement("agent.prompt.sent")
async def test_a_prompt_is_sent_to_the_next_process_if_its_agent_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_agent_host(
        SCRIPT, make_repository(Path.home() / "src" / "app"), pace=SupervisionIntervals(first_pause=0.1)
    ) as host:
        made = await host.create_only("task", prompt="hello")
        killed: list[int] = []

        def kill() -> None:
            killed.append(host.agents.agents[made.path].info().pid or 0)
            os.kill(killed[0], signal.SIGKILL)

        at_step(monkeypatch, "prompt.session", kill)
        again = await host.until(made, lambda agent: killed and agent.pid not in (None, *killed))
        assert again.state == "running"
        await sent_once(host, made)


@requirement("agent.prompt.sent")
async def test_a_prompt_is_sent_exactly_once_over_two_kills_of_the_daemon(tmp_path: Path) -> None:
    """The first when its session was made, the second when OpenCode had accepted it."""
    app = make_repository(tmp_path / "app")
    async with start_system(PROMPTED, app, settings={"ROOKERY_FAULT": "prompt.session"}) as system:
        made = await system.rest("POST", "/api/workspaces", {"name": "task", "prompt": "hello"})
        await asyncio.to_thread(wait_dead, system.daemon.pid, LIMIT)
        system.env["ROOKERY_FAULT"] = "prompt.accepted"
        await system.start_again()
        await asyncio.to_thread(wait_dead, system.daemon.pid, LIMIT)
        del system.env["ROOKERY_FAULT"]
        await system.start_again()
        shown = await system.until(made, lambda now: now["activity"] in ("finished", "waiting"))
        if shown["activity"] == "waiting":
            # OpenCode had begun to answer and was ended in the middle of that: this is said, and it is not sent again.
            assert [need["reason"] for need in shown["attention"]] == ["interrupted"]
            await system.rest("POST", f"{place_of(made)}/agent/resume")
            await system.until(made, lambda now: now["activity"] == "finished")
        (session,) = await system.rest("GET", "/api/sessions")
        said = (await system.rest("GET", f"/api/sessions/{session['id']}/messages"))["messages"]
        assert [one["content"] for one in said if one["role"] == "user" and one["content"] != CONTINUE_PROMPT] == [
            "hello"
        ]
        assert said[-1]["content"] == "hello yourself"
        assert_forgotten(made)


def unknown_to_us(*about: object) -> bool:
    """The provider of the test stands in a config, which would be found."""
    return False


@requirement("agent.prompt.sent")
async def test_that_no_model_will_answer_is_said_before_the_agent_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is signed in, and the models that are for everybody are out of reach.
    monkeypatch.setattr(first_prompt, "FREE_ADDRESS", "http://127.0.0.1:9/v1")
    monkeypatch.setattr(first_prompt, "may_have_provider", unknown_to_us)
    async with start_agent_host(SCRIPT, make_repository(Path.home() / "src" / "app")) as host:
        made = await host.create_only("task", prompt="hello")
        needy = await host.until(made, lambda agent: agent.attention)
        assert (needy.state, needy.pid, needy.activity) == ("starting", None, "queued")
        assert [one.reason for one in needy.attention] == ["prompt-not-sent"]
        assert "no model provider is signed in" in needy.attention[0].text
        (told,) = host.gateway.events.of("agent.prompted")
        assert (told["session"], told["error"]["code"]) == (None, "no-provider")
        # OpenCode finds one all the same.
        await host.until(made, lambda agent: not agent.attention)
        await sent_once(host, made)
