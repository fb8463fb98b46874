"""One sign-in, done by the official SDK: discovery, registration, PKCE, the check of `iss`, tokens and renewal."""

import asyncio
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientMetadata,
)
from pydantic import AnyUrl, ValidationError

from rookery.system.errors import RookeryError
from rookery.upstreams.signin import metadata, scopes
from rookery.upstreams.signin.addresses import Rules
from rookery.upstreams.signin.callback import Callback
from rookery.upstreams.signin.messages import Asked, Errand, Grant, Looked, Step
from rookery.upstreams.signin.shelf import Shelf, grant_of, recall
from rookery.upstreams.signin.transport import REFUSED, Guarded
from rookery.upstreams.signin.words import brief

# The resource that a token is for is always named, which is so since this revision.
_REVISION = {"MCP-Protocol-Version": "2025-11-25"}
_METHODS = ("client_secret_basic", "client_secret_post")


class Seen(Exception):
    """A look has come as far as a login could without a person or a registration."""


class Flow:
    """`say` is told of each step, and of the address that a person is to open."""

    def __init__(self, errand: Errand, rules: Rules, say: Callable[[Step | Asked], None], callback: Callback) -> None:
        self._errand, self._rules, self._say, self._callback = errand, rules, say, callback
        self._shelf = Shelf(errand)
        # Whether the authorization server will have no more of what it gave out before.
        self._over = False
        redirect = AnyUrl(callback.place.url)
        if errand.terms.client_id is None and self._shelf.client is not None:
            known = self._shelf.client.redirect_uris
            if errand.mode == "login" and known and redirect not in known:
                self._shelf.client = None  # registered for another address than the one that could be had
        self._provider = OAuthClientProvider(
            errand.url,
            OAuthClientMetadata(redirect_uris=[redirect], client_name="Rookery"),
            self._shelf,
            self._ask,
            self._wait,
            client_metadata_url=errand.terms.document,
        )
        self._context = self._provider.context
        refusal = scopes.challenge_with(errand.challenge, errand.terms.scope, stepping_up=errand.status == 403)
        headers = {"WWW-Authenticate": refusal} if refusal else {}
        self._refusal = httpx2.Response(errand.status, headers=headers)

    async def run(self) -> Grant | Looked:
        if self._errand.mode == "refresh":
            self._recall()
        try:
            await self._drive()
        except Seen:
            return Looked(True, self._issuer())
        if self._errand.mode == "look":
            return Looked(True, self._issuer())
        if not self._shelf.renewed:
            code = "needs-auth" if self._over else "sign-in-failed"
            raise RookeryError(code, "the authorization server did not renew the sign-in", "sign in again")
        return grant_of(self._context, self._shelf, self._errand, self._issuer())

    async def revoke(self) -> bool:
        """Give the tokens back, where the issuer takes any; what was tried is told."""
        self._recall()
        found = self._context.oauth_metadata
        if found is None or found.revocation_endpoint is None or self._shelf.tokens is None:
            self._say(Step("revoke", "the issuer offers no way to give tokens back", ok=False))
            return False
        tokens = self._shelf.tokens
        given = [("refresh_token", tokens.refresh_token), ("access_token", tokens.access_token)]
        taken: list[bool] = []
        async with self._client() as client:
            for kind, token in given:
                if token:
                    form = {"token": token, "token_type_hint": kind, "client_id": self._client_id()}
                    data, headers = self._context.prepare_token_auth(form, {})
                    answer = await client.post(str(found.revocation_endpoint), data=data, headers=headers)
                    taken.append(answer.status_code == 200)
        return all(taken)

    # ---- what the SDK is let to do

    async def _drive(self) -> None:
        """The request that the server refused is played to the SDK, which does what it takes to repeat it."""
        async with self._client() as client:
            request = client.build_request("POST", self._errand.url, headers=_REVISION, extensions={REFUSED: True})
            try:
                await client.send(request, auth=self._provider, follow_redirects=False)
            except OAuthRegistrationError as error:
                raise RookeryError(
                    "needs-client-registration",
                    f"no client could be registered: {brief(error)}",
                    metadata.HOW_TO_GIVE_A_CLIENT,
                ) from None
            except (OAuthFlowError, OAuthTokenError) as error:
                raise RookeryError("sign-in-failed", brief(error), "rookery mcp debug tells each step") from None
            except ValidationError:
                raise RookeryError("sign-in-failed", "the authorization server answered what does not fit") from None

    def _client(self) -> httpx2.AsyncClient:
        def tell(what: str, told: str, ok: bool) -> None:
            self._say(Step(what, told, ok))

        refusal = httpx2.Response(204) if self._errand.mode == "refresh" else self._refusal
        guarded = Guarded(self._rules, refusal, tell, self._before, self._after)
        return httpx2.AsyncClient(transport=guarded, trust_env=False)

    def _before(self, request: httpx2.Request) -> None:
        """The SDK registers where no endpoint is named too, at an address that it makes up."""
        if self._context.client_info is not None or request.method != "POST":
            return
        known = self._context.oauth_metadata
        if known is not None and known.registration_endpoint is None:
            raise RookeryError(
                "needs-client-registration",
                f"{known.issuer} registers no clients",
                metadata.HOW_TO_GIVE_A_CLIENT,
            )
        if self._errand.mode == "look":
            raise Seen

    def _after(self, request: httpx2.Request, status: int, body: bytes) -> bytes:
        """What a server says of itself is judged here: the SDK takes what it cannot read for nothing."""
        self._over |= request.method == "POST" and status in (400, 401)
        if request.method != "GET" or status != 200:
            return body
        metadata.check(body, self._rules)
        if "oauth-protected-resource" in request.url.path or b"authorization_servers" in body:
            return scopes.without_wildcards(body)
        asked = self._refusal.headers.get("www-authenticate", "")
        known = self._context.protected_resource_metadata
        if "scope=" in asked or (known is not None and known.scopes_supported):
            return body
        return scopes.only_offline(body)

    async def _ask(self, url: str) -> None:
        """The SDK has an address for a person to open."""
        client, known = self._context.client_info, self._context.oauth_metadata
        if self._errand.terms.client_id is not None and self._client_id() != self._errand.terms.client_id:
            raise RookeryError(
                "sign-in-failed",
                f"the server now names the authorization server {self._issuer()}, and its client is of another one",
                "correct oauth.clientId and oauth.issuer of its definition",
            )
        if client is not None and client.client_secret and client.token_endpoint_auth_method is None:
            offered = (known.token_endpoint_auth_methods_supported if known is not None else None) or _METHODS
            client.token_endpoint_auth_method = next((one for one in _METHODS if one in offered), _METHODS[0])
        await self._rules.addresses(url)
        if self._errand.mode == "look":
            raise Seen
        self._callback.expect(parse_qs(urlsplit(url).query)["state"][0])
        self._say(Asked(url, self._callback.place.url, self._issuer()))

    async def _wait(self) -> AuthorizationCodeResult:
        seconds = self._errand.seconds
        try:
            async with asyncio.timeout(seconds):
                found = await self._callback.returned()
        except TimeoutError:
            told = f"nobody signed in within {seconds:g} s"
            raise RookeryError("timeout", told, "begin again: rookery mcp login") from None
        return AuthorizationCodeResult(code=found.code, state=found.state, iss=found.iss)

    def _recall(self) -> None:
        assert self._errand.grant is not None
        recall(self._context, self._shelf, self._errand.grant)

    def _issuer(self) -> str:
        known = self._context.oauth_metadata
        return str(known.issuer) if known is not None else self._context.get_authorization_base_url(self._errand.url)

    def _client_id(self) -> str:
        return self._context.client_info.client_id if self._context.client_info is not None else ""
