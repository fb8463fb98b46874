"""What a model is asked: one request for a completion, as far as a script is about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct, field

# OpenCode sends the images of tool results as a message in the user's name.
_MEDIA = "Attached media from tool result:"
# What the system prompts of OpenCode's own requests begin with, in so many letters; none of them offers tools.
_BEGINNING = 200
_TITLE = "title generator"
_SUMMARY = "summar"


class Message(Struct, frozen=True):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[Any] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part.get("text") or "") for part in self.content or () if part.get("type") == "text")

    @property
    def is_users(self) -> bool:
        return self.role == "user" and not self.text.startswith(_MEDIA)


class _Function(Struct, frozen=True):
    name: str = ""


class _Tool(Struct, frozen=True):
    function: _Function = _Function()


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class Completion(Struct, frozen=True):
    """The body of a request; members that no script is about are not looked at."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    model: str = "scripted"
    stream: bool = False
    tools: list[_Tool] | None = None
    stream_options: _StreamOptions | None = field(default=None)


@dataclass(frozen=True)
class Asked:
    """A request: what it says, the session that its header names, and the key that it came with."""

    body: Completion
    raw: Raw
    session_header: str | None = None
    key: str | None = None

    @staticmethod
    def of(data: bytes, headers: Mapping[str, str]) -> "Asked":
        """ValueError if it is no request for a completion."""
        body = msgspec.json.decode(data, type=Completion)
        key = headers.get("authorization", "").removeprefix("Bearer ") or None
        return Asked(body, Raw(data), headers.get("x-session-id"), key)

    @property
    def messages(self) -> Sequence[Message]:
        return self.body.messages

    @cached_property
    def tools(self) -> tuple[str, ...]:
        return tuple(tool.function.name for tool in self.body.tools or ())

    @cached_property
    def system(self) -> str:
        return "\n".join(message.text for message in self.messages if message.role in ("system", "developer"))

    @cached_property
    def said(self) -> tuple[str, ...]:
        """What the user has said so far."""
        return tuple(message.text for message in self.messages if message.is_users)

    @property
    def session(self) -> str:
        """Who is speaking: a session by its id or, without one, by how it began."""
        return self.session_header or f"(begins with) {self.said[0] if self.said else ''}"

    @cached_property
    def _since_user(self) -> Sequence[Message]:
        last = max((at for at, message in enumerate(self.messages) if message.is_users), default=-1)
        return self.messages[last + 1 :]

    @property
    def replies(self) -> int:
        """How often the model has replied to the user's last message. What is asked for is the reply after these.

        Text with another reply right after it was cut off, and that other one came in its place.
        """
        roles = [message.role for message in self._since_user] + [""]
        return sum(
            message.role == "assistant" and (bool(message.tool_calls) or follower != "assistant")
            for message, follower in zip(self._since_user, roles[1:], strict=True)
        )

    @cached_property
    def results(self) -> tuple[str, ...]:
        """What the calls of the last reply came to."""
        found: list[str] = []
        for message in self._since_user:
            if message.role == "assistant":
                found.clear()
            elif message.role == "tool":
                found.append(message.text)
        return tuple(found)

    @property
    def housekeeping(self) -> Literal["title", "summary"] | None:
        """`title` or `summary`, if an agent asks on its own account, to name a session or to shorten it."""
        if self.body.tools:
            return None
        begins = self.system[:_BEGINNING].lower()
        if _TITLE in begins:
            return "title"
        return "summary" if _SUMMARY in begins else None
