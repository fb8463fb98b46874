"""The resources and prompts of a toolset, and the completion of their arguments."""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.provider import CatalogEntry
from rookery.system.errors import RookeryError
from rookery.wire.protocol.messages import EMPTY_OBJECT, INVALID_PARAMS, WireError
from rookery.wire.protocol.provider import Call

_MAX_VALUES = 100

# Returns the values that start with a text.
Completer = Callable[[Call, str], Awaitable[Sequence[str]]]

_NO_RESOURCE = -32002


class CompletionArgument(msgspec.Struct):
    name: str = ""
    value: str = ""


def completion_value(params: Mapping[str, Any]) -> CompletionArgument:
    """Return the argument to complete."""
    try:
        return msgspec.json.decode(params.get("argument", EMPTY_OBJECT), type=CompletionArgument)
    except msgspec.DecodeError as error:
        raise WireError(INVALID_PARAMS, f"the argument to complete is invalid: {error}") from None


async def make_completion(call: Call, value: str, completer: Completer | None) -> Mapping[str, Any]:
    """Return the result of a completion, with at most 100 values."""
    values = list(await completer(call, value)) if completer is not None else []
    more = len(values) > _MAX_VALUES
    return {"completion": {"values": values[:_MAX_VALUES], "total": len(values), "hasMore": more}}


@dataclass(frozen=True)
class AnnotatedText:
    """A text, and a note about it that follows as a second, plain text."""

    text: str
    note: str


@dataclass(frozen=True)
class Resource:
    """A resource at `uri`, or at every URI that starts like the template up to its first brace.

    `read` gets the requested URI, and returns text, with or without a note, or the bytes of other content. An error
    with a code that ends in `-not-found` means that there is no such resource. `complete` returns the values for the
    template's braces that start with a text.
    """

    uri: str
    name: str
    description: str
    read: Callable[[Call, str], Awaitable[str | bytes | AnnotatedText]]
    media_type: str = "text/plain"
    complete: Completer | None = None

    @property
    def is_template(self) -> bool:
        return "{" in self.uri

    def matches(self, uri: str) -> bool:
        return uri.startswith(self.uri.partition("{")[0]) if self.is_template else uri == self.uri

    def entry(self) -> CatalogEntry:
        key = "uriTemplate" if self.is_template else "uri"
        definition = {"name": self.name, "description": self.description, "mimeType": self.media_type}
        return CatalogEntry(self.uri, Raw(msgspec.json.encode({key: self.uri, **definition})))


async def read_resource(resources: Sequence[Resource], call: Call, uri: str) -> Mapping[str, Any]:
    resource = next((candidate for candidate in resources if candidate.matches(uri)), None)
    if resource is None:
        raise _no_resource(call, f"there is no resource {uri}")
    try:
        content = await resource.read(call, uri)
    except RookeryError as error:
        if error.code.endswith("-not-found"):
            raise _no_resource(call, results.error_text(error)) from None
        raise
    contents: list[dict[str, str]] = []
    if isinstance(content, AnnotatedText):
        contents.append({"uri": uri, "mimeType": "text/plain", "text": content.note})
        content = content.text
    fields = {"text": content} if isinstance(content, str) else {"blob": base64.b64encode(content).decode()}
    return {"contents": [{"uri": uri, "mimeType": resource.media_type, **fields}, *contents]}


async def complete_resource(resources: Sequence[Resource], call: Call, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return completions for a resource; none if it has no completer."""
    uri = params["ref"].get("uri")
    completer = next((resource.complete for resource in resources if resource.uri == uri), None)
    return await make_completion(call, completion_value(params).value, completer)


def _no_resource(call: Call, message: str) -> WireError:
    return WireError(INVALID_PARAMS if call.client.modern else _NO_RESOURCE, message)


# MCP allows strings only; a number stands for its digits.
_argument_decoder = msgspec.json.Decoder(dict[str, str | int | float])


@dataclass(frozen=True)
class PromptArgument:
    """An argument of a prompt. `complete` returns the possible values that start with a text."""

    name: str
    description: str
    required: bool = False
    complete: Completer | None = None


@dataclass(frozen=True)
class Prompt:
    """A prompt. `fill` gets the arguments, at least the required ones, and returns the text."""

    name: str
    description: str
    fill: Callable[[Mapping[str, str]], str]
    arguments: Sequence[PromptArgument] = field(default_factory=list[PromptArgument])

    def entry(self) -> CatalogEntry:
        arguments = [
            {"name": blank.name, "description": blank.description, "required": blank.required}
            for blank in self.arguments
        ]
        definition = {"name": self.name, "description": self.description, "arguments": arguments}
        return CatalogEntry(self.name, Raw(msgspec.json.encode(definition)))


def get_prompt(prompts: Sequence[Prompt], params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a filled prompt; raise if its arguments are missing, unknown or invalid."""
    prompt = next((candidate for candidate in prompts if candidate.name == params.get("name")), None)
    if prompt is None:
        raise WireError(INVALID_PARAMS, f"there is no prompt {params.get('name')}")
    try:
        arguments = {
            name: str(value) for name, value in _argument_decoder.decode(params.get("arguments", EMPTY_OBJECT)).items()
        }
    except msgspec.DecodeError as error:
        raise WireError(INVALID_PARAMS, f"invalid arguments for {prompt.name}: {error}") from None
    missing = [blank.name for blank in prompt.arguments if blank.required and not arguments.get(blank.name)]
    unknown = sorted(arguments.keys() - {blank.name for blank in prompt.arguments})
    if missing or unknown:
        problems = [*(f"{name} is missing" for name in missing), *(f"there is no {name}" for name in unknown)]
        raise WireError(INVALID_PARAMS, f"invalid arguments for {prompt.name}: {', '.join(problems)}")
    try:
        text = prompt.fill(arguments)
    except RookeryError as error:
        raise WireError(INVALID_PARAMS, f"invalid arguments for {prompt.name}: {error.message}") from None
    content = {"type": "text", "text": text}
    return {"description": prompt.description, "messages": [{"role": "user", "content": content}]}


async def complete_prompt(prompts: Sequence[Prompt], call: Call, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return completions for an argument of a prompt; none if it has no completer."""
    name = params["ref"].get("name")
    argument = completion_value(params)
    blanks = [
        blank for prompt in prompts if prompt.name == name for blank in prompt.arguments if blank.name == argument.name
    ]
    return await make_completion(call, argument.value, blanks[0].complete if blanks else None)


def read_number(arguments: Mapping[str, str], name: str, default: float) -> float:
    """Return the number that an argument has as text, or the default."""
    try:
        number = float(arguments.get(name, default))
    except ValueError:
        raise RookeryError("invalid-input", f"{name} is not a number") from None
    if not 0 < number < 86_400:
        raise RookeryError("invalid-input", f"{name} is not between 0 and 86400")
    return number
