"""The session tools, resources and prompts as they were specified: names, texts, types, defaults and what is required.

Rookery may take more than this, and must not require more.
"""

from collections.abc import Mapping
from typing import Any

import mcp_types

TEXT: dict[str, Any] = {"type": "string"}
TRUE: dict[str, Any] = {"type": "boolean", "default": True}


def milliseconds(default: int) -> dict[str, Any]:
    return {"type": "number", "default": default}


# The description of each tool, the properties that it takes, and those of them that are required.
TOOLS: dict[str, tuple[str, dict[str, dict[str, Any]], list[str]]] = {
    "create_session": (
        "Create a new OpenCode session",
        {"directory": TEXT, "agent": TEXT, "model": TEXT},
        ["directory"],
    ),
    "list_sessions": ("List all active sessions", {}, []),
    "get_session": ("Get session details", {"sessionId": TEXT}, ["sessionId"]),
    "close_session": ("Close a session", {"sessionId": TEXT}, ["sessionId"]),
    "send_message": (
        "Send a message to OpenCode session",
        {"sessionId": TEXT, "content": TEXT, "waitForResponse": TRUE, "timeout": milliseconds(30_000)},
        ["sessionId", "content"],
    ),
    "get_messages": (
        "Get all messages in session",
        {"sessionId": TEXT, "limit": {"type": "number", "default": 50}, "since": {"type": "number"}},
        ["sessionId"],
    ),
    "wait_for_message": (
        "Wait for specific message pattern",
        {"sessionId": TEXT, "pattern": TEXT, "timeout": milliseconds(30_000)},
        ["sessionId", "pattern"],
    ),
    "get_toasts": ("Get current toast notifications", {"sessionId": TEXT}, []),
    "wait_for_toast": (
        "Wait for specific toast message",
        {"sessionId": TEXT, "pattern": TEXT, "timeout": milliseconds(10_000)},
        ["sessionId", "pattern"],
    ),
    "get_tui_state": ("Get TUI (Terminal UI) current state", {"sessionId": TEXT}, []),
    "take_screenshot": ("Take screenshot of OpenCode window", {"sessionId": TEXT, "savePath": TEXT}, []),
    "execute_tool": (
        "Execute an OpenCode tool programmatically",
        {"sessionId": TEXT, "tool": TEXT, "args": {"type": "object"}, "waitForCompletion": TRUE},
        ["sessionId", "tool", "args"],
    ),
    "get_tool_history": (
        "Get history of tool executions",
        {"sessionId": TEXT, "limit": {"type": "number", "default": 20}},
        [],
    ),
    "list_plugins": ("List loaded plugins", {}, []),
    "get_plugin_state": (
        "Get plugin state (e.g., boulder iteration)",
        {"pluginName": TEXT, "stateKey": TEXT},
        [],
    ),
    "trigger_plugin_action": (
        "Trigger plugin-specific action",
        {"pluginName": TEXT, "action": TEXT, "args": {"type": "object"}},
        [],
    ),
}
# The name and the description of each resource.
RESOURCES = {
    "session://{sessionId}": ("Session State", "Current state of an OpenCode session"),
    "messages://{sessionId}": ("Session Messages", "All messages in a session"),
    "boulder://state": ("Boulder State", "Current boulder enforcement state"),
}
# The description of each prompt, and its arguments: whether each is required.
PROMPTS = {
    "test_boulder_idle_detection": ("Test boulder idle detection", {"sessionId": True, "idleTime": False}),
    "test_boulder_completion": ("Test boulder completion detection", {"sessionId": True}),
}


def check_tools(listed: Mapping[str, mcp_types.Tool]) -> None:
    """Assert that every tool is listed as it was specified."""
    for name, (description, properties, required) in TOOLS.items():
        tool = listed[name]
        assert (tool.description or "").startswith(description), name
        schema = tool.input_schema
        assert schema["type"] == "object" and sorted(schema.get("required", [])) == sorted(required), name
        assert schema.get("additionalProperties", True) is True, name
        for key, wanted in properties.items():
            taken: dict[str, Any] = schema["properties"][key]
            # What may be left out may be null as well.
            assert taken["type"] in (wanted["type"], [wanted["type"], "null"]), (name, key)
            assert taken.get("default") == wanted.get("default"), (name, key)


def check_resources(listed: Mapping[str, mcp_types.Resource | mcp_types.ResourceTemplate]) -> None:
    """Assert that every resource, by its URI or its template, is listed as it was specified."""
    for uri, (name, description) in RESOURCES.items():
        resource = listed[uri]
        assert (resource.name, resource.mime_type) == (name, "application/json")
        assert (resource.description or "").startswith(description), uri


def check_prompts(listed: Mapping[str, mcp_types.Prompt]) -> None:
    """Assert that every prompt is listed as it was specified."""
    for name, (description, arguments) in PROMPTS.items():
        prompt = listed[name]
        assert prompt.description == description
        assert {one.name: bool(one.required) for one in prompt.arguments or ()} == arguments
