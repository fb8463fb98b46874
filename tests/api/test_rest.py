"""REST routes made from operations: where parameters are taken from, and what is refused before an operation runs."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

import aiohttp
import msgspec
import pytest
from starlette.applications import Starlette
from yarl import URL

from rookery.api.errors import handle_rookery_error
from rookery.api.rest import operation_routes
from rookery.operations.operation import Caller, Parameters, RestRoute, bind_operations, operation
from rookery.system.errors import RookeryError
from tests.support.http.listener import start_listener

pytestmark = pytest.mark.anyio


class Search(Parameters):
    name: str
    depth: int = 1
    limit: float | None = None
    exact: bool = False
    folder: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class SearchOperations:
    """Operations that return their parameters."""

    group = "search"

    @operation(changes=False, rest=RestRoute("GET", "/searches/{name}", short_path="/searches"))
    async def read(self, caller: Caller, arguments: Search) -> Search:
        """Return the parameters."""
        return arguments

    @operation(rest=RestRoute("POST", "/searches", names={"depth": "levels"}))
    async def create(self, caller: Caller, arguments: Search) -> Search:
        """Return the parameters."""
        return arguments


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    routes = operation_routes(bind_operations(SearchOperations()))
    app = Starlette(routes=routes, exception_handlers={RookeryError: handle_rookery_error})
    async with start_listener(app) as site:
        yield f"http://127.0.0.1:{site.port}/searches"


async def ask(method: str, url: str, body: Any = None) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.request(method, URL(url, encoded=True), json=body) as response:
        return response.status, await response.json()


DEFAULTS = {"name": "a", "depth": 1, "limit": None, "exact": False, "folder": None}


async def test_parameters_are_taken_from_path_and_query(url: str) -> None:
    assert await ask("GET", f"{url}/a") == (200, DEFAULTS)
    assert await ask("GET", f"{url}?name=a&exact=true&depth=3") == (200, DEFAULTS | {"exact": True, "depth": 3})
    # The path counts, an encoded slash is part of a name, and what is not known or empty is ignored.
    assert await ask("GET", f"{url}/x%2Fy?name=b&other=1&depth=&limit=1e3") == (
        200,
        DEFAULTS | {"name": "x/y", "limit": 1000.0},
    )


async def test_fields_of_a_body_may_be_in_the_query_and_the_body_counts(url: str) -> None:
    assert await ask("POST", url, {"name": "a", "levels": 2}) == (200, DEFAULTS | {"depth": 2})
    assert await ask("POST", f"{url}?name=a&levels=2") == (200, DEFAULTS | {"depth": 2})
    assert await ask("POST", f"{url}?name=b&levels=2", {"name": "a"}) == (200, DEFAULTS | {"depth": 2})


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "missing required field `name`"),
        ("name=a&depth=null", "depth='null' is not valid"),
        ("name=a&depth=1e3", "depth='1e3' is not valid"),
        ("name=a&depth=1.5", "depth='1.5' is not valid"),
        ("name=a&limit=nan", "limit='nan' is not valid"),
        ("name=a&limit=inf", "limit='inf' is not valid"),
        ("name=a&exact=yes", "exact='yes' is not valid"),
        ("name=a&folder=", "folder='' is not valid"),
    ],
)
async def test_values_of_another_type_are_refused_with_the_name_of_the_parameter(
    url: str, query: str, reason: str
) -> None:
    status, refused = await ask("GET", f"{url}?{query}")
    assert (status, refused["error"]["code"]) == (400, "invalid-input")
    assert reason in refused["error"]["message"] and refused["error"]["remedy"]


@pytest.mark.parametrize("body", [[], "text", {"name": "a", "depth": 1}, {"name": 1}, {"name": "a", "levels": "1"}])
async def test_bodies_of_another_form_are_refused_with_the_names_of_the_fields(url: str, body: Any) -> None:
    status, refused = await ask("POST", url, body)
    assert (status, refused["error"]["code"]) == (400, "invalid-input")
    assert refused["error"]["remedy"] == "send an object with: name, levels, limit, exact, folder"
