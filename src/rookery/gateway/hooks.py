"""Hooks that run before and after a tool call, and may replace its arguments or its result; they cannot deny it."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from msgspec import Raw

from rookery.wire.protocol.messages import decode_object

logger = logging.getLogger("rookery.mcp.hooks")


@dataclass(frozen=True)
class ToolCall:
    """A call to a tool, as hooks see it. `arguments` is the JSON text of an object."""

    server: str
    tool: str
    public: str
    arguments: Raw
    workspace: str | None = None


Before = Callable[[ToolCall], Awaitable[Raw | None]]
After = Callable[[ToolCall, Raw], Awaitable[Raw | None]]


# Checks a result, given the names of the server and of what was asked for. Returns what is served instead of
# it, or raises.
ResultCheck = Callable[[str, str, Raw], Awaitable[Raw]]


@dataclass
class Hooks:
    """The hooks `tool.execute.before` and `tool.execute.after`, in the order in which they were added.

    `check_result` sees each result of a server last. What it raises is not ignored.
    """

    before: list[Before] = field(default_factory=list[Before])
    after: list[After] = field(default_factory=list[After])
    check_result: ResultCheck | None = None

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.check_result)

    async def run_before(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments as the hooks changed them."""
        for hook in list(self.before):
            try:
                call = replace(call, arguments=_check_replacement(call.arguments, await hook(call)))
            except Exception:
                logger.exception("a hook failed before %s and was ignored", call.public)
        return call

    async def run_after(self, call: ToolCall, result: Raw) -> Raw:
        """Return the result as the hooks changed it."""
        for hook in list(self.after):
            try:
                result = _check_replacement(result, await hook(call, result))
            except Exception:
                logger.exception("a hook failed after %s and was ignored", call.public)
        return result


def _check_replacement(old: Raw, replacement: Raw | None) -> Raw:
    """Return the result of a hook as replacement, which must be an object, or else `old`."""
    if replacement is None:
        return old
    decode_object(replacement, "the result of a hook")
    return replacement
