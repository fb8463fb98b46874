"""The tools of `project` about context: what is known of a workspace within a budget, and each part of it whole."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import Meta

from rookery.files.context.engine import BUDGET, LEAST, MOST, Answer, Context
from rookery.files.context.rendering import Receipt
from rookery.toolsets.resources import Resource
from rookery.toolsets.toolset import Blocks, Tool
from rookery.wire.provider import Call

SCHEME = "context://"
# Before this revision nobody knows a link as content.
_KNOWS_LINKS = "2025-06-18"
_MOST_LINKS = 20


class GetContext(msgspec.Struct):
    """What else is sent is ignored: it was always called without any input."""

    budget: Annotated[int, Meta(description="About how many tokens the answer may have", ge=LEAST, le=MOST)] = BUDGET
    since: Annotated[
        str | None, Meta(description="Token of an earlier answer: only what has changed since is told")
    ] = None


ContextOf = Callable[[Call], Awaitable[Context]]


def context_tool(context: ContextOf) -> Tool:
    """`context` answers that of the workspace that a view acts in, as far as the caller may see it."""

    async def get_project_context(call: Call, given: GetContext) -> Blocks:
        answer = await (await context(call)).get(budget=given.budget, since=given.since)
        links = _links(answer) if call.client.revision >= _KNOWS_LINKS else []
        receipts = [_told(one) for one in answer.receipts]
        about = {"since": answer.since, "receipts": receipts}
        return Blocks([{"type": "text", "text": answer.text}, *links], {"rookery/context": about})

    return Tool(
        "get_project_context",
        "Get what is to be known of this workspace before you begin: its files, git status, changes and commits, notes "
        "for agents, just tasks, agents and what they said last, containers and their errors, and recent failures. It "
        "is filled by priority into a budget of tokens; what has no room is named, with where to read it.",
        get_project_context,
        takes=GetContext,
        gives=Blocks,
        read_only=True,
    )


def context_resource(context: ContextOf) -> Resource:
    async def read(call: Call, uri: str) -> str:
        return (await (await context(call)).whole(unquote(uri.removeprefix(SCHEME)))).text

    async def complete(call: Call, begun: str) -> list[str]:
        return [quote(key) for key in await (await context(call)).keys() if key.startswith(unquote(begun))]

    return Resource(
        f"{SCHEME}{{+section}}",
        "context",
        "One section of the project's context, whole. get_project_context names the sections, such as git/status, "
        "tree, tasks or files/README.md.",
        read,
        complete=complete,
    )


def _links(answer: Answer) -> list[dict[str, Any]]:
    """To the whole of what is not there, or not whole."""
    found = [one for one in answer.receipts if one.uri]
    return [
        {"type": "resource_link", "uri": one.uri, "name": one.key, "mimeType": "text/plain"}
        for one in found[:_MOST_LINKS]
    ]


def _told(receipt: Receipt) -> dict[str, Any]:
    told: dict[str, Any] = {
        "key": receipt.key,
        "status": receipt.status,
        "priority": receipt.priority,
        "tokens": receipt.tokens,
    }
    told |= {"reason": receipt.reason} if receipt.reason else {}
    return told | ({"uri": receipt.uri} if receipt.uri else {})
