"""What a tool answered, as a loop around a model wants it: text, what is structured, and what is attached."""

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rookery.system.errors import RookeryError

_UNKNOWN = "application/octet-stream"


class _Inside(msgspec.Struct, rename="camel"):
    uri: str | None = None
    mime_type: str | None = None
    text: str = ""
    blob: str | None = None


class _Block(msgspec.Struct, rename="camel"):
    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    name: str = "resource"
    uri: str | None = None
    resource: _Inside | None = None


class _Error(msgspec.Struct):
    code: str
    message: str
    remedy: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    content: list[Any] = []
    structured_content: dict[str, Any] | None = None
    is_error: bool = False


@dataclass(frozen=True)
class Attachment:
    """An image, a sound or a file; `data` is base64, `uri` is where it is from, if that was told."""

    media_type: str
    data: str
    uri: str | None = None

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.data)


@dataclass(frozen=True)
class Result:
    """`text` is all text of the answer. `raw` is the answer as it came over MCP."""

    text: str
    structured: Mapping[str, Any] | None
    attachments: Sequence[Attachment]
    is_error: bool
    raw: Mapping[str, Any]

    def __str__(self) -> str:
        return self.text

    def failure(self, tool: str) -> RookeryError:
        """The error that a result with `is_error` tells of; of Rookery's own tools with code and remedy."""
        with contextlib.suppress(msgspec.ValidationError):
            told = msgspec.convert((self.structured or {}).get("error"), _Error)
            return RookeryError(told.code, told.message, told.remedy)
        return RookeryError("tool-failed", f"{tool}: {self.text or 'it failed without a word'}")


def result_of(answer: bytes | msgspec.Raw) -> Result:
    """What cannot be read of an answer is left out; `raw` has it."""
    found = msgspec.json.decode(answer, type=_Answer)
    blocks = [*_blocks(found.content)]
    return Result(
        text="\n".join(text for one in blocks if (text := _text(one)) is not None),
        structured=found.structured_content,
        attachments=[attached for one in blocks if (attached := _attached(one)) is not None],
        is_error=found.is_error,
        raw=msgspec.json.decode(answer, type=dict[str, Any]),
    )


def _blocks(content: Sequence[Any]) -> Iterator[_Block]:
    for one in content:
        with contextlib.suppress(msgspec.ValidationError):
            yield msgspec.convert(one, _Block)


def _text(block: _Block) -> str | None:
    if block.type == "resource_link":
        return f"{block.name}: {block.uri}"
    return block.text if block.type == "text" else None


def _attached(block: _Block) -> Attachment | None:
    if block.type in ("image", "audio"):
        return Attachment(block.mime_type or _UNKNOWN, block.data)
    inside = block.resource
    if block.type != "resource" or inside is None:
        return None
    if inside.blob is not None:
        return Attachment(inside.mime_type or _UNKNOWN, inside.blob, inside.uri)
    data = base64.b64encode(inside.text.encode()).decode()
    return Attachment(inside.mime_type or "text/plain", data, inside.uri)
