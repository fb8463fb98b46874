"""Every format in which a server can be defined, and every error in a definition."""

import json
import time
from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import ConfigProblem, Definition, Dialect, ServerSandbox
from rookery.upstreams.config.dialects import ParsedFile, define_server, parse_file
from rookery.upstreams.config.jsonc import JsoncError
from rookery.upstreams.config.placeholders import Substitution
from rookery.wire.client.client import Timeouts
from tests.support.requirements import requirement

CONTAINER: dict[Dialect, str] = {
    "rookery": "servers",
    "dispatch": "servers",
    "opencode": "mcp",
    "claude": "mcpServers",
}


def parsed(text: str, dialect: Dialect) -> ParsedFile:
    return parse_file(text, "file", dialect, "user", Substitution(dialect, {}, str, show_files=True))


def all_of(entries: Any, dialect: Dialect = "opencode") -> ParsedFile:
    return parsed(json.dumps({CONTAINER[dialect]: entries}, indent=1), dialect)


def one(entry: Any, dialect: Dialect = "opencode") -> Definition:
    """The definition that an entry comes to, without a word about it."""
    found = all_of({"it": entry}, dialect)
    assert found.problems == []
    return found.definitions["it"]


def refused(entry: Any, dialect: Dialect = "opencode") -> ConfigProblem:
    """What is told about an entry that is left out, while the one beside it works."""
    found = all_of({"other": {"command": ["x"]}, "it": entry}, dialect)
    assert list(found.definitions) == ["other"]
    assert found.failed == {"it"}
    (problem,) = found.problems
    assert problem.file == "file"
    assert problem.server == "it"
    assert not problem.note
    return problem


def notes(entry: Any, dialect: Dialect = "opencode") -> list[str]:
    """What is told about an entry that works all the same."""
    found = all_of({"it": entry}, dialect)
    assert list(found.definitions) == ["it"]
    assert all(problem.note for problem in found.problems)
    return [f"{problem.line} {problem.message} {problem.remedy}".strip() for problem in found.problems]


@requirement("hub.config.local", "hub.config.dialects")
def test_a_local_server_of_opencode() -> None:
    found = one(
        {
            "type": "local",
            "command": ["npx", "-y", "server"],
            "cwd": "sub",
            "environment": {"KEY": "value"},
            "enabled": True,
            "timeout": 1500,
        }
    )
    assert (found.kind, found.command, found.cwd) == ("local", ("npx", "-y", "server"), "sub")
    assert (found.environment, found.enabled) == ({"KEY": "value"}, True)
    assert found.timeouts == Timeouts(30, 1.5, 300)
    assert (found.scope, found.inherit, found.framing) == ("workspace", False, "lines")


@requirement("hub.config.remote", "hub.config.dialects")
def test_a_remote_server_of_opencode() -> None:
    found = one({"type": "remote", "url": "https://a.example/mcp", "headers": {"X-Key": "k"}, "oauth": False})
    assert (found.kind, found.url, found.headers) == ("remote", "https://a.example/mcp", {"X-Key": "k"})
    assert (found.oauth, found.transport, found.scope) == (False, "auto", "app")
    assert one({"type": "remote", "url": "http://a", "oauth": {"clientId": "c"}}).oauth == {"clientId": "c"}
    assert one({"type": "remote", "url": "http://a"}).oauth is None


@requirement("hub.config.local", "hub.config.remote")
def test_what_must_be_there_is_asked_for() -> None:
    assert "neither a command nor a url" in refused({}).message
    assert "both a command and a url" in refused({"command": ["x"], "url": "http://a"}).message
    assert '"command" must be' in refused({"type": "local"}).message
    assert '"url" must be' in refused({"type": "remote"}).message


@requirement("hub.config.dispatch")
def test_a_server_of_dispatch() -> None:
    found = one({"command": "npx", "args": ["-y", "server"], "env": {"A": "b"}}, "dispatch")
    assert (found.kind, found.command, found.environment) == ("local", ("npx", "-y", "server"), {"A": "b"})


