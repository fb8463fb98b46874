"""Several plugins: their events, their own state, and their actions."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rookery.plugins import House, Plugin, RookeryError, SessionEvent
from rookery.plugins.records import PluginShown, PluginState
from rookery.plugins.registry import PluginKey, PluginOrigin, PluginRegistry
from rookery.plugins.service import Plugins
from rookery.sessions.service import Sessions
from tests.support.plugins.registry import BUILT_IN, HookRecorder, idle, start_registry
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

APP = Path("/work/app")


class Say(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    times: int = 1


def a_plugin(name: str = "notify") -> Plugin:
    plugin = Plugin(name, version="1.0", description="Says things.")
    said: list[str] = []

    @plugin.action("say", description="Say it.", takes=Say)
    async def _(args: Say, house: House) -> Any:
        said.extend([args.text] * args.times)
        return {"said": len(said)}

    @plugin.action("whisper", scoped=True)
    def _(args: Mapping[str, Any], house: House) -> Any:
        return [str(house.scope), dict(args)]

    @plugin.action("refuse")
    async def _(args: Mapping[str, Any], house: House) -> None:
        raise RookeryError("invalid-input", "that is not said", "say something else")

    @plugin.action("fail")
    def _(args: Mapping[str, Any], house: House) -> Any:
        return threading.Lock()

    @plugin.state
    def _(house: House) -> Mapping[str, Any]:
        return {"said": said, "scope": str(house.scope), "loud": house.settings.get("loud", False)}

    return plugin


class Nowhere:
    """All workspaces are of the project `app-1`, and nothing else is there."""

    kept: tuple[PluginState, ...] = ()

    async def wait_until_ready(self) -> None: ...

    async def project_of(self, scope: Path) -> str | None:
        return "app-1"

    async def notes(self) -> Mapping[PluginKey, str]:
        return {}

    async def list_not_running(self, scope: Path | None) -> list[PluginShown]:
        return []

    async def list_state_files(self, scope: Path | None) -> tuple[PluginState, ...]:
        return self.kept


class OneSession:
    """`ses_mine` is in the workspace that is asked for, and no other."""

    async def get(self, id_: str, scope: Path | None = None) -> str:
        if id_ != "ses_mine":
            raise RookeryError("session-not-found", f"there is no session {id_!r}")
        return id_


def service(registry: PluginRegistry, *kept: PluginState) -> Plugins:
    nowhere = Nowhere()
    nowhere.kept = kept
    return Plugins(registry, nowhere, cast(Sessions, OneSession()))


@requirement("plugin.hook.registry")
async def test_a_plugin_of_a_project_hears_of_that_project_and_one_of_everybodys_of_all(tmp_path: Path) -> None:
    theirs, everybodys, heard = Plugin("theirs"), Plugin("everybodys"), HookRecorder()
    for plugin in (theirs, everybodys):

        @plugin.on("session.idle")
        async def _(event: SessionEvent, house: House) -> None:
            heard.take((house.plugin, event.project))

    async with start_registry(tmp_path, everybodys) as registry:
        await registry.add(theirs, PluginOrigin("a file", "app-1"))
        assert registry.wants("session.idle") and not registry.wants("toast.shown", "tool.execute.before")
        registry.publish(idle(project="app-1"))
        registry.publish(idle(project="app-2"))
        await heard.has(3)
    assert sorted(heard) == [("everybodys", "app-1"), ("everybodys", "app-2"), ("theirs", "app-1")]


async def test_each_has_a_folder_settings_and_lines_for_its_user_of_its_own(tmp_path: Path) -> None:
    houses: dict[str, House] = {}
    plugins = [Plugin("notify"), Plugin("other")]
    for plugin in plugins:

        @plugin.start
        def _(house: House) -> None:
            houses[house.plugin] = house

    async with start_registry(tmp_path, settings={"notify": {"loud": True}}) as registry:
        await registry.add(plugins[0], BUILT_IN)
        await registry.add(plugins[1], PluginOrigin("a file", "app-1"))
        assert houses["notify"].state_folder == tmp_path / "plugins" / "notify"
        assert houses["other"].state_folder == tmp_path / "projects" / "app-1" / "plugins" / "other"
        assert all(one.state_folder.stat().st_mode & 0o777 == 0o700 for one in houses.values())
        assert (houses["notify"].settings, houses["other"].settings) == ({"loud": True}, {})
        houses["notify"].audit("told\nthe user")
        log = houses["notify"].state_folder / "audit.log"
        assert log.read_text() == "1970-01-01T00:00:00.000Z told the user\n"
        assert log.stat().st_mode & 0o777 == 0o600
        (tmp_path / "projects" / "app-2").write_text("no folder")
        with pytest.raises(RookeryError) as caught:
            await registry.add(Plugin("notify-2"), PluginOrigin("a file", "app-2"))
        assert caught.value.code == "state-unusable" and "app-2" in caught.value.message


async def test_a_name_is_had_once_by_everybodys_and_once_by_each_project(tmp_path: Path) -> None:
    async with start_registry(tmp_path, a_plugin()) as registry:
        for origin in (BUILT_IN, PluginOrigin("a file", "app-1")):
            with pytest.raises(RookeryError, match="another plugin has the name notify"):
                await registry.add(a_plugin(), origin)
        for project in ("app-1", "app-2"):
            await registry.add(a_plugin("own"), PluginOrigin("a file", project))
        asked = service(registry)
        with pytest.raises(RookeryError, match="own is ambiguous") as caught:
            await asked.state("own", None, None)
        assert caught.value.remedy == "there are: app-1/own; app-2/own"
        assert (await asked.state("app-2/own", "scope", None)) == "None"
        # Whoever sees one project has only that one.
        assert (await asked.state("own", "scope", APP)) == str(APP)
        assert [one.project for one in await asked.list(APP)] == [None, "app-1"]


@requirement("plugin.state.get")
async def test_the_state_of_one_or_of_all_whole_or_one_key_of_it(tmp_path: Path) -> None:
    silent, wrong = Plugin("silent"), Plugin("wrong")

    @wrong.state
    def _(house: House) -> Any:
        return ["no", "mapping"]

    kept = PluginState(plugin="omo", workspace=str(APP), state={"iteration": 3})
    broken = PluginState(plugin="nexus", workspace=str(APP), error="no JSON")
    async with start_registry(tmp_path, a_plugin(), silent, wrong) as registry:
        asked = service(registry, kept, broken)
        assert await asked.state("notify", None, APP) == {"said": [], "scope": str(APP), "loud": False}
        assert await asked.state("notify", "said", None) == []
        assert await asked.state("silent", None, None) == {}
        assert await asked.state("omo", "iteration", None) == 3
        assert await asked.state("omo", None, None, str(APP)) == {"iteration": 3}
        every = await asked.states(None, None)
        assert [(one.plugin, one.error is None) for one in every] == [
            ("notify", True),
            ("wrong", False),
            ("omo", True),
            ("nexus", False),
        ]
        (only,) = await asked.states("iteration", None)
        assert (only.plugin, only.state) == ("omo", 3)
        for name, key, code, said in (
            ("notify", "volume", "invalid-input", "there are: said; scope; loud"),
            ("omo", "volume", "invalid-input", "there are: iteration"),
            ("none", None, "plugin-not-found", "there are: notify; silent; wrong; omo; nexus"),
        ):
            with pytest.raises(RookeryError) as caught:
                await asked.state(name, key, None)
            assert (caught.value.code, caught.value.remedy) == (code, said)
        with pytest.raises(RookeryError, match="no plugin has 'volume'"):
            await asked.states("volume", None)
        for name in ("wrong", "nexus"):
            with pytest.raises(RookeryError) as caught:
                await asked.state(name, None, None)
            assert caught.value.code == "plugin-failed"


async def test_a_state_that_several_workspaces_have_is_that_of_the_one_that_is_named(tmp_path: Path) -> None:
    kept = [PluginState(plugin="omo", workspace=path, state={"at": path}) for path in ("/a", "/b")]
    async with start_registry(tmp_path) as registry:
        asked = service(registry, *kept)
        with pytest.raises(RookeryError, match="several workspaces") as caught:
            await asked.state("omo", None, None)
        assert caught.value.remedy == "there are: /a; /b"
        assert await asked.state("omo", "at", None, "/b") == "/b"
        with pytest.raises(RookeryError, match="no state in that workspace"):
            await asked.state("omo", "at", None, "/c")


@requirement("plugin.action.trigger")
async def test_an_action_is_run_with_arguments_that_fit_and_answers_its_result(tmp_path: Path) -> None:
    async with start_registry(tmp_path, a_plugin(), Plugin("idle")) as registry:
        asked = service(registry)
        assert await asked.trigger("notify", "say", {"text": "hello", "times": 2}, None) == {"said": 2}
        assert await asked.trigger("notify", "whisper", {"a": 1}, None) == ["None", {"a": 1}]
        offers = "there are: notify: say, whisper, refuse, fail; idle: no actions"
        for name, action, args, code, remedy in (
            (None, None, {}, "invalid-input", offers),
            ("none", "say", {}, "plugin-not-found", offers),
            ("notify", None, {}, "invalid-input", "there are: notify: say, whisper, refuse, fail"),
            ("idle", "say", {}, "invalid-input", "there are: idle: no actions"),
            ("notify", "say", {"txt": "hello"}, "invalid-input", "it takes: text, times"),
            ("notify", "refuse", {}, "invalid-input", "say something else"),
            ("notify", "fail", {}, "plugin-failed", ""),
        ):
            with pytest.raises(RookeryError) as caught:
                await asked.trigger(name, action, args, None)
            assert (caught.value.code, caught.value.remedy) == (code, remedy)
        (found, _) = await asked.list()
        # To refuse is no failure.
        assert found.failures == 1 and "action fail" in (found.error or "")
        assert [(one.name, one.owner_only) for one in found.actions][:2] == [("say", True), ("whisper", False)]
        assert found.actions[0].args is not None and found.state == ("said", "scope", "loud")


@requirement("plugin.action.trigger")
async def test_a_workspace_scope_can_run_scoped_actions_on_its_own_sessions_only(tmp_path: Path) -> None:
    async with start_registry(tmp_path, a_plugin()) as registry:
        asked = service(registry)
        assert await asked.trigger("notify", "whisper", {"sessionId": "ses_mine"}, APP) == [
            str(APP),
            {"sessionId": "ses_mine"},
        ]
        for action, args, scope, code in (
            ("say", {"text": "hello"}, APP, "forbidden"),
            ("whisper", {"sessionId": "ses_other"}, APP, "session-not-found"),
        ):
            with pytest.raises(RookeryError) as caught:
                await asked.trigger("notify", action, args, scope)
            assert caught.value.code == code
        assert await asked.state("notify", "said", None) == []
