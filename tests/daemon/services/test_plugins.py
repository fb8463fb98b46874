"""Plugins of a project: those present when it was added run, and others only after approval."""

from pathlib import Path

import pytest

from rookery.daemon.settings.layers import load_layers
from rookery.system.ids import project_id
from tests.support.plugins.project import approve, in_plugins, listed, ran, source, start_project, until_only
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("plugin.list.all", "guard.approve.plugins", "plugin.hook.registry")
async def test_plugins_present_when_a_project_is_added_run_and_later_ones_need_approval() -> None:
    broken = "import not_there_at_all\n"
    first = {in_plugins("notify.py"): source(), in_plugins("broken.py"): broken, in_plugins("_shared.py"): source("no")}
    async with start_project(first) as (gateway, app):
        assert ran() == ["notify-1.0"]
        (app / in_plugins("evil.py")).write_text(source("evil"))
        (app / in_plugins("link.py")).symlink_to(app / in_plugins("evil.py"))
        (app / in_plugins("bytes.py")).write_bytes(b"\xff\xfe")
        found = await listed(gateway)
        assert {*found} == {
            "boulder loaded",
            "notify loaded",
            "broken failed",
            "evil needs_approval",
            "link needs_approval",
            "bytes needs_approval",
        }
        notify = found["notify loaded"]
        assert (notify["kind"], notify["version"], notify["project"]) == ("rookery", "1.0", project_id(app))
        assert (notify["origin"], notify["state"]) == (str(app / in_plugins("notify.py")), ["version", "scope"])
        assert found["boulder loaded"]["origin"] == "built in"
        assert "No module named 'not_there_at_all'" in found["broken failed"]["error"]
        assert found["evil needs_approval"]["note"] == "rookery guard approve evil.py"
        assert "symbolic link" in found["link needs_approval"]["note"]
        assert "UTF-8" in found["bytes needs_approval"]["note"]
        assert ran() == ["notify-1.0"]
        await approve(gateway, "evil.py")
        assert "evil loaded" in await listed(gateway)
        assert ran() == ["evil-1.0", "notify-1.0"]


@requirement("guard.approve.plugins")
async def test_a_loaded_plugin_runs_until_new_content_is_approved_or_it_is_revoked() -> None:
    async with start_project({in_plugins("notify.py"): source()}) as (gateway, app):
        asked = gateway.parts.plugins.plugins
        (app / in_plugins("notify.py")).write_text(source(version="2.0"))
        found = await listed(gateway)
        assert "runs until the new content is approved" in found["notify loaded"]["note"]
        assert "an earlier version of it runs" in found["notify needs_approval"]["note"]
        assert await asked.state("notify", "version", None) == "1.0" and ran() == ["notify-1.0"]
        await approve(gateway, "notify.py")
        assert await asked.state("notify", "version", None) == "2.0"
        found = await listed(gateway)
        assert {*found} == {"boulder loaded", "notify loaded"} and found["notify loaded"]["note"] is None
        (app / in_plugins("notify.py")).unlink()
        assert "its file was deleted" in (await listed(gateway))["notify loaded"]["note"]
        key = (await gateway.approvals.list())[-1].key
        assert await gateway.approvals.revoke(key)
        await gateway.parts._on_decision(key)
        assert {*await listed(gateway)} == {"boulder loaded"}


@requirement("guard.approve.plugins")
async def test_c23_only_approved_text_runs_and_plugins_that_agents_write_are_ignored() -> None:
    swap = f"pathlib.Path(__file__).with_name('b.py').write_text({source('b', 'evil')!r})\n"
    files = {in_plugins("a.py"): source("a", more=swap), in_plugins("b.py"): source("b")}
    async with start_project(files) as (gateway, app):
        # The first one has written another second one before that was run.
        assert ran() == ["a-1.0", "b-1.0"]
        assert {*await listed(gateway)} == {"boulder loaded", "a loaded", "b loaded", "b needs_approval"}
        tools = gateway.parts.workspaces.tools
        made = await tools.create(await tools.resolve_project(None), "fix", wait=True)
        (made.path / in_plugins("agents.py")).write_text(source("agents"))
        assert "agents" not in " ".join(await listed(gateway))
        assert [one.name for one in await gateway.parts.plugin_files.list_subjects()] == ["a.py", "b.py"]
        # It is the project's there as well, and another project's workspace knows nothing of it.
        assert [one.name for one in await gateway.parts.plugins.plugins.list(made.path)] == ["boulder", "a", "b", "b"]
        await gateway.parts.projects.remove(project_id(app))
        await until_only(gateway, "boulder loaded")
        told = [(one["plugin"], one["project"]) for one in gateway.events.of("plugin.ended")]
        assert sorted(told) == [("a", project_id(app)), ("b", project_id(app))]


@requirement("plugin.list.all", "plugin.hook.registry")
async def test_plugins_of_packages_load_for_every_project_and_one_failure_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed_one.py").write_text(source("installed"))
    (tmp_path / "installed_two.py").write_text("import sys\nsys.exit()\n")
    about = tmp_path / "some_plugins-2.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugins\nVersion: 2.1\n")
    names = "exits = installed_two:plugin\ninstalled = installed_one:plugin\nagain = installed_one:plugin\n"
    (about / "entry_points.txt").write_text(f"[rookery.plugins]\n{names}")
    monkeypatch.syspath_prepend(tmp_path)
    # A project cannot take the place of what is everybody's.
    async with start_project({in_plugins("own.py"): source("installed", "9.9")}) as (gateway, _):
        found = await listed(gateway)
        assert {*found} == {"boulder loaded", "installed loaded", "exits failed", "installed failed", "own failed"}
        assert (found["installed loaded"]["origin"], found["installed loaded"]["project"]) == (
            "package some-plugins 2.1",
            None,
        )
        assert "SystemExit" in found["exits failed"]["error"]
        assert "another plugin has the name installed" in found["own failed"]["error"]
        assert [one["plugin"] for one in gateway.events.of("plugin.loaded")] == ["boulder", "installed"]
        assert {one["plugin"] for one in gateway.events.of("plugin.failed")} == {"exits", "installed", "own"}


def test_a_plugin_receives_its_table_of_user_settings_but_none_of_a_project(tmp_path: Path) -> None:
    user, project = tmp_path / "user", tmp_path / "app"
    for folder in (user, project / ".rookery"):
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f'[plugins.notify]\nwho = "{folder.parent.name}"\n[hooks]\nqueue = 7\n')
    found = load_layers(user, project=project)
    assert found.settings().plugins == {"notify": {"who": tmp_path.name}} and found.settings().hooks.queue == 7
    assert [one.message for one in found.problems] == [
        "plugins cannot be set by a project, only by its user",
        "hooks.queue cannot be set by a project, only by its user",
    ]