@requirement("hub.config.dialects")
def test_servers_of_claude() -> None:
    found = one({"command": "uvx", "args": ["it"], "env": {"A": "b"}, "cwd": "/tmp"}, "claude")
    assert (found.command, found.environment, found.cwd) == (("uvx", "it"), {"A": "b"}, "/tmp")
    for word, transport in [("http", "http"), ("streamable-http", "http"), ("sse", "sse")]:
        found = one({"type": word, "url": "https://a/mcp", "headers": {"A": "b"}}, "claude")
        assert (found.kind, found.transport, found.headers) == ("remote", transport, {"A": "b"})
    assert one({"type": "stdio", "command": "x"}, "claude").kind == "local"


@requirement("hub.config.dialects")
def test_servers_of_the_second_opencode_with_time_limits_for_all_of_them() -> None:
    entries = {
        "timeout": {"startup": 9000},
        "servers": {
            "a": {"type": "local", "command": ["a"], "disabled": True},
            "b": {"type": "remote", "url": "http://b", "timeout": {"catalog": 1000, "execution": 60000}},
        },
    }
    found = all_of(entries)
    assert found.problems == []
    assert not found.definitions["a"].enabled
    assert found.definitions["a"].timeouts == Timeouts(9, 5, 300)
    assert found.definitions["b"].timeouts == Timeouts(9, 1, 60)
    assert all_of({"timeout": 7000, "servers": entries["servers"]}).definitions["a"].timeouts.catalog == 7


@requirement("hub.config.dialects")
def test_a_server_that_is_called_servers_is_one() -> None:
    assert list(all_of({"servers": {"type": "local", "command": ["x"]}}).definitions) == ["servers"]
    mixed = all_of({"old": {"command": ["x"]}, "servers": {"new": {"command": ["y"]}}})
    assert sorted(mixed.definitions) == ["new", "old"]


@pytest.mark.parametrize("dialect", ["rookery", "opencode", "claude", "dispatch"])
def test_our_own_keys_are_understood_in_every_dialect(dialect: Dialect) -> None:
    ours = {
        "scope": "session",
        "framing": "content-length",
        "inherit": True,
        "exclusive": True,
        "roots": True,
        "calls": 4,
        "queue": 0,
        "idle": 0,
        "timeouts": {"startup": 1, "execution": 0.5},
    }
    found = one({"command": "x", **ours}, dialect)
    assert (found.scope, found.framing, found.inherit, found.exclusive) == ("session", "content-length", True, True)
    assert (found.calls, found.queue, found.idle_seconds, found.roots) == (4, 0, 0, True)
    assert found.timeouts == Timeouts(1, 5, 0.5)


@requirement("hub.config.timeout")
def test_the_time_limit_of_an_entry_bounds_the_listing_and_is_five_seconds_without() -> None:
    assert one({"command": ["x"]}).timeouts == Timeouts(30, 5, 300)
    assert one({"command": ["x"], "timeout": 250}).timeouts.catalog == 0.25
    # Claude's is for every request.
    assert one({"command": "x", "timeout": 9000}, "claude").timeouts == Timeouts(30, 9, 9)
    for wrong in (0, -1, True, "5", 86_400_001, {"start": 1}, {"catalog": "1"}, [5]):
        assert '"timeout" must be milliseconds' in refused({"command": ["x"], "timeout": wrong}).message


@requirement("hub.config.enabled")
@pytest.mark.parametrize("dialect", ["rookery", "opencode", "claude", "dispatch"])
def test_enabled_and_disabled_are_both_understood_and_must_agree(dialect: Dialect) -> None:
    assert one({"command": "x"}, dialect).enabled
    assert one({"command": "x", "enabled": True, "disabled": False}, dialect).enabled
    for off in ({"enabled": False}, {"disabled": True}, {"enabled": False, "disabled": True}):
        assert not one({"command": "x", **off}, dialect).enabled
    for torn in ({"enabled": True, "disabled": True}, {"enabled": False, "disabled": False}):
        assert "contradict" in refused({"command": "x", **torn}, dialect).message


@requirement("hub.config.enabled")
def test_an_entry_that_only_turns_off_is_kept_for_whoever_defines_the_server() -> None:
    found = all_of({"a": {"enabled": False}, "b": {"disabled": True}, "c": {"type": "local", "enabled": False}})
    assert (list(found.overrides), found.definitions, found.problems) == (["a", "b", "c"], {}, [])
    assert all(override.turns_off for override in found.overrides.values())


