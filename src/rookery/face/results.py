"""What a tool answered, as a loop around a model wants it: text, what is structured, and what is attached."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rookery.face.attachments import Attachment, Block, attached, text_of
from rookery.system.errors import RookeryError

# What Anthropic's API takes.
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class _Error(msgspec.Struct):
    code: str
    message: str
    remedy: str = ""


class _Failed(msgspec.Struct):
    error: _Error


class _Answer(msgspec.Struct, rename="camel"):
    content: list[Any] = []
    structured_content: Any = None
    is_error: bool = False


@dataclass(frozen=True)
class Result:
    """`text` is all text of the answer. `structured` is an object, or with newer servers any value of JSON; or None.

    `raw` is the answer as it came over MCP.
    """

    text: str
    structured: Any
    attachments: Sequence[Attachment]
    is_error: bool
    raw: Mapping[str, Any]

    def __str__(self) -> str:
        return self.text

    def for_openai(self, call_id: str) -> dict[str, Any]:
        """As the message that answers a call in requests to OpenAI's API, which takes nothing but text there."""
        return {"role": "tool", "tool_call_id": call_id, "content": self._said}

    def for_anthropic(self, call_id: str) -> dict[str, Any]:
        """As the block that answers a call in requests to Anthropic's API; images go with it."""
        images = [one.for_anthropic() for one in self.attachments if one.media_type in _IMAGES]
        # No text is refused where it is empty.
        content = [*([{"type": "text", "text": self._said}] if self._said else []), *images]
        return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": self.is_error}

    @property
    def _said(self) -> str:
        """All that a model can read: text, and what is attached as text; where there is none, what is structured."""
        texts = [self.text, *(text for one in self.attachments if (text := one.text) is not None)]
        said = "\n".join(text for text in texts if text)
        return said or (msgspec.json.encode(self.structured).decode() if self.structured is not None else "")

    def failure(self, tool: str) -> RookeryError:
        """The error that a result with `is_error` tells of; of Rookery's own tools with code and remedy."""
        with contextlib.suppress(msgspec.ValidationError):
            told = msgspec.convert(self.structured, _Failed).error
            return RookeryError(told.code, told.message, told.remedy)
        return RookeryError("tool-failed", f"{tool}: {self.text or 'it failed without a word'}")


def result_of(answer: bytes | msgspec.Raw) -> Result:
    """What cannot be read of an answer is left out; `raw` has it."""
    told = msgspec.json.decode(answer, type=_Answer)
    blocks = [*_blocks(told.content)]
    return Result(
        text="\n".join(text for one in blocks if (text := text_of(one)) is not None),
        structured=told.structured_content,
        attachments=[found for one in blocks if (found := attached(one)) is not None],
        is_error=told.is_error,
        raw=msgspec.json.decode(answer, type=dict[str, Any]),
    )


def _blocks(content: Sequence[Any]) -> Iterator[Block]:
    for one in content:
        with contextlib.suppress(msgspec.ValidationError):
            yield msgspec.convert(one, Block)
