"""Resources by the URIs that servers mention in results: links, expanded templates, and URIs that nobody lists."""

from typing import Any

import pytest

from rookery.gateway.names import matches_template
from tests.support.gateway.gateway import checkout, start_gateway, view_of
from tests.support.mcp.caller import ERAS, HANDSHAKE, Caller
from tests.support.mcp.scripted_server import Message, ScriptedServers, ServerScript
from tests.support.requirements import requirement


def library(name: str, *uris: str, templates: tuple[str, ...] = ()) -> ServerScript:
    """Return a server that has these resources, lists only the first, and refuses all others."""

    def read(params: Message) -> Any:
        if params["uri"] not in uris:
            return LookupError(f"{name} has no {params['uri']}")
        return {"contents": [{"uri": params["uri"], "text": f"{params['uri']} of {name}"}]}

    return ServerScript(
        resources=[{"uri": uris[0], "name": "first"}],
        templates=[{"uriTemplate": one, "name": one} for one in templates],
        replies={"resources/read": read},
    )


def libraries(scripted: ScriptedServers) -> dict[str, Any]:
    return {
        "left": scripted.server("left", library("left", "l://1", "note://a/b", templates=("note://{who}/{what}",))),
        "right": scripted.server("right", library("right", "r://1", "r://2")),
        "plain": scripted.server("plain"),
    }


async def read(caller: Caller, uri: str) -> str:
    found = await caller.ask("resources/read", {"uri": uri})
    return found["result"]["contents"][0]["text"] if "result" in found else f"refused: {found['error']['message']}"


@pytest.mark.anyio
@requirement("servers.resource.links")
@pytest.mark.parametrize("era", ERAS)
async def test_uris_of_links_templates_and_results_are_read_through_both_views(era: str) -> None:
    folder = checkout()
    async with start_gateway(libraries, folder) as gateway:
        # One that is listed, an expansion of a template, and one that is neither: each as a result would mention it.
        for path in (view_of(folder), "/mcp"):
            caller = await gateway.caller(path, era)
            await caller.tools()
            assert await read(caller, "l://1") == "l://1 of left"
            assert await read(caller, "left+l://1") == "l://1 of left"
            assert await read(caller, "note://a/b") == "note://a/b of left"
            assert await read(caller, "left+note://a/b") == "note://a/b of left"
            assert await read(caller, "r://2") == "r://2 of right"
        single = await gateway.caller(view_of(folder, "right"), era)
        await single.tools()
        assert [await read(single, f"r://{number}") for number in (1, 2)] == ["r://1 of right", "r://2 of right"]
        # No server but that of the template was asked for what matches it.
        assert not any("note://" in str(one) for one in gateway.scripted.of("right")[0].heard)


@pytest.mark.anyio
async def test_a_uri_that_any_server_may_have_is_asked_of_each_until_one_has_it() -> None:
    async with start_gateway(libraries) as gateway:
        caller = await gateway.caller("/mcp", HANDSHAKE)
        await caller.tools()
        assert await read(caller, "x://nobody") == "refused: right has no x://nobody"
        for name, count in (("left", 1), ("right", 1), ("plain", 0)):
            assert len(gateway.scripted.of(name)[0].all("resources/read")) == count
        # One with the scheme of a server is of that server.
        assert await read(caller, "left+r://2") == "refused: left has no r://2"


@pytest.mark.parametrize(
    ("template", "uri", "matches"),
    [
        ("note://{name}", "note://a", True),
        ("note://{name}", "note://a/b", False),
        ("note://{+path}", "note://a/b", True),
        ("file:///{path*}", "file:///a", True),
        ("db://{table}/rows{?limit,from}", "db://users/rows?limit=5", True),
        ("db://{table}/rows{?limit,from}", "db://users/rows", True),
        ("db://{table}/rows", "db://users/columns", False),
        ("a.b://{x}", "aXb://1", False),
        ("{+uri}", "anything://at/all", True),
        ("x://" + "{a}-" * 40 + "z", "x://" + "-" * 5000, False),
    ],
)
def test_a_template_matches_its_expansions(template: str, uri: str, matches: bool) -> None:
    assert matches_template(template, uri) is matches