@requirement("servers.config.partial")
@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        ({"enabled": True}, {"enabled": True}),
        ({"type": "remote", "calls": 3, "queue": 0, "idle": 5}, {"calls": 3, "queue": 0, "idle_seconds": 5}),
        ({"exclusive": True, "inherit": True, "scope": "app"}, {"exclusive": True, "inherit": True, "scope": "app"}),
        (
            {"env": {"A": "b"}, "cwd": "sub", "framing": "lines"},
            {"environment": {"A": "b"}, "cwd": "sub", "framing": "lines"},
        ),
        ({"headers": {"A": "b"}, "oauth": False}, {"headers": {"A": "b"}, "oauth": False}),
    ],
)
def test_an_entry_without_a_program_sets_only_the_options_that_it_names(
    entry: dict[str, Any], fields: dict[str, Any]
) -> None:
    found = all_of({"a": entry}).overrides["a"]
    assert found.fields == fields and found.written == {key: entry[key] for key in entry if key != "type"}
    assert (found.tools, found.timeouts) == ((), {})


@requirement("servers.config.partial")
def test_an_entry_without_a_program_may_set_tools_and_single_time_limits() -> None:
    found = all_of(
        {
            "a": {"tools": {"x": False}, "timeouts": {"startup": 2}},
            "b": {"tools": ["x"], "timeout": 3000},
            "c": {"disabledTools": ["x"]},
        }
    ).overrides
    assert (found["a"].tools, found["a"].is_tool_list) == ((("x", False),), False)
    assert (found["b"].tools, found["b"].is_tool_list) == ((("*", False), ("x", True)), True)
    assert (found["c"].tools, found["c"].is_tool_list) == ((("x", False),), False)
    assert [found[name].timeouts for name in "abc"] == [{"startup": 2}, {"catalog": 3}, {}]


@pytest.mark.parametrize("entry", [{"calls": 0}, {"tools": 5}, {"enabled": True, "disabled": True}, {"type": "x"}])
def test_an_option_that_is_invalid_is_reported_without_a_program_too(entry: dict[str, Any]) -> None:
    assert refused({"idle": 5, **entry}).server == "it"


@pytest.mark.parametrize("entry", [{}, {"args": ["x"]}, {"type": "local"}, {"enabled": None}, {"unknown": 1}])
def test_an_entry_without_any_option_needs_a_program(entry: dict[str, Any]) -> None:
    assert "command" in refused(entry).message


@requirement("hub.config.invalid")
@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (5, "expected an object"),
        ({"command": []}, '"command" must be a program'),
        ({"command": [" "]}, '"command" must be a program'),
        ({"command": ["x", 5]}, '"command" must be a list of strings'),
        ({"command": "x", "args": "-y"}, '"args" must be a list of strings'),
        ({"command": "x\0y"}, '"command" must be text'),
        ({"command": "x", "env": {"A": 5}}, 'put the value of "A" in quotes'),
        ({"command": "x", "env": {"A=B": "c"}}, '"env" must be an object of variables'),
        ({"command": "x", "env": {"A": "b"}, "environment": {}}, 'both "env" and "environment"'),
        ({"command": "x", "type": "remote"}, 'a remote server has no "command"'),
        ({"url": "http://a", "type": "local"}, 'a local server has no "url"'),
        ({"command": "x", "type": "docker"}, '"type" must be one of local, stdio, remote'),
        ({"url": "file:///etc/passwd"}, "begins with http:// or https://"),
        ({"url": "http://"}, "begins with http:// or https://"),
        ({"url": "http://a:99999/"}, "begins with http:// or https://"),
        ({"url": "http://a/\nb"}, "begins with http:// or https://"),
        ({"url": "http://a", "headers": {"A B": "c"}}, "'A B' contains an invalid character"),
        ({"url": "http://a", "headers": {"A": "b\r\nC: d"}}, "'A' contains an invalid character"),
        ({"url": "http://a", "oauth": "yes"}, '"oauth" must be an object, or false'),
        ({"command": "x", "enabled": "yes"}, '"enabled" must be true or false'),
        ({"command": "x", "scope": "galaxy"}, '"scope" must be one of app, project, workspace, session'),
        ({"command": "x", "framing": 5}, '"framing" must be one of lines, content-length'),
        ({"command": "x", "scope": ["app"]}, '"scope" must be one of'),
        ({"command": "x", "calls": 0}, '"calls" must be a number from 1 to 1000'),
        ({"command": "x", "calls": 1.5}, '"calls" must be a whole number'),
        ({"command": "x", "idle": -1}, '"idle" must be a number from 0'),
        ({"command": "x", "timeouts": 5}, '"timeouts" must be an object with seconds'),
        ({"command": "x", "timeouts": {"execution": 0}}, '"timeouts" must be an object with seconds'),
        ({"command": "x", "tools": {"*": "no"}}, '"tools" must be an object of wildcards'),
        ({"command": "x", "tools": "*"}, '"tools" must be a list of strings'),
    ],
)
def test_an_entry_that_does_not_fit_is_told_and_left_out_while_the_others_work(entry: Any, told: str) -> None:
    assert told in refused(entry).message


