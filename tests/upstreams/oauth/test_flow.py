"""A sign-in with wrong metadata: the SDK's own flow, with a lying authorization server."""

from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from rookery.system.errors import RookeryError
from rookery.upstreams.oauth.addresses import AddressRules
from rookery.upstreams.oauth.callback import CallbackServer, RedirectAddress
from rookery.upstreams.oauth.flow import SignInFlow
from rookery.upstreams.oauth.messages import BrowserPrompt, Grant, HelperRequest, ProbeResult, SignInStep, Terms
from tests.support.mcp.client import (
    HandshakeHandler,
    HttpRequest as Request,
    HttpResponder,
    ScriptedHttpServer,
    within_limit,
)
from tests.support.mcp.oauth import RESOURCE, Issuer, OAuthServers, browse, start_oauth_servers
from tests.support.requirements import requirement
from tests.upstreams.oauth.test_addresses import names

pytestmark = pytest.mark.anyio


@dataclass
class Heard:
    """All that a flow said; a person who says yes to whatever is asked."""

    steps: list[SignInStep] = field(default_factory=list[SignInStep])
    asked: list[BrowserPrompt] = field(default_factory=list[BrowserPrompt])

    def __call__(self, told: SignInStep | BrowserPrompt) -> None:
        (self.steps if isinstance(told, SignInStep) else self.asked).append(told)  # pyright: ignore[reportArgumentType]

    @property
    def whats(self) -> list[str]:
        return [step.what for step in self.steps]


async def sign_in(errand: HelperRequest, heard: Heard, rules: AddressRules | None = None) -> Grant | ProbeResult:
    callback = CallbackServer(RedirectAddress())
    await callback.open()

    def said(told: SignInStep | BrowserPrompt) -> None:
        heard(told)
        if isinstance(told, BrowserPrompt):
            asked.append(told.url)

    asked: list[str] = []
    original = callback.wait_for_response

    async def returned() -> Any:
        async with aiohttp.ClientSession() as http:
            why = callback.accept(await browse(http, asked[-1]))
            assert why is None, why
        return await original()

    callback.wait_for_response = returned
    try:
        flow = SignInFlow(errand, rules or await AddressRules.for_server(errand.url), said, callback)
        return await within_limit(flow.run())
    finally:
        await callback.close()


def errand(oauth: OAuthServers, **more: Any) -> HelperRequest:
    where = oauth.url.removesuffix("/mcp") + RESOURCE
    challenge = f'Bearer resource_metadata="{where}"'
    said: dict[str, Any] = {"mode": "login", "url": oauth.url, "challenge": challenge, "seconds": 30.0}
    return HelperRequest(**(said | more))


async def granted(oauth: OAuthServers, **more: Any) -> Grant:
    found = await sign_in(errand(oauth, **more), Heard())
    assert isinstance(found, Grant)
    return found


FORBIDDEN = ["http://169.254.169.254/x", "http://10.0.0.1/x", "http://2852039166/x", "http://[::ffff:10.0.0.1]/x"]
TRICKS = ["file:///etc/passwd", "javascript:alert(1)", "data:text/html,x"]


@requirement("hub.signin.addresses")
@pytest.mark.parametrize("url", [*FORBIDDEN, *TRICKS])
@pytest.mark.parametrize(
    "where", ["resource_metadata", "authorization_servers", "token_endpoint", "registration_endpoint"]
)
async def test_s3_c16_no_address_that_is_forbidden_is_fetched(where: str, url: str) -> None:
    async with start_oauth_servers(HandshakeHandler()) as oauth:
        asked = errand(oauth)
        if where == "resource_metadata":
            asked = errand(oauth, challenge=f'Bearer resource_metadata="{url}"')
        elif where == "authorization_servers":
            oauth.server.said["authorization_servers"] = [url]
        else:
            oauth.issuer.said[where] = url
        heard = Heard()
        with pytest.raises(RookeryError) as caught:
            await sign_in(asked, heard)
        assert caught.value.code == "address-refused"
        assert oauth.issuer.exchanged == []
        if where != "token_endpoint":
            assert heard.asked == []


