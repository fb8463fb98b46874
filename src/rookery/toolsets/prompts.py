"""What of a toolset are texts that a client can put before its model, with a few blanks to fill in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway.catalog import Entry
from rookery.system.errors import RookeryError
from rookery.toolsets.completing import Completing, completion, value_of
from rookery.wire.jsonrpc import EMPTY, INVALID_PARAMS, WireError
from rookery.wire.provider import Call

# MCP knows texts only; whoever sends a number means its digits.
_given = msgspec.json.Decoder(dict[str, str | int | float])


@dataclass(frozen=True)
class Blank:
    """An argument of a prompt. `complete` answers what may stand there and begins with a text."""

    name: str
    description: str
    required: bool = False
    complete: Completing | None = None


@dataclass(frozen=True)
class Prompt:
    """`fill` gets what was given for its blanks, those that are required at least, and answers the text."""

    name: str
    description: str
    fill: Callable[[Mapping[str, str]], str]
    blanks: Sequence[Blank] = field(default_factory=list[Blank])

    def entry(self) -> Entry:
        arguments = [
            {"name": one.name, "description": one.description, "required": one.required} for one in self.blanks
        ]
        definition = {"name": self.name, "description": self.description, "arguments": arguments}
        return Entry(self.name, Raw(msgspec.json.encode(definition)))


def get_prompt(prompts: Sequence[Prompt], params: Mapping[str, Any]) -> Mapping[str, Any]:
    found = next((one for one in prompts if one.name == params.get("name")), None)
    if found is None:
        raise WireError(INVALID_PARAMS, f"there is no prompt {params.get('name')}")
    try:
        given = {name: str(value) for name, value in _given.decode(params.get("arguments", EMPTY)).items()}
    except msgspec.DecodeError as error:
        raise WireError(INVALID_PARAMS, f"the arguments of {found.name} do not fit: {error}") from None
    missing = [one.name for one in found.blanks if one.required and not given.get(one.name)]
    unknown = sorted(given.keys() - {one.name for one in found.blanks})
    if missing or unknown:
        told = [*(f"{name} is missing" for name in missing), *(f"there is no {name}" for name in unknown)]
        raise WireError(INVALID_PARAMS, f"the arguments of {found.name} do not fit: {', '.join(told)}")
    try:
        text = found.fill(given)
    except RookeryError as error:
        raise WireError(INVALID_PARAMS, f"the arguments of {found.name} do not fit: {error.message}") from None
    content = {"type": "text", "text": text}
    return {"description": found.description, "messages": [{"role": "user", "content": content}]}


async def complete_prompt(prompts: Sequence[Prompt], call: Call, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Nothing where nobody knows anything."""
    name, blank = params["ref"].get("name"), value_of(params)
    blanks = [one for prompt in prompts if prompt.name == name for one in prompt.blanks if one.name == blank.name]
    return await completion(call, blank.value, blanks[0].complete if blanks else None)


def number_of(given: Mapping[str, str], name: str, default: float) -> float:
    """The number that was given as text."""
    try:
        found = float(given.get(name, default))
    except ValueError:
        raise RookeryError("invalid-input", f"{name} is no number") from None
    if not 0 < found < 86_400:
        raise RookeryError("invalid-input", f"{name} is not between 0 and 86400")
    return found
