"""The example of the guide works as the guide describes."""

import re
from pathlib import Path

import pytest

from rookery.plugins.api import HOOKS
from rookery.plugins.load import from_text, load_plugin
from rookery.plugins.registry import PluginKey, PluginOrigin
from tests.support.plugins.registry import idle, make_call_event, start_registry
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "plugins.md").read_text(encoding="utf-8")


@requirement("plugin.hook.registry")
async def test_the_example_counts_turns_notes_some_and_gives_searches_a_limit(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    origin = PluginOrigin(".rookery/plugins/turns.py", "app-1")
    async with start_registry(tmp_path, settings={"turns": {"every": 2}}) as registry:
        key = await registry.add(await load_plugin(from_text("turns", example, origin)), origin)
        running = registry.visible_to(None)[key]
        for session in ("ses_1", "ses_2", "ses_1"):
            registry.publish(idle(session))
        registry.publish(idle("ses_1", found=True))
        registry.publish(idle("ses_3", parent="ses_1"))
        await running.wait_until_drained()
        assert await running.state(None) == {"turns": {"ses_1": 2, "ses_2": 1}, "all": 3}
        noted = (tmp_path / "projects" / "app-1" / "plugins" / "turns" / "audit.log").read_text()
        assert noted.endswith("Z ses_1 has finished 2 turns\n")
        for tool, given, wanted in (
            ("search", {"for": "x"}, {"for": "x", "limit": 20}),
            ("search", {"limit": 5}, {"limit": 5}),
            ("read", {}, {}),
        ):
            call = make_call_event(tool=tool, arguments=given, project="app-1")
            assert (await registry.apply_call_hooks(call)).arguments == wanted
        assert await running.trigger(running.plugin.actions["reset"], {}, None) == {"removed": 3}
        shown = await registry.describe(PluginKey("app-1", "turns"), None)
        assert shown is not None and (shown.failures, shown.state) == (0, ("turns", "all"))


def test_the_guide_names_every_hook_with_its_event() -> None:
    rows = re.findall(r"^\| (`[a-z.]+`(?:, `[a-z.]+`)*) \| `(\w+)` \|", GUIDE, re.MULTILINE)
    told = {hook: event for hooks, event in rows for hook in re.findall(r"`([a-z.]+)`", hooks)}
    assert told == {hook: event.__name__ for hook, event in HOOKS.items()}
