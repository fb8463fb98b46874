"""A request for a completion, reduced to the parts that scripts refer to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct, field

# OpenCode sends the images of tool results as a message of the user.
_MEDIA = "Attached media from tool result:"
# Words that identify OpenCode's own requests, and how many characters of the system prompt are searched. None of these
# requests offers tools.
_PROMPT_CHARS = 200
_TITLE = "title generator"
_SUMMARY = "summar"


class Message(Struct, frozen=True):
    """One message of a request."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[Any] | None = None

    @property
    def text(self) -> str:
        """The text of the message, without images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part.get("text") or "") for part in self.content or () if part.get("type") == "text")

    @property
    def is_from_user(self) -> bool:
        """Whether a user wrote the message."""
        return self.role == "user" and not self.text.startswith(_MEDIA)


class _Function(Struct, frozen=True):
    name: str = ""


class _Tool(Struct, frozen=True):
    function: _Function = _Function()


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class Completion(Struct, frozen=True):
    """The body of a request. Members that scripts do not refer to are ignored."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    model: str = "scripted"
    stream: bool = False
    tools: list[_Tool] | None = None
    stream_options: _StreamOptions | None = field(default=None)


@dataclass(frozen=True)
class ModelRequest:
    """A request: its body, the session that its header names, and its key."""

    body: Completion
    raw: Raw
    session_header: str | None = None
    key: str | None = None

    @staticmethod
    def parse(data: bytes, headers: Mapping[str, str]) -> "ModelRequest":
        """Parse a request. Raise ValueError if it is not a request for a completion."""
        body = msgspec.json.decode(data, type=Completion)
        key = headers.get("authorization", "").removeprefix("Bearer ") or None
        return ModelRequest(body, Raw(data), headers.get("x-session-id"), key)

    @property
    def messages(self) -> Sequence[Message]:
        return self.body.messages

    @cached_property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that are offered."""
        return tuple(tool.function.name for tool in self.body.tools or ())

    @cached_property
    def system(self) -> str:
        """The system prompt."""
        return "\n".join(message.text for message in self.messages if message.role in ("system", "developer"))

    @cached_property
    def user_messages(self) -> tuple[str, ...]:
        """The user's messages so far."""
        return tuple(message.text for message in self.messages if message.is_from_user)

    @property
    def session(self) -> str:
        """The session: its id or, without one, its first message."""
        return self.session_header or f"(begins with) {self.user_messages[0] if self.user_messages else ''}"

    @cached_property
    def _since_user(self) -> Sequence[Message]:
        """The messages after the user's last one."""
        last_index = max((index for index, message in enumerate(self.messages) if message.is_from_user), default=-1)
        return self.messages[last_index + 1 :]

    @property
    def replies(self) -> int:
        """The number of replies of the model to the user's last message; the request is for the next one.

        Text that is directly followed by another reply was cut off, and the other reply replaces it.
        """
        roles = [message.role for message in self._since_user] + [""]
        return sum(
            message.role == "assistant" and (bool(message.tool_calls) or follower != "assistant")
            for message, follower in zip(self._since_user, roles[1:], strict=True)
        )

    @cached_property
    def results(self) -> tuple[str, ...]:
        """The results of the calls of the last reply."""
        results: list[str] = []
        for message in self._since_user:
            if message.role == "assistant":
                results.clear()
            elif message.role == "tool":
                results.append(message.text)
        return tuple(results)

    @property
    def housekeeping(self) -> Literal["title", "summary"] | None:
        """`title` or `summary` if the agent asks for one on its own account, to name or shorten a session."""
        if self.body.tools:
            return None
        beginning = self.system[:_PROMPT_CHARS].lower()
        if _TITLE in beginning:
            return "title"
        return "summary" if _SUMMARY in beginning else None