@requirement("hub.config.invalid")
def test_what_is_wrong_is_told_with_its_line() -> None:
    text = '{\n"mcp": {\n"a": {"command": ["x"]},\n"b": {\n"command": ["y"],\n"timeout": -1\n},\n"c": 1\n}\n}'
    found = parsed(text, "opencode")
    assert [(problem.server, problem.line) for problem in found.problems] == [("b", 6), ("c", 8)]
    assert str(found.problems[0]).startswith('file:6: the server "b": "timeout" must be')
    assert found.definitions["a"].source.line == 3


def test_no_message_repeats_a_value() -> None:
    for entry in (
        {"url": "ftp://hush"},
        {"url": "http://a", "headers": {"A": "hush\n"}},
        {"command": "x", "env": {"A": ["hush"]}},
    ):
        assert "hush" not in refused(entry).message


def test_keys_that_are_not_used_are_told_and_near_misses_named() -> None:
    entry = {"command": ["x"], "enviroment": {"A": "b"}, "comand": [], "autoApprove": [], "headers": {}}
    assert notes(entry) == [
        '12 the server "it": "headers" is not used for a local server',
        '7 the server "it": "enviroment" is not used did you mean "environment"?',
        '10 the server "it": "comand" is not used did you mean "command"?',
        '11 the server "it": "autoApprove" is not used',
    ]
    assert notes({"url": "http://a", "cwd": "b"}) == ['5 the server "it": "cwd" is not used for a remote server']


def test_null_is_as_good_as_nothing() -> None:
    found = one({"type": "local", "command": ["x"], "env": None, "timeout": None, "enabled": None, "scope": None})
    assert (found.environment, found.timeouts.catalog, found.enabled, found.scope) == ({}, 5, True, "workspace")


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ({"tools": {"*": True, "delete_*": False}}, (("*", True), ("delete_*", False))),
        ({"tools": ["read_*"]}, (("*", False), ("read_*", True))),
        ({"enabledTools": ["a", "b"]}, (("*", False), ("a", True), ("b", True))),
        ({"enabled_tools": ["a"], "disabled_tools": ["b"]}, (("*", False), ("a", True), ("b", False))),
        ({"includeTools": [], "excludeTools": ["b"]}, (("*", False), ("b", False))),
        ({"disabledTools": ["b*"]}, (("b*", False),)),
        ({}, ()),
    ],
)
def test_the_filters_of_every_program_become_one_list(given: dict[str, Any], rules: tuple[Any, ...]) -> None:
    assert one({"command": "x", **given}).tools == rules


@requirement("hub.config.invalid")
def test_a_server_that_is_defined_twice_is_told_and_the_last_one_counts() -> None:
    found = parsed('{"servers": {\n"a": {"command": "x"},\n"a": {"command": "y"}\n}}', "rookery")
    assert found.definitions["a"].command == ("y",)
    assert [(one.line, one.server) for one in found.problems] == [(3, "a")]
    assert "defined twice in this file, first in line 2" in found.problems[0].message
    broken = parsed('{"servers": {"a": {"command": "x"}, "a": 5}}', "rookery")
    assert (broken.definitions, broken.failed) == ({}, {"a"})


