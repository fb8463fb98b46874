"""Editing a client's file keeps everything that the user wrote."""

import json
import tomllib
from typing import Any

import pytest

from rookery.clients.edit import add_entry, list_entries, render_snippet
from rookery.clients.entry import EntryTarget, make_entry
from rookery.clients.registry import CLIENTS, Client, Transport
from rookery.system.errors import RookeryError
from rookery.upstreams.config.jsonc import parse_jsonc, to_python
from tests.support.requirements import requirement

TARGET = EntryTarget("rookery", "http://127.0.0.1:7777/mcp", ["/abs/rookery", "bridge"], {"ROOKERY_HOME": "/state"})
WAYS = [(one, way) for one in CLIENTS.values() for way in one.transports]

# As people have it: comments in every place, keys of their own, a trailing comma.
ZED = """// Zed settings
{
  "theme": "One Dark", // mine
  /* servers */
  "context_servers": {
    // the other one
    "other": { "command": "x", "args": [] }, // keep
  },
  "buffer_font_size": 15
}
"""
CODEX = """# Codex
model = "o9" # the good one

[mcp_servers.other]
command = "x" # keep

# the look
[tui]
theme = "dark"
"""


def put(client: Client, text: str, transport: Transport | None = None) -> str:
    return add_entry(client, text, "rookery", make_entry(client, transport or client.default, TARGET))


def read(client: Client, text: str) -> Any:
    return tomllib.loads(text) if client.id == "codex" else to_python(parse_jsonc(text))


@requirement("client.install.edit")
def test_every_line_of_a_file_with_comments_stays() -> None:
    for client, text in ((CLIENTS["zed"], ZED), (CLIENTS["codex"], CODEX)):
        made = put(client, text, "bridge")
        assert [line for line in text.splitlines() if line not in made.splitlines()] == []
        found = read(client, made)
        assert set(found[client.key]) == {"other", "rookery"}
        assert found[client.key]["rookery"]["args"] == ["bridge"]
        del found[client.key]["rookery"]
        assert found == read(client, text)


@requirement("client.install.edit")
@pytest.mark.parametrize(("client", "transport"), WAYS, ids=lambda one: getattr(one, "id", one))
def test_once_there_nothing_changes_any_more(client: Client, transport: Transport) -> None:
    for text in ("", CODEX if client.id == "codex" else '{"a": [1.50, {"b": null}]}\r\n'):
        made = put(client, text, transport)
        assert put(client, made, transport) == made
        assert made.startswith(text[:5])


@requirement("client.install.edit")
@pytest.mark.parametrize("client", [one for one in CLIENTS.values() if len(one.transports) > 1], ids=lambda one: one.id)
def test_a_second_transport_replaces_the_first_and_keeps_what_the_user_added(client: Client) -> None:
    made = put(client, "", "http")
    mine = "startup_timeout_sec = 7 # slow" if client.id == "codex" else '"mine": {"a": 1}, // my own'
    head = "[mcp_servers.rookery]\n" if client.id == "codex" else '"rookery": {\n'
    made = made.replace(head, f"{head}{mine}\n")
    assert mine in made
    bridged = put(client, made, "bridge")
    assert mine in bridged
    found = read(client, bridged)[client.key]["rookery"]
    wanted = make_entry(client, "bridge", TARGET).value
    assert {key: found[key] for key in wanted} == wanted
    assert not {"url", "serverUrl", "headers", "bearer_token_env_var", "oauth"} & set(found)
    assert read(client, put(client, bridged, "http"))[client.key] == read(client, made)[client.key]


def test_what_the_user_has_set_in_our_entry_is_not_set_back() -> None:
    client = CLIENTS["opencode"]
    text = put(client, "", "http").replace("300000", "9000").replace('"enabled": true', '"enabled": false')
    assert put(client, text, "http") == text


def test_vs_code_asks_for_the_token_once() -> None:
    client = CLIENTS["vscode"]
    theirs = '{\n  "inputs": [\n    {"type": "promptString", "id": "theirs"} // theirs\n  ]\n}\n'
    made = put(client, theirs, "http")
    assert [one["id"] for one in read(client, made)["inputs"]] == ["theirs", "rookery-token"]
    assert "// theirs" in made
    assert put(client, made, "http") == made
    assert [one["id"] for one in read(client, put(client, '{"inputs": []}', "http"))["inputs"]] == ["rookery-token"]


@pytest.mark.parametrize(
    ("id_", "text", "told"),
    [
        ("cursor", '{\n  "mcpServers": {\n', 'line 3: "{" in line 2 is never closed'),
        ("cursor", '{\n"mcpServers": []}', 'line 2: "mcpServers" must be an object'),
        ("cursor", "[]", "expected an object"),
        ("vscode", '{"inputs": 1}', '"inputs" must be a list'),
        ("codex", "a = \n", "at line 1"),
        ("codex", "mcp_servers = 1\n", "mcp_servers must be a table"),
        ("codex", 'mcp_servers.a.url = "x"\nb = 1\n', "cannot be edited safely"),
    ],
)
def test_what_cannot_be_changed_safely_is_told(id_: str, text: str, told: str) -> None:
    with pytest.raises(RookeryError) as error:
        put(CLIENTS[id_], text, "http")
    assert told in error.value.message
    assert error.value.remedy


def test_the_servers_of_a_file_are_found_again() -> None:
    for client in CLIENTS.values():
        entry = make_entry(client, client.default, TARGET)
        assert list_entries(client, render_snippet(client, "rookery", entry)) == {"rookery": entry.value}
        assert list_entries(client, "") == {}
    assert json.loads(render_snippet(CLIENTS["cursor"], "x", make_entry(CLIENTS["cursor"], "http", TARGET)))
