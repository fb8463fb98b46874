"""Results of tools: text, structured content and attachments; and results of operations that are not JSON.

Results of tools convert to the formats of OpenAI's and Anthropic's APIs.
"""

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from rookery.system.errors import RookeryError

T = TypeVar("T")

_UNKNOWN = "application/octet-stream"

# The image types that Anthropic's API accepts.
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class _EmbeddedResource(msgspec.Struct, rename="camel"):
    uri: str | None = None
    mime_type: str | None = None
    text: str = ""
    blob: str | None = None


class ContentBlock(msgspec.Struct, rename="camel"):
    """A content block of an MCP result, with the fields of all types."""

    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    name: str = "resource"
    uri: str | None = None
    resource: _EmbeddedResource | None = None


@dataclass(frozen=True)
class Attachment:
    """An image, audio or file. `data` is base64, `uri` is its origin, if known."""

    media_type: str
    data: str
    uri: str | None = None

    @property
    def content(self) -> bytes:
        """The decoded data."""
        return base64.b64decode(self.data)

    @property
    def text(self) -> str | None:
        """The text, if the attachment is text or JSON."""
        if self.media_type.startswith("text/") or self.media_type.partition(";")[0] == "application/json":
            with contextlib.suppress(ValueError):
                return self.content.decode()
        return None

    def for_anthropic(self) -> dict[str, Any]:
        """Return an image as a content block for Anthropic's API."""
        source = {"type": "base64", "media_type": self.media_type, "data": self.data}
        return {"type": "image", "source": source}


@dataclass(frozen=True)
class BinaryResult:
    """A result that is not JSON, such as a picture. `headers` are Rookery's own, in lower case."""

    data: bytes
    media_type: str
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class StreamEvent(Generic[T]):
    """An event of a stream: its type, its data, and its id if it has one."""

    type: str
    data: T
    id: int | None = None


def read_text(block: ContentBlock) -> str | None:
    """Return the text of a block, or None if it has none."""
    if block.type == "resource_link":
        return f"{block.name}: {block.uri}"
    return block.text if block.type == "text" else None


def read_attachment(block: ContentBlock) -> Attachment | None:
    """Return the attachment of a block, or None if it has none."""
    if block.type in ("image", "audio"):
        return Attachment(block.mime_type or _UNKNOWN, block.data)
    embedded = block.resource
    if block.type != "resource" or embedded is None:
        return None
    if embedded.blob is not None:
        return Attachment(embedded.mime_type or _UNKNOWN, embedded.blob, embedded.uri)
    data = base64.b64encode(embedded.text.encode()).decode()
    return Attachment(embedded.mime_type or "text/plain", data, embedded.uri)


class _Error(msgspec.Struct):
    code: str
    message: str
    remedy: str = ""


class _ErrorResult(msgspec.Struct):
    error: _Error


class _Answer(msgspec.Struct, rename="camel"):
    content: list[Any] = []
    structured_content: Any = None
    is_error: bool = False


@dataclass(frozen=True)
class Result:
    """The result of a tool. `text` is all its text.

    `structured` is an object, or with newer servers any JSON value, or None. `raw` is the result as received over MCP.
    """

    text: str
    structured: Any
    attachments: Sequence[Attachment]
    is_error: bool
    raw: Mapping[str, Any]

    def __str__(self) -> str:
        return self.text

    def for_openai(self, call_id: str) -> dict[str, Any]:
        """Return the message that answers a call in requests to OpenAI's API, which only accepts text there."""
        return {"role": "tool", "tool_call_id": call_id, "content": self._model_text}

    def for_anthropic(self, call_id: str) -> dict[str, Any]:
        """Return the block that answers a call in requests to Anthropic's API, including images."""
        images = [attachment.for_anthropic() for attachment in self.attachments if attachment.media_type in _IMAGES]
        # The API rejects empty text blocks.
        content = [*([{"type": "text", "text": self._model_text}] if self._model_text else []), *images]
        return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": self.is_error}

    @property
    def _model_text(self) -> str:
        """All text for a model: the text and the text attachments, else the structured content."""
        texts = [self.text, *(text for attachment in self.attachments if (text := attachment.text) is not None)]
        joined = "\n".join(text for text in texts if text)
        return joined or (msgspec.json.encode(self.structured).decode() if self.structured is not None else "")

    def failure(self, tool: str) -> RookeryError:
        """Return the error of a result with `is_error`. Errors of Rookery's own tools keep their code and remedy."""
        with contextlib.suppress(msgspec.ValidationError):
            body = msgspec.convert(self.structured, _ErrorResult).error
            return RookeryError(body.code, body.message, body.remedy)
        return RookeryError("tool-failed", f"{tool}: {self.text or 'it failed without a message'}")


def parse_result(answer: bytes | msgspec.Raw) -> Result:
    """Parse the result of a tool. Invalid parts are left out, but are in `raw`."""
    response = msgspec.json.decode(answer, type=_Answer)
    blocks = [*_decode_blocks(response.content)]
    return Result(
        text="\n".join(text for block in blocks if (text := read_text(block)) is not None),
        structured=response.structured_content,
        attachments=[attachment for block in blocks if (attachment := read_attachment(block)) is not None],
        is_error=response.is_error,
        raw=msgspec.json.decode(answer, type=dict[str, Any]),
    )


def _decode_blocks(content: Sequence[Any]) -> Iterator[ContentBlock]:
    for entry in content:
        with contextlib.suppress(msgspec.ValidationError):
            yield msgspec.convert(entry, ContentBlock)
