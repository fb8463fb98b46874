"""The server for the official conformance suite: its tools, resources and prompts, on our implementation."""

import asyncio
import base64
import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.wire.protocol.messages import INVALID_PARAMS, METHOD_NOT_FOUND, WireError, decode_text
from rookery.wire.protocol.provider import Call, ChangeNotifier, ClientQuestion, report_log, report_progress

Result = Mapping[str, Any]
TEMPLATE = re.compile(r"test://template/([^/]+)/data")
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def png() -> str:
    """Return a PNG with one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00")) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def wav() -> str:
    """Return a WAV with a moment of silence."""
    head = b"RIFF" + struct.pack("<I", 38) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    return base64.b64encode(head + b"data" + struct.pack("<I", 2) + b"\x80\x80").decode()


PNG, WAV = png(), wav()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


def text(words: str, **more: Any) -> Result:
    return {"content": [{"type": "text", "text": words}], **more}


def form(message: str, properties: Mapping[str, Any], required: list[str] | None = None) -> ClientQuestion:
    schema = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    return ClientQuestion("elicitation/create", {"mode": "form", "message": message, "requestedSchema": schema})


def sample(prompt: str) -> ClientQuestion:
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return ClientQuestion("sampling/createMessage", {"messages": [message], "maxTokens": 100})


ROOTS = ClientQuestion("roots/list", {})
NAME = {"name": {"type": "string", "description": "A name"}}


class Tools:
    """The tools, one method each; its docstring is the description."""

    def __init__(self, changes: ChangeNotifier) -> None:
        self.changes = changes

    async def test_simple_text(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Answers a text."""
        return text("This is a simple text response for testing.")

    async def test_image_content(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Answers an image."""
        return {"content": [IMAGE]}

    async def test_audio_content(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Answers a sound."""
        return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}

    async def test_embedded_resource(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Answers a resource."""
        found = {"uri": "test://embedded-resource", "mimeType": "text/plain"}
        found["text"] = "This is an embedded resource content."
        return {"content": [{"type": "resource", "resource": found}]}

    async def test_multiple_content_types(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Answers a text, an image and a resource."""
        found = {"uri": "test://mixed-content-resource", "mimeType": "application/json"}
        found["text"] = json.dumps({"test": "data", "value": 123})
        words = {"type": "text", "text": "Multiple content types test:"}
        return {"content": [words, IMAGE, {"type": "resource", "resource": found}]}

    async def test_tool_with_logging(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Logs while it runs."""
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await report_log(call, "info", words, "conformance-test-server")
            await asyncio.sleep(0.05)
        return text("Tool with logging executed successfully")

    async def test_logging_tool(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Logs one line of each of three levels."""
        for level in ("debug", "info", "error"):
            await report_log(call, level, f"{level} from test_logging_tool")
        return text("logged")

    async def test_tool_with_progress(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Tells its progress."""
        for done in (0, 50, 100):
            await report_progress(call, done, 100, f"Completed step {done} of 100")
            await asyncio.sleep(0.05)
        token = call.meta.get("progressToken")
        return text(str(msgspec.json.decode(token)) if token is not None else "no token")

    async def test_error_handling(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Fails on purpose."""
        return text("This tool intentionally returns an error for testing", isError=True)

    async def test_sampling(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks the client's model."""
        found = (await call.ask({"sample": sample(str(given.get("prompt", "")))}))["sample"]
        return text(f"LLM response: {found['content'].get('text', '')}")

    async def test_elicitation(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks the user for a name and an address."""
        asked = {key: {"type": "string", "description": f"User's {key}"} for key in ("username", "email")}
        found = (await call.ask({"form": form(str(given.get("message", "")), asked, ["username", "email"])}))["form"]
        return text(f"User response: action={found['action']}, content={json.dumps(found.get('content', {}))}")

    async def test_elicitation_sep1034_defaults(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks with a default for every kind of field."""
        asked = {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        }
        found = (await call.ask({"form": form("Please review and update the form fields with defaults", asked)}))[
            "form"
        ]
        words = f"action={found['action']}, content={json.dumps(found.get('content', {}))}"
        return text(f"Elicitation completed: {words}")

    async def test_elicitation_sep1330_enums(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks with every kind of enumeration."""
        options = ["option1", "option2", "option3"]
        titled = [
            {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
        ]
        names = ["Option One", "Option Two", "Option Three"]
        asked = {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        }
        found = (await call.ask({"form": form("Please select options from the enum fields", asked)}))["form"]
        words = f"action={found['action']}, content={json.dumps(found.get('content', {}))}"
        return text(f"Elicitation completed: {words}")

    async def json_schema_2020_12_tool(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Has a schema with everything that 2020-12 knows."""
        return text(f"JSON Schema 2020-12 tool called with: {json.dumps(given)}")

    async def test_header_tool(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Has an argument that is repeated in a header."""
        return text(f"region {given.get('region')}")

    async def test_missing_capability(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Needs a client that can sample."""
        await call.ask({"capital_question": sample("What is the capital of France?")})
        return text("the client can sample")

    async def test_streaming_elicitation(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Says something before it asks."""
        await report_progress(call, 1, 2, "about to ask")
        await call.ask({"user_name": form("What is your name?", NAME, ["name"])})
        return text("asked")

    async def test_trigger_tool_change(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Changes the list of tools."""
        self.changes.list_changed("tools")
        return text("the list of tools has changed")

    async def test_trigger_prompt_change(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Changes the list of prompts."""
        self.changes.list_changed("prompts")
        return text("the list of prompts has changed")

    async def test_input_required_result_elicitation(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks for a name and greets."""
        found = (await call.ask({"user_name": form("What is your name?", NAME, ["name"])}))["user_name"]
        return text(f"Hello, {found.get('content', {}).get('name', 'stranger')}!")

    async def test_input_required_result_sampling(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks the client's model for a capital."""
        found = (await call.ask({"capital_question": sample("What is the capital of France?")}))["capital_question"]
        return text(found["content"].get("text", ""))

    async def test_input_required_result_list_roots(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks for the client's roots."""
        found = (await call.ask({"client_roots": ROOTS}))["client_roots"]
        return text(json.dumps(found.get("roots", [])))

    async def test_input_required_result_request_state(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Answers only if its state came back whole."""
        await call.ask({"confirm": form("Confirm?", {"ok": {"type": "boolean"}}, ["ok"])})
        return text("state-ok")

    async def test_input_required_result_multiple_inputs(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks three things at once."""
        asks = {
            "user_name": form("What is your name?", NAME, ["name"]),
            "greeting": sample("Say hello."),
            "client_roots": ROOTS,
        }
        return text(json.dumps(sorted(await call.ask(asks))))

    async def test_input_required_result_multi_round(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks twice, the second time knowing the first answer."""
        first = (await call.ask({"step1": form("Step 1: what is your name?", NAME, ["name"])}))["step1"]
        colour = {"color": {"type": "string"}}
        second = (await call.ask({"step2": form("Step 2: your favourite colour?", colour, ["color"])}))["step2"]
        return text(f"{first.get('content')} {second.get('content')}")

    async def test_input_required_result_tampered_state(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Refuses a state that was changed."""
        await call.ask({"confirm": form("Confirm?", {"ok": {"type": "boolean"}}, ["ok"])})
        return text("state-ok")

    async def test_input_required_result_capabilities(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Asks only what the client can answer."""
        asks: dict[str, ClientQuestion] = {}
        if "sampling" in call.client.capabilities:
            asks["capital_question"] = sample("What is the capital of France?")
        if "elicitation" in call.client.capabilities:
            asks["user_name"] = form("What is your name?", NAME, ["name"])
        return text(json.dumps(sorted(await call.ask(asks))))


STRING = {"type": "string"}
SCHEMAS: dict[str, Any] = {
    "test_sampling": {"type": "object", "properties": {"prompt": STRING}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": STRING}, "required": ["message"]},
    "test_header_tool": {"type": "object", "properties": {"region": STRING | {"x-mcp-header": "Region"}}},
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": STRING, "city": STRING},
            }
        },
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}

PROMPTS: list[dict[str, Any]] = [
    {"name": "test_simple_prompt", "description": "A simple prompt"},
    {
        "name": "test_prompt_with_arguments",
        "description": "A prompt with arguments",
        "arguments": [
            {"name": "arg1", "description": "First", "required": True},
            {"name": "arg2", "description": "Second", "required": True},
        ],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "A prompt with a resource",
        "arguments": [{"name": "resourceUri", "description": "Its URI", "required": True}],
    },
    {"name": "test_prompt_with_image", "description": "A prompt with an image"},
    {"name": "test_input_required_result_prompt", "description": "A prompt that asks"},
]
RESOURCES: dict[str, dict[str, Any]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched resource content"},
}


def said(words: str) -> Result:
    return {"role": "user", "content": {"type": "text", "text": words}}


class Fixture:
    """The provider."""

    def __init__(self) -> None:
        self.changes = ChangeNotifier()
        self.info = {"name": "rookery-conformance", "version": "1.0.0"}
        self.instructions = None
        self.capabilities: dict[str, Any] = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "logging": {},
            "completions": {},
        }
        tools = Tools(self.changes)
        self._tools: dict[str, Callable[[Call, Mapping[str, Any]], Awaitable[Result]]] = {
            name: getattr(tools, name) for name in sorted(vars(Tools)) if not name.startswith("_")
        }
        self._methods: dict[str, Callable[[Call], Awaitable[Result]]] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return SCHEMAS.get(tool)

    async def handle(self, call: Call) -> Raw | Result:
        method = self._methods.get(call.method)
        if method is None:
            raise WireError(METHOD_NOT_FOUND, f"there is no method {call.method}")
        return await method(call)

    async def _list_tools(self, call: Call) -> Result:
        return {
            "tools": [
                {"name": name, "description": tool.__doc__, "inputSchema": SCHEMAS.get(name, NO_ARGUMENTS)}
                for name, tool in self._tools.items()
            ]
        }

    async def _call_tool(self, call: Call) -> Result:
        name = decode_text(call.params, "name")
        if name not in self._tools:
            raise WireError(INVALID_PARAMS, f"there is no tool {name}")
        given = msgspec.json.decode(call.params.get("arguments", Raw(b"{}")), type=dict[str, Any])
        return await self._tools[name](call, given)

    async def _list_resources(self, call: Call) -> Result:
        return {
            "resources": [
                {"uri": uri, "name": uri.removeprefix("test://"), "mimeType": found["mimeType"]}
                for uri, found in RESOURCES.items()
            ]
        }

    async def _list_templates(self, call: Call) -> Result:
        found = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
        return {"resourceTemplates": [found]}

    async def _read(self, call: Call) -> Result:
        uri = decode_text(call.params, "uri")
        if (found := RESOURCES.get(uri)) is not None:
            return {"contents": [{"uri": uri, **found}]}
        if match := TEMPLATE.fullmatch(uri):
            data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
        raise WireError(INVALID_PARAMS if call.client.modern else -32002, f"there is no resource {uri}", {"uri": uri})

    async def _list_prompts(self, call: Call) -> Result:
        return {"prompts": PROMPTS}

    async def _get_prompt(self, call: Call) -> Result:
        name = decode_text(call.params, "name")
        given = msgspec.json.decode(call.params.get("arguments", Raw(b"{}")), type=dict[str, str])
        if name == "test_simple_prompt":
            return {"messages": [said("This is a simple prompt for testing.")]}
        if name == "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            return {"messages": [said(words)]}
        if name == "test_prompt_with_embedded_resource":
            found = {"uri": given.get("resourceUri"), "mimeType": "text/plain"}
            found["text"] = "Embedded resource content for testing."
            content = {"type": "resource", "resource": found}
            return {
                "messages": [{"role": "user", "content": content}, said("Please process the embedded resource above.")]
            }
        if name == "test_prompt_with_image":
            return {"messages": [{"role": "user", "content": IMAGE}, said("Please analyze the image above.")]}
        if name == "test_input_required_result_prompt":
            asked = {"user_context": form("What is the context?", {"context": STRING}, ["context"])}
            found = (await call.ask(asked))["user_context"]
            return {"messages": [said(f"Context: {found.get('content', {}).get('context')}")]}
        raise WireError(INVALID_PARAMS, f"there is no prompt {name}")

    async def _complete(self, call: Call) -> Result:
        return {"completion": {"values": [], "total": 0, "hasMore": False}}
