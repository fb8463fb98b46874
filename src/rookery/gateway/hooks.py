"""What may look at a tool call before and after it, and replace what goes in or comes out; it cannot deny."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from msgspec import Raw

from rookery.wire.jsonrpc import object_of

logger = logging.getLogger("rookery.hooks")


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


@dataclass
class Hooks:
    """`tool.execute.before` and `tool.execute.after`, in the order they were added."""

    before: list[Before] = field(default_factory=list[Before])
    after: list[After] = field(default_factory=list[After])

    def __bool__(self) -> bool:
        return bool(self.before or self.after)

    async def run_before(self, call: ToolCall) -> ToolCall:
        """The call with the arguments that the hooks made of it."""
        for hook in list(self.before):
            try:
                call = replace(call, arguments=_replaced(call.arguments, await hook(call)))
            except Exception:
                logger.exception("a hook failed before %s, and is ignored", call.public)
        return call

    async def run_after(self, call: ToolCall, result: Raw) -> Raw:
        for hook in list(self.after):
            try:
                result = _replaced(result, await hook(call, result))
            except Exception:
                logger.exception("a hook failed after %s, and is ignored", call.public)
        return result


def _replaced(old: Raw, given: Raw | None) -> Raw:
    """What a hook gives instead, which must be an object as well."""
    if given is None:
        return old
    object_of(given, "what a hook gives")
    return given
