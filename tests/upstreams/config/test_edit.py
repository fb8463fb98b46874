"""Adding a server to a file and removing it changes nothing else in the file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rookery.system.errors import RookeryError
from rookery.upstreams.config.definition import Dialect
from rookery.upstreams.config.edit import (
    add_entry,
    add_entry_to_text,
    format_entry,
    remove_entry,
    remove_entry_from_text,
)
from rookery.upstreams.config.jsonc import JsoncError, Object, parse_jsonc, to_python
from rookery.upstreams.config.sources import ConfigFile, load_config
from tests.support.jsonc import GAPS, dressed

ENTRY = {"command": "npx", "args": ["-y", "it"], "env": {"A": "b"}}
CONTAINER: dict[Dialect, str] = {"rookery": "servers", "opencode": "mcp", "claude": "mcpServers"}
SMALL = st.none() | st.text('{}",/*', max_size=4) | st.lists(st.integers(), max_size=2)
COMMENTED = """\
// of the team
{
    "$schema": "x", /* kept */
    "mcp": {
        // the first
        "a": { "command": ["x"] }, // about a

        "b": {
            "command": ["y"] // inside b
        } // about b
        // the end
    },
    "theme": "dark",
}
"""


def test_a_server_is_added_after_the_others_as_they_are_written() -> None:
    assert add_entry_to_text(
        COMMENTED, "opencode", "c", {"command": ["z"], "environment": {"A": "b"}}
    ) == COMMENTED.replace(
        "        } // about b\n",
        '        }, // about b\n        "c": {\n            "command": ["z"],\n'
        '            "environment": {\n                "A": "b"\n            }\n        }\n',
    )


def test_a_server_is_taken_out_and_the_comments_around_it_stay() -> None:
    assert remove_entry_from_text(COMMENTED, "opencode", "a") == COMMENTED.replace(
        '"a": { "command": ["x"] }, // about a', "// about a"
    )
    last = '        "b": {\n            "command": ["y"] // inside b\n        } // about b\n'
    assert remove_entry_from_text(COMMENTED, "opencode", "b") == COMMENTED.replace(
        last, "        // about b\n"
    ).replace('"a": { "command": ["x"] },', '"a": { "command": ["x"] }')


def test_a_server_is_replaced_where_it_stands() -> None:
    text = add_entry_to_text(COMMENTED, "opencode", "a", {"command": ["new"]}, replace=True)
    assert text == COMMENTED.replace('{ "command": ["x"] }', '{"command": ["new"]}')
    text = add_entry_to_text(COMMENTED, "opencode", "b", {"command": ["new"]}, replace=True)
    old = '{\n            "command": ["y"] // inside b\n        }'
    assert text == COMMENTED.replace(old, '{\n            "command": ["new"]\n        }')


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("", '{\n  "servers": {\n    "n": {\n      "url": "u"\n    }\n  }\n}\n'),
        ("{}", '{\n  "servers": {\n    "n": {\n      "url": "u"\n    }\n  }\n}'),
        ("\ufeff{}", '\ufeff{\n  "servers": {\n    "n": {\n      "url": "u"\n    }\n  }\n}'),
        ('{"servers": {}}', '{"servers": {\n  "n": {\n    "url": "u"\n  }\n}}'),
        ('{"servers": {"a": 1}}', '{"servers": {"a": 1, "n": {"url": "u"}}}'),
        ('{"servers": {"a": 1,}}', '{"servers": {"a": 1, "n": {"url": "u"},}}'),
        ('{\n\t"x": 1\n}', '{\n\t"x": 1,\n\t"servers": {\n\t\t"n": {\n\t\t\t"url": "u"\n\t\t}\n\t}\n}'),
        (
            '{\r\n "servers": {\r\n  "a": 1,\r\n }\r\n}',
            '{\r\n "servers": {\r\n  "a": 1,\r\n  "n": {\r\n   "url": "u"\r\n  },\r\n }\r\n}',
        ),
        (
            '{\n  "servers": {\n    // none yet\n  }\n}',
            '{\n  "servers": {\n    // none yet\n    "n": {\n      "url": "u"\n    }\n  }\n}',
        ),
    ],
    ids=["empty", "braces", "bom", "no-server", "one-line", "trailing", "tabs", "crlf", "comment"],
)
def test_a_server_is_added_to_any_kind_of_file(text: str, added: str) -> None:
    assert add_entry_to_text(text, "rookery", "n", {"url": "u"}) == added


def test_in_a_file_of_the_second_opencode_servers_stand_deeper() -> None:
    text = '{"mcp": {"timeout": 5000, "servers": {"a": {"command": ["x"]}}}}'
    added = add_entry_to_text(text, "opencode", "b", {"command": ["y"]})
    assert json.loads(added)["mcp"]["servers"] == {"a": {"command": ["x"]}, "b": {"command": ["y"]}}
    assert json.loads(remove_entry_from_text(added, "opencode", "b")) == json.loads(text)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_strict_json_stays_strict(name: str) -> None:
    text = json.dumps({"mcpServers": {"a": {}, "b": {}, "c": {}}}, indent=2)
    shorter = remove_entry_from_text(text, "claude", name)
    assert json.loads(shorter)["mcpServers"] == {key: {} for key in "abc" if key != name}
    assert shorter == json.dumps(json.loads(shorter), indent=2)
    assert json.loads(add_entry_to_text(shorter, "claude", name, {}))["mcpServers"].keys() == set("abc")


def comments(text: str) -> list[str]:
    return re.findall(r"/\*#\d+\*/|//#\d+", text)


def outside(text: str, container: str, name: str) -> str:
    """The text without a server, which may have comments of its own."""
    root = parse_jsonc(text)
    assert isinstance(root, Object)
    servers = root.get(container)
    assert servers is not None
    assert isinstance(servers.value, Object)
    member = servers.value.get(name)
    assert member is not None
    return text[: member.start] + text[member.value.end :]


@given(
    st.sampled_from(list(CONTAINER)),
    st.dictionaries(st.sampled_from("abcd"), st.dictionaries(st.sampled_from("xyz"), SMALL, max_size=2), max_size=3),
    st.dictionaries(st.sampled_from("mno"), SMALL, max_size=2),
    st.booleans(),
    st.sampled_from(["a", "e"]),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_after_an_edit_the_file_says_what_it_said_and_the_change(
    dialect: Dialect, servers: dict[str, Any], rest: dict[str, Any], first: bool, name: str, data: st.DataObject
) -> None:
    """In files of any dress, with a numbered comment in many of the places where one may stand."""
    number = 0

    def gap() -> str:
        nonlocal number
        number += 1
        numbered = [f"/*#{number}*/", f" //#{number}\n", f"\n  /*#{number}*/ "]
        return data.draw(st.one_of(GAPS, st.sampled_from(numbered)))

    own = {CONTAINER[dialect]: servers}
    whole = own | rest if first else rest | own
    text = gap() + dressed(whole, gap) + gap()
    added = add_entry_to_text(text, dialect, name, ENTRY, replace=True)
    assert to_python(parse_jsonc(added)) == whole | {CONTAINER[dialect]: servers | {name: ENTRY}}
    if name not in servers:
        assert comments(added) == comments(text)
    removed = remove_entry_from_text(added, dialect, name)
    others = {key: value for key, value in servers.items() if key != name}
    assert to_python(parse_jsonc(removed)) == whole | {CONTAINER[dialect]: others}
    assert comments(removed) == comments(outside(added, CONTAINER[dialect], name))


@given(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1), st.sampled_from([None, 2, "\t"]), st.data())
def test_adding_and_removing_gives_the_same_file_again(names: list[str], indent: Any, data: st.DataObject) -> None:
    text = json.dumps({"servers": {name: {"command": "x"} for name in names}, "more": 1}, indent=indent)
    assert remove_entry_from_text(add_entry_to_text(text, "rookery", "new", ENTRY), "rookery", "new") == text
    gone = data.draw(st.sampled_from(names))
    left = json.loads(remove_entry_from_text(text, "rookery", gone))
    assert list(left["servers"]) == [name for name in names if name != gone]


def test_a_server_that_stands_twice_is_taken_out_twice() -> None:
    assert remove_entry_from_text('{"servers": {"a": 1, "b": 2, "a": 3}}', "rookery", "a") == '{"servers": {"b": 2}}'


def test_what_cannot_be_done_is_told() -> None:
    with pytest.raises(RookeryError, match='"a" already exists in line 6'):
        add_entry_to_text(COMMENTED, "opencode", "a", ENTRY)
    with pytest.raises(RookeryError, match='no server "z"'):
        remove_entry_from_text(COMMENTED, "opencode", "z")
    with pytest.raises(RookeryError, match="the name 'a/b'"):
        add_entry_to_text("", "opencode", "a/b", ENTRY)
    for broken in ("[]", "{", '{"mcp": 5}', "// only this"):
        with pytest.raises(JsoncError):
            add_entry_to_text(broken, "opencode", "a", ENTRY)


def test_a_missing_file_is_created_private_for_the_user_and_readable_in_a_project(tmp_path: Path) -> None:
    project = ConfigFile(tmp_path / ".rookery" / "mcp.json", "rookery", tmp_path)
    own = ConfigFile(tmp_path / "home" / "mcp.json", "rookery")
    for file, mode in ((project, 0o644), (own, 0o600)):
        add_entry(file, "a", ENTRY)
        assert json.loads(file.path.read_text()) == {"servers": {"a": ENTRY}}
        assert file.path.stat().st_mode & 0o777 == mode
    own.path.chmod(0o640)
    add_entry(own, "b", ENTRY)
    remove_entry(own, "a")
    assert json.loads(own.path.read_text()) == {"servers": {"b": ENTRY}}
    assert own.path.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in own.path.parent.iterdir()] == ["mcp.json"]


def test_a_file_that_does_not_parse_is_not_touched(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / ".mcp.json", "claude", tmp_path)
    file.path.write_text('{"mcpServers": {\n"a": oops}}')
    before = file.path.stat()
    for edit in (lambda: add_entry(file, "b", ENTRY), lambda: remove_entry(file, "a")):
        with pytest.raises(RookeryError) as caught:
            edit()
        assert caught.value.message == f"{file.path}:2: expected a value, found 'oops'"
        assert "not changed" in caught.value.remedy
    assert file.path.stat() == before


def test_c24_nothing_is_written_through_a_link_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "victim").write_text("{}")
    (tmp_path / "away").mkdir()
    (tmp_path / "app" / ".mcp.json").symlink_to("../victim")
    (tmp_path / "app" / ".rookery").symlink_to("../away")
    for name in (".mcp.json", ".rookery/mcp.json"):
        with pytest.raises(RookeryError, match="symbolic link"):
            add_entry(ConfigFile(tmp_path / "app" / name, "claude", tmp_path / "app"), "a", ENTRY)
    assert (tmp_path / "victim").read_text() == "{}"
    assert list((tmp_path / "away").iterdir()) == []


def test_a_link_of_the_users_stays_and_its_target_is_changed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("{}")
    (tmp_path / "link").symlink_to("real")
    add_entry(ConfigFile(tmp_path / "link", "rookery"), "a", ENTRY)
    assert (tmp_path / "link").is_symlink()
    assert "servers" in (tmp_path / "real").read_text()


def test_text_that_is_no_text_and_places_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    with pytest.raises(RookeryError, match="not valid UTF-8"):
        add_entry(ConfigFile(tmp_path / "a", "rookery"), "a", {"command": "\udcff"})
    (tmp_path / "file").write_text("")
    with pytest.raises(RookeryError, match="cannot be written"):
        add_entry(ConfigFile(tmp_path / "file" / "mcp.json", "rookery"), "a", ENTRY)


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        (".rookery/mcp.json", "rookery"),
        (".dispatch/mcp.json", "dispatch"),
        ("opencode.json", "opencode"),
        (".mcp.json", "claude"),
    ],
)
def test_what_is_written_is_what_is_read(tmp_path: Path, name: str, dialect: Dialect) -> None:
    file = ConfigFile(tmp_path / name, dialect, tmp_path)
    local = format_entry(dialect, command=["npx", "-y", "it"], environment={"A": "b"}, cwd="sub")
    remote = format_entry(dialect, url="https://a/mcp", headers={"A": "b"})
    old = format_entry(dialect, url="https://a/sse", transport="sse")
    for server, entry in (
        ("local", local),
        ("remote", remote),
        ("old", old),
        ("bare", format_entry(dialect, command=["x"])),
    ):
        add_entry(file, server, entry)
    found = load_config(tmp_path, {})
    assert found.problems == []
    by_name = {one.name: one for one in found.servers}
    assert by_name["local"].command == ("npx", "-y", "it")
    assert (by_name["local"].environment, by_name["local"].cwd) == ({"A": "b"}, "sub")
    assert (by_name["remote"].url, by_name["remote"].headers) == ("https://a/mcp", {"A": "b"})
    assert by_name["old"].transport == ("auto" if dialect == "opencode" else "sse")
    assert by_name["bare"].command == ("x",)