@requirement("hub.signin.addresses")
@pytest.mark.parametrize("url", [*FORBIDDEN, *TRICKS, "http://$(touch /tmp/x)/"])
async def test_s7_c16_no_person_is_sent_to_an_address_that_is_forbidden(url: str) -> None:
    async with start_oauth_servers(HandshakeHandler(), Issuer(said={"authorization_endpoint": url})) as oauth:
        heard = Heard()
        with pytest.raises(RookeryError) as caught:
            await sign_in(errand(oauth), heard)
        assert caught.value.code == "address-refused"
        assert heard.asked == [] and oauth.issuer.exchanged == []


@requirement("hub.signin.addresses")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_s3_a_redirect_is_not_followed_elsewhere(status: int) -> None:
    async def elsewhere(asked: Request, out: HttpResponder) -> None:
        await out.json({"resource": asked.path, "authorization_servers": ["http://127.0.0.1:1"]})

    async with ScriptedHttpServer(elsewhere) as trap, start_oauth_servers(HandshakeHandler()) as oauth:

        async def lead(asked: Request, out: HttpResponder) -> None:
            await out.answer(status, headers={"Location": trap.url.replace("/mcp", asked.path)})

        oauth.at_server.handler = lead
        with pytest.raises(RookeryError):
            await sign_in(errand(oauth), Heard())
        assert trap.asked == []


@requirement("hub.signin.addresses")
async def test_s3_a_public_server_is_followed_to_nothing_on_this_machine() -> None:
    async with start_oauth_servers(HandshakeHandler()) as oauth:
        rules = await AddressRules.for_server("http://mcp.example/mcp", names(mcp_example="93.184.216.34"))
        asked = HelperRequest(mode="login", url="http://mcp.example/mcp", challenge=errand(oauth).challenge)
        with pytest.raises(RookeryError, match="which is loopback"):
            await sign_in(asked, Heard(), rules)
        assert oauth.at_server.asked == oauth.at_issuer.asked == []


@requirement("hub.signin.flow")
@pytest.mark.parametrize(
    ("said", "returned", "why"),
    [
        ({}, {"iss": "https://evil.example"}, "iss mismatch"),
        ({}, {"iss": None}, "missing iss"),
        ({"issuer": "http://127.0.0.1:1"}, {}, "issuer mismatch"),
        ({"code_challenge_methods_supported": ["plain"]}, {}, "PKCE"),
        ({"code_challenge_methods_supported": "S256"}, {}, "PKCE"),
        ({"code_challenge_methods_supported": None}, {}, "PKCE"),
    ],
)
async def test_s9_an_answer_from_another_issuer_is_refused_and_so_is_one_without_pkce(
    said: dict[str, Any], returned: dict[str, str | None], why: str
) -> None:
    async with start_oauth_servers(HandshakeHandler(), Issuer(said=said, returned=returned)) as oauth:
        with pytest.raises(RookeryError, match=why):
            await sign_in(errand(oauth), Heard())
        assert oauth.issuer.exchanged == []
        assert oauth.issuer.asked == [] or returned


async def test_s2_a_resource_that_is_another_servers_is_refused() -> None:
    async with start_oauth_servers(HandshakeHandler(), said={"resource": "http://127.0.0.1:1/other"}) as oauth:
        with pytest.raises(RookeryError, match="does not match"):
            await sign_in(errand(oauth), Heard())


@requirement("hub.signin.flow")
@pytest.mark.parametrize("registers", [None, 403])
async def test_where_no_client_can_be_registered_it_is_said_how_to_give_one(registers: int | None) -> None:
    issuer = Issuer(said={"registration_endpoint": None}) if registers is None else Issuer(registers=registers)
    async with start_oauth_servers(HandshakeHandler(), issuer) as oauth:
        with pytest.raises(RookeryError) as caught:
            await sign_in(errand(oauth), Heard())
        assert caught.value.code == "needs-client-registration" and '"clientId"' in caught.value.remedy
        assert len(issuer.registered) == (0 if registers is None else 1)
        grant = None
        for method, by in (("client_secret_basic", "basic"), ("client_secret_post", None)):
            issuer.said["token_endpoint_auth_methods_supported"] = [method]
            grant = await granted(oauth, terms=Terms(client_id="mine", client_secret="s/e c"))
            form = issuer.exchanged[-1]
            assert (form["client_id"], form["client_secret"], form.get("by")) == ("mine", "s/e c", by)
            # What stands in the definition is not written down again, and the client is for this issuer from now on.
            assert "s/e c" not in str(grant.client) and grant.client["issuer"] == issuer.url
        assert grant is not None
        before = len(issuer.exchanged)
        elsewhere = replace(grant, client=grant.client | {"issuer": "https://other.example"})
        with pytest.raises(RookeryError):
            await granted(oauth, terms=Terms(client_id="mine", client_secret="s/e c"), grant=elsewhere)
        assert len(issuer.exchanged) == before
        moved = Terms(client_id="mine", client_secret="s/e c", issuer=issuer.url)
        assert (await granted(oauth, terms=moved, grant=elsewhere)).client["issuer"] == issuer.url
        with pytest.raises(RookeryError):
            await granted(oauth, terms=replace(moved, issuer="https://other.example"), grant=grant)
        assert len(issuer.exchanged) == before + 1


