"""A tool that the policy wants to be asked about: its user is, where the client can do that."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway.able import able
from rookery.gateway.table import Target
from rookery.system.visible import visible
from rookery.wire.jsonrpc import EMPTY, WireError
from rookery.wire.provider import Ask, Call

_METHOD = "elicitation/create"
_KEY = "consent"
_LONGEST_SHOWN = 2000
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Run it", "description": "Run this tool this one time"}},
    "required": ["allow"],
}
_ONLY_IF = "Do not work around it, and do not try again unless the user wants that."


class _Content(msgspec.Struct):
    allow: bool = False


class _Answer(msgspec.Struct):
    """Everything but a clear yes is a no."""

    action: str
    content: _Content | None = None


async def refused(call: Call, target: Target, seconds: float, now: Callable[[], Target | None]) -> str:
    """Why the tool is not to be run; nothing where it is. `now` tells of it as it is when its user has answered."""
    if target.verdict.action == "deny" or not call.askable or not able(call, _METHOD, {}):
        return target.verdict.why
    try:
        async with asyncio.timeout(seconds):
            answer = (await call.ask_raw({_KEY: Ask(_METHOD, _question(call, target))}))[_KEY]
    except TimeoutError:
        return f"The tool {target.public} was not run: its user was asked, and did not answer within {seconds:g} s."
    except WireError as error:
        told = visible(error.message)[:_LONGEST_SHOWN]
        return f"The tool {target.public} was not run: its user was to be asked, and the client refused: {told}"
    if not _is_yes(answer):
        return f"The tool {target.public} was not run: its user did not allow it. {_ONLY_IF}"
    found = now()
    if found is None:
        return f"The tool {target.public} was not run: it is no longer there."
    return found.verdict.why if found.verdict.action == "deny" else ""


def _question(call: Call, target: Target) -> dict[str, Any]:
    given = visible(bytes(call.params.get("arguments", EMPTY)).decode())
    shown = given if len(given) <= _LONGEST_SHOWN else f"{given[:_LONGEST_SHOWN]}… ({len(given)} characters)"
    whose = "Rookery" if target.member.ours else f'the MCP server "{visible(target.member.name)}"'
    message = f"May the tool {target.public} of {whose} be run with these arguments? {shown}"
    return {"mode": "form", "message": message, "requestedSchema": _FORM}


def _is_yes(answer: Raw) -> bool:
    try:
        found = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, RecursionError):
        return False
    return found.action == "accept" and found.content is not None and found.content.allow
