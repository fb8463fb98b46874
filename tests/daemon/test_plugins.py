"""Plugins of a project: those that came with it run, and no other before it is approved."""

import pytest

from rookery.system.ids import project_id
from tests.support.project_plugins import a_project, approve, in_plugins, listed, ran, source, until_only
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("plugin.list.all", "guard.approve.plugins", "plugin.hook.registry")
async def test_those_that_came_with_the_project_run_and_whatever_comes_later_waits_and_is_not_even_imported() -> None:
    broken = "import not_there_at_all\n"
    first = {in_plugins("notify.py"): source(), in_plugins("broken.py"): broken, in_plugins("_shared.py"): source("no")}
    async with a_project(first) as (gateway, app):
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
async def test_what_was_loaded_runs_on_until_other_content_of_its_file_is_approved_or_it_is_revoked() -> None:
    async with a_project({in_plugins("notify.py"): source()}) as (gateway, app):
        asked = gateway.parts.plugins.plugins
        (app / in_plugins("notify.py")).write_text(source(version="2.0"))
        found = await listed(gateway)
        assert "runs on until the new content is approved" in found["notify loaded"]["note"]
        assert "other content of it runs" in found["notify needs_approval"]["note"]
        assert await asked.state("notify", "version", None) == "1.0" and ran() == ["notify-1.0"]
        await approve(gateway, "notify.py")
        assert await asked.state("notify", "version", None) == "2.0"
        found = await listed(gateway)
        assert {*found} == {"boulder loaded", "notify loaded"} and found["notify loaded"]["note"] is None
        (app / in_plugins("notify.py")).unlink()
        assert "its file is gone" in (await listed(gateway))["notify loaded"]["note"]
        key = (await gateway.approvals.list())[-1].key
        assert await gateway.approvals.revoke(key)
        await gateway.parts._decided(key)
        assert {*await listed(gateway)} == {"boulder loaded"}


@requirement("guard.approve.plugins")
async def test_c23_what_runs_is_the_text_that_was_approved_and_what_agents_write_does_not_count() -> None:
    swap = f"pathlib.Path(__file__).with_name('b.py').write_text({source('b', 'evil')!r})\n"
    files = {in_plugins("a.py"): source("a", more=swap), in_plugins("b.py"): source("b")}
    async with a_project(files) as (gateway, app):
        # The first one has written another second one before that was run.
        assert ran() == ["a-1.0", "b-1.0"]
        assert {*await listed(gateway)} == {"boulder loaded", "a loaded", "b loaded", "b needs_approval"}
        tools = gateway.parts.workspaces.tools
        made = await tools.create(await tools.project(None), "fix", wait=True)
        (made.path / in_plugins("agents.py")).write_text(source("agents"))
        assert "agents" not in " ".join(await listed(gateway))
        assert [one.name for one in await gateway.parts.plugin_files.waiting()] == ["a.py", "b.py"]
        # It is the project's there as well, and another project's workspace knows nothing of it.
        assert [one.name for one in await gateway.parts.plugins.plugins.list(made.path)] == ["boulder", "a", "b", "b"]
        await gateway.parts.projects.remove(project_id(app))
        await until_only(gateway, "boulder loaded")
