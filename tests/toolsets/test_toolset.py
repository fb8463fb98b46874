"""Resources of a toolset, as clients of a view see them: listed, read, and notified of changes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from rookery.system.errors import RookeryError
from rookery.toolsets.resources import Resource
from rookery.toolsets.toolset import Toolset
from rookery.wire.protocol.provider import Call
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.caller import ERAS, HANDSHAKE

pytestmark = pytest.mark.anyio


@dataclass
class Shelf:
    """Books by their number, one of which is a picture book, and the list of them."""

    books: dict[str, str | bytes] = field(default_factory=lambda: {"1": "once upon a time", "2": b"\x89PNG"})
    watched: list[frozenset[str]] = field(default_factory=list[frozenset[str]])

    def __post_init__(self) -> None:
        self.index = Resource("shelf://index", "index", "All books.", self._index)
        self.toolset = Toolset("project", [], self._resources(), on_watched=self.watched.append)

    def _resources(self) -> list[Resource]:
        return [self.index, Resource("book://{number}", "book", "A book.", self._book, "text/markdown")]

    async def _index(self, call: Call, uri: str) -> str:
        return " ".join(self.books)

    async def _book(self, call: Call, uri: str) -> str | bytes:
        number = uri.removeprefix("book://")
        if number == "torn":
            raise RookeryError("file-unreadable", "it is torn", "buy another one")
        if number not in self.books:
            raise RookeryError("resource-not-found", f"there is no book {number}")
        return self.books[number]


@asynccontextmanager
async def a_library() -> AsyncGenerator[tuple[Gateway, Shelf]]:
    """With another one's resources beside."""
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        shelf = Shelf()
        gateway.service.toolsets[:] = [lambda scope, directory: shelf.toolset]
        yield gateway, shelf


@pytest.mark.parametrize("era", ERAS)
async def test_resources_are_listed_and_read_by_their_uri_or_by_a_template(era: str) -> None:
    async with a_library() as (gateway, _):
        caller = await gateway.caller("/mcp", era)
        index = next(one for one in await caller.listed("resources") if one["uri"] == "shelf://index")
        assert index == {"uri": "shelf://index", "name": "index", "description": "All books.", "mimeType": "text/plain"}
        assert "book://{number}" in [one["uriTemplate"] for one in await caller.listed("resourceTemplates")]

        async def read(uri: str) -> dict[str, str]:
            (found,) = (await caller.ask("resources/read", {"uri": uri}))["result"]["contents"]
            return found

        assert await read("shelf://index") == {"uri": "shelf://index", "mimeType": "text/plain", "text": "1 2"}
        assert await read("book://1") == {"uri": "book://1", "mimeType": "text/markdown", "text": "once upon a time"}
        assert await read("book://2") == {"uri": "book://2", "mimeType": "text/markdown", "blob": "iVBORw=="}
        for uri in ("book://3", "shelf://other"):
            answer = await caller.ask("resources/read", {"uri": uri})
            assert answer["error"]["code"] == (-32002 if era == HANDSHAKE else -32602), uri
        ref = {"type": "ref/resource", "uri": "book://{number}"}
        nothing = await caller.ask("completion/complete", {"ref": ref, "argument": {"name": "number", "value": ""}})
        assert nothing["result"]["completion"]["values"] == []
        torn = (await caller.ask("resources/read", {"uri": "book://torn"}))["error"]
        assert (torn["message"], torn["data"]["code"]) == ("it is torn (buy another one)", "file-unreadable")


@pytest.mark.parametrize("era", ERAS)
async def test_clients_hear_of_what_they_watch_and_of_a_list_that_is_another_one(era: str) -> None:
    async with a_library() as (gateway, shelf):
        caller = await gateway.caller("/mcp", era)
        await caller.listed("resources")
        await caller.listen("book://1", "shelf://index")
        assert shelf.toolset.watched == {"book://1", "shelf://index"} == shelf.watched[-1]
        shelf.toolset.changes.resource_updated("book://2")
        shelf.toolset.changes.resource_updated("book://1")
        heard = await caller.hears("notifications/resources/updated")
        assert heard["params"]["uri"] == "book://1"
        shelf.toolset.set_resources([])
        await caller.hears("notifications/resources/list_changed")
        assert "shelf://index" not in [one["uri"] for one in await caller.listed("resources")]
        assert len(caller.all("notifications/resources/updated")) == 1
    assert shelf.toolset.watched == frozenset()
