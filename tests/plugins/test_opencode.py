"""OpenCode's own plugins, from its config and its log."""

from rookery.plugins.opencode import (
    describe_running,
    describe_sleeping,
    describe_unapproved,
    list_named,
    read_load_errors,
)
from tests.support.requirements import requirement

FILE = "file:///work/app/.opencode/plugin/broken.js"
# As OpenCode prints them.
_AT = "timestamp=2026-11-16T11:01:14.107Z"
_FAILED = f'{_AT} level=ERROR run=65a17161 message="failed to load plugin"'
LOG = [
    f"{_AT} level=INFO run=65a17161 message=loading path=/home/me/.config/opencode/config.json",
    f'{_AT} level=INFO run=65a17161 message="creating instance" directory=/work/app',
    f'{_FAILED} path={FILE} error="no \\"luck\\""',
    f'{_FAILED} path="file:///a b.js" error=why',
    f"{_AT} level=INFO run=65a17161 message=init",
]


@requirement("plugin.list.all")
def test_a_config_names_files_and_packages_some_with_options() -> None:
    config = {"plugin": [FILE, "oh-my-opencode@4.19.4", ["@scope/own@1.0", {"a": 1}], "bare", 7, []], "theme": "x"}
    found = [describe_running(one, "/work/app", {}) for one in list_named(config)]
    assert [(one.name, one.version) for one in found] == [
        ("broken", None),
        ("oh-my-opencode", "4.19.4"),
        ("@scope/own", "1.0"),
        ("bare", None),
    ]
    # OpenCode names a plugin whether or not its import failed.
    assert {(one.status, one.error, one.kind, one.workspace) for one in found} == {
        ("unknown", None, "opencode", "/work/app")
    }
    assert list_named({}) == list_named({"plugin": "text"}) == []


@requirement("plugin.list.all")
def test_one_that_failed_by_opencodes_own_word_is_told_with_that() -> None:
    errors = read_load_errors(LOG, "/work/app")
    assert errors == {FILE: 'no "luck"', "file:///a b.js": "why"}
    told = describe_running(FILE, "/work/app", errors)
    assert (told.name, told.status, told.error) == ("broken", "failed", 'no "luck"')


def test_load_errors_before_a_reload_of_the_folder_or_of_other_folders_are_ignored() -> None:
    again = LOG[1]
    assert read_load_errors([*LOG, again], "/work/app") == {}
    elsewhere = again.replace("/work/app", "/work/other")
    assert read_load_errors([*LOG, elsewhere], "/work/app").keys() == {FILE, "file:///a b.js"}


def test_files_of_a_workspace_are_told_though_no_agent_names_them() -> None:
    waits, sleeps = describe_unapproved(FILE, "/work/app"), describe_sleeping(FILE, "/work/app")
    assert (waits.status, waits.name) == ("needs_approval", "broken")
    assert "rookery guard approve opencode-config" in (waits.note or "")
    assert (sleeps.status, sleeps.note) == ("unknown", "the agent does not run")
