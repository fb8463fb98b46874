"""Every client gets the fields, the transport and the placeholder that it supports."""

import json
from typing import Any

import pytest

from rookery.cli.commands import client as command_line
from rookery.clients.entry import EntryTarget, make_entry
from rookery.clients.registry import CLIENTS
from rookery.system.errors import RookeryError
from tests.support.requirements import requirement

URL = "http://127.0.0.1:7777/mcp"
TARGET = EntryTarget("rookery", URL, ["/abs/rookery", "bridge"])


def header(placeholder: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {placeholder}"}


# What each one's documentation and source say: the key, then the entry over HTTP.
HTTP: dict[str, tuple[str, dict[str, Any]]] = {
    "claude-code": ("mcpServers", {"type": "http", "url": URL, "headers": header("${ROOKERY_TOKEN}")}),
    "cursor": ("mcpServers", {"type": "http", "url": URL, "headers": header("${env:ROOKERY_TOKEN}")}),
    "vscode": ("servers", {"type": "http", "url": URL, "headers": header("${input:rookery-token}")}),
    "codex": ("mcp_servers", {"url": URL, "bearer_token_env_var": "ROOKERY_TOKEN", "tool_timeout_sec": 300}),
    "gemini": ("mcpServers", {"type": "http", "url": URL, "headers": header("${ROOKERY_TOKEN}")}),
    "windsurf": ("mcpServers", {"serverUrl": URL, "headers": header("${env:ROOKERY_TOKEN}")}),
    "opencode": (
        "mcp",
        {
            "type": "remote",
            "url": URL,
            "headers": header("{env:ROOKERY_TOKEN}"),
            "enabled": True,
            "oauth": False,
            "timeout": 300_000,
        },
    ),
}


@requirement("client.print.http", "client.print.nine")
@pytest.mark.parametrize("id_", HTTP)
def test_over_http_each_has_its_own_fields_and_placeholder(id_: str) -> None:
    key, wanted = HTTP[id_]
    assert CLIENTS[id_].key == key
    assert make_entry(CLIENTS[id_], "http", TARGET).value == wanted


@requirement("client.print.options")
@pytest.mark.parametrize("id_", sorted(set(CLIENTS) - set(HTTP)))
def test_those_that_cannot_have_it_over_http_have_the_bridge_alone(id_: str) -> None:
    assert CLIENTS[id_].default == "bridge"
    with pytest.raises(RookeryError) as error:
        make_entry(CLIENTS[id_], "http", TARGET)
    assert error.value.remedy == "use --transport bridge"


@requirement("client.print.nine", "client.print.options")
@pytest.mark.parametrize("id_", CLIENTS)
def test_the_bridge_works_for_each_of_them(id_: str) -> None:
    target = EntryTarget("rookery", "", ["/abs/rookery", "bridge", "--workspace", "a/b"], {"ROOKERY_HOME": "/s"})
    found = make_entry(CLIENTS[id_], "bridge", target).value
    if id_ == "opencode":
        assert found["command"] == list(target.command)
        assert (found["type"], found["environment"]) == ("local", {"ROOKERY_HOME": "/s"})
    else:
        assert [found["command"], *found["args"]] == list(target.command)
        assert found["env"] == {"ROOKERY_HOME": "/s"}
    assert "url" not in json.dumps(found)


@requirement("client.print.nine")
def test_nine_clients_are_known_and_the_command_line_names_them_all() -> None:
    assert len(CLIENTS) == 9
    assert tuple(CLIENTS) == command_line.CLIENTS
