"""What of a toolset is read by its URI."""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.catalog import Entry
from rookery.system.errors import RookeryError
from rookery.toolsets.completing import Completing, completion, value_of
from rookery.wire.jsonrpc import INVALID_PARAMS, WireError
from rookery.wire.provider import Call

_NO_RESOURCE = -32002


@dataclass(frozen=True)
class Resource:
    """Something to read at `uri`, or at every URI that begins as the template does, up to its first brace.

    `read` gets the URI that was asked for, and answers text, or bytes of what is none. An error with a code that ends
    in `-not-found` says that there is no such resource. `complete` answers what may stand in the template's braces and
    begins with a text.
    """

    uri: str
    name: str
    description: str
    read: Callable[[Call, str], Awaitable[str | bytes]]
    media_type: str = "text/plain"
    complete: Completing | None = None

    @property
    def is_template(self) -> bool:
        return "{" in self.uri

    def fits(self, uri: str) -> bool:
        return uri.startswith(self.uri.partition("{")[0]) if self.is_template else uri == self.uri

    def entry(self) -> Entry:
        key = "uriTemplate" if self.is_template else "uri"
        definition = {"name": self.name, "description": self.description, "mimeType": self.media_type}
        return Entry(self.uri, Raw(msgspec.json.encode({key: self.uri, **definition})))


async def read_resource(resources: Sequence[Resource], call: Call, uri: str) -> Mapping[str, Any]:
    found = next((one for one in resources if one.fits(uri)), None)
    if found is None:
        raise _no_resource(call, f"there is no resource {uri}")
    try:
        read = await found.read(call, uri)
    except RookeryError as error:
        if error.code.endswith("-not-found"):
            raise _no_resource(call, results.words_of(error)) from None
        raise
    told = {"text": read} if isinstance(read, str) else {"blob": base64.b64encode(read).decode()}
    return {"contents": [{"uri": uri, "mimeType": found.media_type, **told}]}


async def complete(resources: Sequence[Resource], call: Call, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Nothing where nobody knows anything."""
    uri = params["ref"].get("uri")
    asked = next((one.complete for one in resources if one.uri == uri), None)
    return await completion(call, value_of(params).value, asked)


def _no_resource(call: Call, words: str) -> WireError:
    return WireError(INVALID_PARAMS if call.client.modern else _NO_RESOURCE, words)
