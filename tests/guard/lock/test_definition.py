"""The definition of a server in mcp.lock."""

from typing import Any, Literal

import pytest

from rookery.guard.lock.definition import list_facts
from rookery.guard.lock.file import FactKey, LockedServer, format_lock
from rookery.upstreams.config.dialects import define_server
from rookery.upstreams.config.redact import redact_definition

SECRET = "s3cr3t-value"


def facts(entry: dict[str, Any], level: Literal["project", "user"] = "project") -> dict[FactKey, Any]:
    definition = define_server("x", entry, "here")
    shown = redact_definition(definition)["written"]
    return list_facts("x", definition.kind, level, definition.written, shown)


def test_references_stay_references_and_all_dialects_have_one_form() -> None:
    wanted = {
        FactKey("command"): ["npx", "-y", "server@1.0.0"],
        FactKey("env", "TOKEN"): "{env:TOKEN}",
    }
    entry = {"environment": {"TOKEN": "{env:TOKEN}"}}
    assert facts({"type": "local", "command": ["npx", "-y", "server@1.0.0"], "enabled": True, **entry}) == wanted
    claude = {"type": "stdio", "command": "npx", "args": ["-y", "server@1.0.0"], "env": entry["environment"]}
    assert facts(claude) == wanted


def test_a_remote_server_keeps_its_address_headers_and_transport() -> None:
    entry = {"type": "sse", "url": "https://host/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    assert facts(entry) == {
        FactKey("url"): "https://host/mcp",
        FactKey("header", "Authorization"): "Bearer ${TOKEN}",
        FactKey("option", "type"): "sse",
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"command": ["x"], "environment": {"PLAIN": SECRET}},
        {"command": ["x"], "environment": {"TOKEN": "${TOKEN:-" + SECRET + "}"}},
        {"command": ["x", "--token", SECRET]},
        {"command": ["x", f"--api-key={SECRET}"]},
        {"command": ["x", "--header", f"Authorization: Bearer {SECRET}"]},
        {"command": ["x", f"--header=Authorization: Bearer {SECRET}"]},
        {"command": ["x", f"ghp_{SECRET.replace('-', '')}0123456789"]},
        {"command": ["x", f"postgres://me:{SECRET}@host/db"]},
        {"url": f"https://me:{SECRET}@host/mcp"},
        {"url": f"https://host/mcp?token={SECRET}"},
        {"url": "https://host/mcp", "headers": {"X-Any": SECRET}},
        {"url": "https://host/mcp", "oauth": {"clientId": "me", "clientSecret": SECRET}},
    ],
)
def test_no_secret_value_is_written_and_a_change_of_one_is_noticed(entry: dict[str, Any]) -> None:
    found = facts(entry)
    text = format_lock([LockedServer("x", "project", found)])
    assert SECRET not in text and SECRET.replace("-", "") not in text
    changed = facts(eval(repr(entry).replace("s3cr3t", "0th3r0")))
    assert found[FactKey("values")].startswith("scrypt:")
    assert {key for key in found if found[key] != changed[key]} == {FactKey("values")}
    # The values of a person's own files are theirs.
    assert FactKey("values") not in facts(entry, "user")
