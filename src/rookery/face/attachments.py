"""The parts of a tool's answer: what is text, and what is attached to it."""

import base64
import contextlib
from dataclasses import dataclass
from typing import Any

import msgspec

_UNKNOWN = "application/octet-stream"


class _Inside(msgspec.Struct, rename="camel"):
    uri: str | None = None
    mime_type: str | None = None
    text: str = ""
    blob: str | None = None


class Block(msgspec.Struct, rename="camel"):
    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    name: str = "resource"
    uri: str | None = None
    resource: _Inside | None = None


@dataclass(frozen=True)
class Attachment:
    """An image, a sound or a file; `data` is base64, `uri` is where it is from, if that was told."""

    media_type: str
    data: str
    uri: str | None = None

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.data)

    @property
    def text(self) -> str | None:
        """What it says, where it is text."""
        if self.media_type.startswith("text/") or self.media_type.partition(";")[0] == "application/json":
            with contextlib.suppress(ValueError):
                return self.content.decode()
        return None

    def for_anthropic(self) -> dict[str, Any]:
        source = {"type": "base64", "media_type": self.media_type, "data": self.data}
        return {"type": "image", "source": source}


def text_of(block: Block) -> str | None:
    if block.type == "resource_link":
        return f"{block.name}: {block.uri}"
    return block.text if block.type == "text" else None


def attached(block: Block) -> Attachment | None:
    if block.type in ("image", "audio"):
        return Attachment(block.mime_type or _UNKNOWN, block.data)
    inside = block.resource
    if block.type != "resource" or inside is None:
        return None
    if inside.blob is not None:
        return Attachment(inside.mime_type or _UNKNOWN, inside.blob, inside.uri)
    data = base64.b64encode(inside.text.encode()).decode()
    return Attachment(inside.mime_type or "text/plain", data, inside.uri)
