"""The declarations of a plugin, and those that are refused at once."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from rookery.plugins import House, Plugin, RookeryError, SessionEvent
from rookery.plugins.api import HOOKS
from tests.support.requirements import requirement


@requirement("plugin.hook.registry")
def test_an_unknown_hook_fails_at_once_and_the_error_lists_the_nearest_and_all() -> None:
    plugin = Plugin("notify")
    with pytest.raises(RookeryError) as caught:
        plugin.on("session.idel")
    assert "did you mean 'session.idle'?" in caught.value.message
    assert set(caught.value.details) == set(HOOKS)
    assert not plugin.hooks


def test_a_plugin_holds_what_was_given_to_it_and_leaves_the_functions_as_they_are() -> None:
    plugin = Plugin("notify", version="1.0", description="Says so.")

    @plugin.on("session.idle")
    @plugin.on("session.error")
    async def told(event: SessionEvent, house: House) -> None: ...

    @plugin.action("reset", description="Begin anew.")
    def reset(args: Mapping[str, Any], house: House) -> None: ...

    @plugin.state
    def state(house: House) -> Mapping[str, Any]:
        return {}

    assert [(one.name, one.run) for one in plugin.hooks] == [("session.error", told), ("session.idle", told)]
    assert plugin.actions["reset"].run is reset
    assert plugin.state_function is state
    assert plugin.start_function is plugin.stop_function is None


@pytest.mark.parametrize("name", ["", "Notify", "9lives", "a b", "state_files", "a/b", "-a", "a" * 65])
def test_a_name_that_could_not_be_typed_or_kept_in_a_file_is_refused(name: str) -> None:
    with pytest.raises(RookeryError, match="is not a valid name for"):
        Plugin(name)


class Untold(msgspec.Struct):
    """What no schema can be made of."""

    lock: type[object]


def test_what_could_not_be_shown_to_anybody_is_refused_when_it_is_written() -> None:
    wrong: Any = 1.0
    with pytest.raises(RookeryError, match="version and description must be strings"):
        Plugin("notify", version=wrong)
    with pytest.raises(TypeError, match="Generating JSON schema"):
        Plugin("notify").action("reset", takes=Untold)


def _give(plugin: Plugin, what: str) -> None:
    if what == "action":
        plugin.action("reset")(print)
    else:
        getattr(plugin, what)(print)


@pytest.mark.parametrize("what", ["action", "state", "start", "stop"])
def test_what_there_can_be_one_of_is_refused_the_second_time(what: str) -> None:
    plugin = Plugin("notify")
    _give(plugin, what)
    with pytest.raises(RookeryError, match="two"):
        _give(plugin, what)
