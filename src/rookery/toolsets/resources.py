"""Something of a toolset that is read by its URI."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from rookery.gateway.catalog import Entry
from rookery.wire.provider import Call


@dataclass(frozen=True)
class Resource:
    """Something to read at `uri`, or at every URI that begins as the template does, up to its first brace.

    `read` gets the URI that was asked for, and answers text, or bytes of what is none. An error with a code that ends
    in `-not-found` says that there is no such resource.
    """

    uri: str
    name: str
    description: str
    read: Callable[[Call, str], Awaitable[str | bytes]]
    media_type: str = "text/plain"

    @property
    def is_template(self) -> bool:
        return "{" in self.uri

    def fits(self, uri: str) -> bool:
        return uri.startswith(self.uri.partition("{")[0]) if self.is_template else uri == self.uri

    def entry(self) -> Entry:
        key = "uriTemplate" if self.is_template else "uri"
        definition = {"name": self.name, "description": self.description, "mimeType": self.media_type}
        return Entry(self.uri, Raw(msgspec.json.encode({key: self.uri, **definition})))