@requirement("hub.signin.flow")
async def test_a_client_is_registered_once_and_one_with_a_document_never() -> None:
    async with start_oauth_servers(HandshakeHandler()) as oauth:
        first = await granted(oauth)
        (wanted,) = oauth.issuer.registered
        assert wanted["client_name"] == "Rookery" and wanted["redirect_uris"][0].startswith("http://127.0.0.1:")
        again = replace(first, client=first.client | {"redirect_uris": None})
        assert (await granted(oauth, grant=again)).client["client_id"] == "client-1"
        assert len(oauth.issuer.registered) == 1
        # One that was registered for another port is registered anew.
        assert (await granted(oauth, grant=first)).client["client_id"] == "client-2"
        oauth.issuer.said["client_id_metadata_document_supported"] = True
        document = "https://rookery.example/client.json"
        assert (await granted(oauth, terms=Terms(document=document))).client["client_id"] == document
        assert len(oauth.issuer.registered) == 2


async def test_s10_scopes_are_those_of_the_challenge_and_grow_when_more_is_demanded() -> None:
    async with start_oauth_servers(HandshakeHandler()) as oauth:

        def scope() -> str | None:
            return oauth.issuer.asked[-1].get("scope")

        oauth.issuer.said["scopes_supported"] = ["everything", "admin"]
        challenge = errand(oauth).challenge
        await granted(oauth)
        assert scope() is None
        oauth.server.said["scopes_supported"] = ["read", "*"]
        await granted(oauth)
        assert scope() == "read"
        first = await granted(oauth, challenge=f'{challenge}, scope="basic"')
        assert scope() == "basic" and first.tokens["scope"] == "basic"
        more = f'{challenge}, error="insufficient_scope", scope="write"'
        await granted(
            oauth, status=403, challenge=more, grant=replace(first, client=first.client | {"redirect_uris": None})
        )
        assert scope() == "basic write"
        await granted(oauth, terms=Terms(scope="mine"))
        assert scope() == "mine"


@requirement("hub.signin.flow")
async def test_a_look_asks_nobody_and_registers_nothing() -> None:
    async with start_oauth_servers(HandshakeHandler()) as oauth:
        heard = Heard()
        assert await sign_in(errand(oauth, mode="look"), heard) == ProbeResult(True, oauth.issuer.url)
        assert [step.result for step in heard.steps] == ["HTTP 200"] * 2
        assert (oauth.issuer.registered, oauth.issuer.asked, heard.asked) == ([], [], [])


@requirement("hub.signin.flow")
async def test_a_renewal_that_is_refused_for_good_is_told_from_one_that_may_be_tried_again() -> None:
    async with start_oauth_servers(HandshakeHandler()) as oauth:
        grant = await granted(oauth)
        renewed = await granted(oauth, mode="refresh", grant=grant)
        assert renewed.access_token != grant.access_token and renewed.issuer == grant.issuer
        assert (oauth.issuer.exchanged[-1]["resource"], len(oauth.issuer.asked)) == (oauth.url, 1)
        for status, code in ((400, "needs-auth"), (503, "sign-in-failed")):
            oauth.issuer.refuses_renewal = status
            with pytest.raises(RookeryError) as caught:
                await granted(oauth, mode="refresh", grant=renewed)
            assert caught.value.code == code
        assert len(oauth.issuer.asked) == 1