@pytest.mark.parametrize(
    "name", ["", " a", "a ", ".", "..", "a/b", "a\nb", "a\x1bb", "a\u202eb", "a\u2028b", "x" * 201, "__proto__"]
)
def test_c12_a_name_that_could_pass_for_something_else_is_refused(name: str) -> None:
    found = all_of({name: {"command": ["x"]}, "ok": {"command": ["x"]}})
    assert list(found.definitions) == ["ok"]
    assert "choose another name" in found.problems[0].remedy
    assert str(found.problems[0]).isprintable()


@pytest.mark.parametrize("name", ["a", "a b", "ünï", "🦜", "a__b", "constructor", "a.b", "%2F", "x" * 200])
def test_c12_any_other_name_is_fine(name: str) -> None:
    assert list(all_of({name: {"command": ["x"]}}).definitions) == [name]


@pytest.mark.parametrize(
    ("text", "line"),
    [("[]", 1), ('{\n"mcp": []}', 2), ('{"mcp": {"servers": {},\n"timeout": "soon"}}', 2), ("{", 1), ("", 1)],
)
def test_a_file_that_is_broken_as_a_whole_says_where(text: str, line: int) -> None:
    with pytest.raises(JsoncError) as caught:
        parsed(text, "opencode")
    assert caught.value.line == line


def test_a_file_without_servers_is_empty_and_a_wrong_key_for_them_is_reported() -> None:
    assert all_of({}) == ParsedFile()
    assert parsed('{"theme": "dark"}', "opencode") == ParsedFile()
    found = parsed('{"mcpServers": {"a": {"command": "x"}}}', "rookery")
    assert [(one.message, one.remedy) for one in found.problems] == [
        ('"mcpServers" is not read in this file', 'rename it to "servers"')
    ]


def test_problems_without_end_are_cut_and_that_is_said() -> None:
    found = all_of({str(number): 5 for number in range(100)})
    assert len(found.problems) == 51
    assert "more problems" in found.problems[-1].message
    assert len(found.failed) == 100


@pytest.mark.parametrize(
    "entries",
    [
        {str(number): {"command": "x" * 180} for number in range(4000)},
        {"a": {"command": ["x"], **{f"enviro{number}": 1 for number in range(9000)}}},
        {"a": {"command": ["x"], "env": {f"A{number}": "{env:NONE}" * 20 for number in range(3000)}}},
    ],
    ids=["servers", "keys", "placeholders"],
)
def test_a_file_that_asks_for_endless_work_does_not_get_it(entries: Any) -> None:
    """In processor time, which no other process takes away."""
    text = json.dumps({"mcp": entries}, indent=1)
    start = time.process_time()
    found = parsed(text, "opencode")
    assert time.process_time() - start < 1
    assert len(found.definitions) in (1, 200)
    assert 0 < len(found.problems) <= 51


def test_a_server_defined_while_running_takes_text_as_it_stands() -> None:
    entry = {"type": "remote", "url": "http://a/{env:HOME}", "headers": {"A": "${HOME}{file:/etc/passwd}"}}
    found = define_server("it", entry, "POST /api/mcp")
    assert (found.url, found.headers) == (entry["url"], entry["headers"])
    assert (str(found.source), found.source.place) == ("POST /api/mcp", "user")
    for wrong in ({}, {"enabled": False}, {"command": 5}, {"command": object()}):
        with pytest.raises(RookeryError) as caught:
            define_server("it", wrong, "POST /api/mcp")
        assert caught.value.code == "invalid-input"
    with pytest.raises(RookeryError, match="the name"):
        define_server("a/b", {"command": "x"}, "POST /api/mcp")


@requirement("guard.sandbox.server")
def test_a_sandbox_is_a_word_or_lists_of_paths() -> None:
    given: list[tuple[Any, ServerSandbox | None]] = [
        ("workspace", ServerSandbox("workspace")),
        ("off", ServerSandbox("off")),
        (None, None),
        ({"read": ["."], "network": False}, ServerSandbox("listed", (".",), (), False)),
        ({"write": ["~/data"]}, ServerSandbox("listed", (), ("~/data",))),
    ]
    for value, wanted in given:
        assert one({"command": ["x"], "sandbox": value}).sandbox == wanted
    wrong: tuple[Any, ...] = ("on", True, {}, {"read": "."}, {"files": "workspace"}, {"read": [""]}, {"network": "no"})
    for value in wrong:
        assert "sandbox" in refused({"command": ["x"], "sandbox": value}).message
