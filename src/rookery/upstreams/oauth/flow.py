"""One sign-in with the official SDK: discovery, registration, PKCE, the check of `iss`, tokens and renewal.

This module imports the SDK; only the helper process imports it.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.upstreams.oauth import metadata
from rookery.upstreams.oauth.addresses import AddressRules
from rookery.upstreams.oauth.callback import CallbackServer
from rookery.upstreams.oauth.messages import BrowserPrompt, Grant, HelperRequest, ProbeResult, SignInStep
from rookery.upstreams.oauth.transport import REFUSED_EXTENSION, GuardedTransport

_MAX_SUMMARY = 300
# An error may repeat a response that contains tokens, as JSON or as a form.
_SECRET = re.compile(
    r"""\b((?:access_token|refresh_token|id_token|client_secret|code_verifier)["']?\s*[:=]\s*["']?)[^"'&\s,}]+"""
)
# Since this revision the resource that a token is for is always named.
_REVISION_HEADER = {"MCP-Protocol-Version": "2025-11-25"}
_SECRET_METHODS = ("client_secret_basic", "client_secret_post")


class SdkStorage:
    """The storage of the SDK. A configured client takes precedence over a registered one."""

    def __init__(self, request: HelperRequest) -> None:
        grant = request.grant
        terms = request.terms
        self.tokens = OAuthToken.model_validate(grant.tokens) if grant is not None else None
        client: dict[str, Any] = grant.client if grant is not None else {}
        if terms.client_id is not None:
            same = client if client.get("client_id") == terms.client_id else {}
            configured = {"client_id": terms.client_id, "client_secret": terms.client_secret}
            # A configured issuer takes precedence over the one that an earlier sign-in found.
            client = {**same, **configured, "issuer": terms.issuer or same.get("issuer")}
        self.client = OAuthClientInformationFull.model_validate(client) if client else None
        self.renewed = False

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        self.renewed = True

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def restore_context(context: OAuthContext, storage: SdkStorage, grant: Grant) -> None:
    """Restore the state of the SDK as after a sign-in whose token has expired."""
    context.current_tokens = storage.tokens
    context.client_info = storage.client
    context.oauth_metadata = OAuthMetadata.model_validate(grant.metadata) if grant.metadata else None
    if grant.resource:
        context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(grant.resource)
    context.token_expiry_time = 1.0


def build_grant(context: OAuthContext, storage: SdkStorage, request: HelperRequest, issuer: str) -> Grant:
    """Return the grant that the SDK obtained."""
    tokens = storage.tokens
    client = context.client_info
    assert tokens is not None and client is not None
    client_fields = _dump(client)
    if request.terms.client_id is not None:
        client_fields.setdefault("issuer", issuer)  # from now on the client belongs to this issuer only
    if request.terms.client_secret is not None:
        client_fields.pop("client_secret", None)  # it remains in the user's configuration only
    lifetime = tokens.expires_in
    metadata = context.oauth_metadata
    resource = context.protected_resource_metadata
    return Grant(
        server=request.url,
        issuer=issuer,
        client=client_fields,
        tokens=_dump(tokens),
        metadata=_dump(metadata) if metadata is not None else None,
        resource=_dump(resource) if resource is not None else None,
        expires_at=SYSTEM_CLOCK.wall() + lifetime if lifetime is not None else None,
    )


def _dump(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_none=True)


def summarize_error(error: Exception) -> str:
    """Return the first line of an error without the invalid input, which may contain tokens."""
    line = str(error).partition("\n")[0].split("input_value")[0]
    return _SECRET.sub(r"\1***", line)[:_MAX_SUMMARY]


class ProbeComplete(Exception):
    """A probe has gone as far as a login can without a person or a registration."""


class SignInFlow:
    """Runs one request with the SDK. `on_message` receives each step, and the address that a person must open."""

    def __init__(
        self,
        request: HelperRequest,
        rules: AddressRules,
        on_message: Callable[[SignInStep | BrowserPrompt], None],
        callback: CallbackServer,
    ) -> None:
        self._request = request
        self._rules = rules
        self._on_message = on_message
        self._callback = callback
        self._storage = SdkStorage(request)
        # Whether the authorization server has rejected a request for tokens.
        self._rejected = False
        redirect = AnyUrl(callback.address.url)
        if request.terms.client_id is None and self._storage.client is not None:
            registered = self._storage.client.redirect_uris
            if request.mode == "login" and registered and redirect not in registered:
                self._storage.client = None  # registered for another address than the available one
        self._provider = OAuthClientProvider(
            request.url,
            OAuthClientMetadata(redirect_uris=[redirect], client_name="Rookery"),
            self._storage,
            self._on_authorization_url,
            self._wait_for_response,
            client_metadata_url=request.terms.document,
        )
        self._context = self._provider.context
        refusal = metadata.set_challenge_scope(
            request.challenge, request.terms.scope, stepping_up=request.status == 403
        )
        headers = {"WWW-Authenticate": refusal} if refusal else {}
        self._refusal = httpx2.Response(request.status, headers=headers)

    async def run(self) -> Grant | ProbeResult:
        """Run a login, a renewal or a probe, and return its result."""
        if self._request.mode == "refresh":
            self._restore_grant()
        try:
            await self._replay_refused_request()
        except ProbeComplete:
            return ProbeResult(True, self._issuer())
        if self._request.mode == "look":
            return ProbeResult(True, self._issuer())
        if not self._storage.renewed:
            code = "needs-auth" if self._rejected else "sign-in-failed"
            raise RookeryError(code, "the authorization server did not renew the sign-in", "sign in again")
        return build_grant(self._context, self._storage, self._request, self._issuer())

    async def revoke(self) -> bool:
        """Revoke the tokens, if the issuer supports that, and return whether it worked. Each step is reported."""
        self._restore_grant()
        issuer_metadata = self._context.oauth_metadata
        if issuer_metadata is None or issuer_metadata.revocation_endpoint is None or self._storage.tokens is None:
            self._on_message(SignInStep("revoke", "the issuer does not support revoking tokens", ok=False))
            return False
        tokens = self._storage.tokens
        candidates = [("refresh_token", tokens.refresh_token), ("access_token", tokens.access_token)]
        revoked: list[bool] = []
        async with self._client() as client:
            for kind, token in candidates:
                if token:
                    form = {"token": token, "token_type_hint": kind, "client_id": self._client_id()}
                    data, headers = self._context.prepare_token_auth(form, {})
                    response = await client.post(str(issuer_metadata.revocation_endpoint), data=data, headers=headers)
                    revoked.append(response.status_code == 200)
        return all(revoked)

    # Control of the SDK

    async def _replay_refused_request(self) -> None:
        """Present the refused request to the SDK, which does what is necessary to repeat it."""
        async with self._client() as client:
            request = client.build_request(
                "POST", self._request.url, headers=_REVISION_HEADER, extensions={REFUSED_EXTENSION: True}
            )
            try:
                await client.send(request, auth=self._provider, follow_redirects=False)
            except OAuthRegistrationError as error:
                raise RookeryError(
                    "needs-client-registration",
                    f"no client could be registered: {summarize_error(error)}",
                    metadata.CLIENT_REGISTRATION_HELP,
                ) from None
            except (OAuthFlowError, OAuthTokenError) as error:
                raise RookeryError(
                    "sign-in-failed", summarize_error(error), "rookery mcp debug shows each step"
                ) from None
            except ValidationError:
                raise RookeryError("sign-in-failed", "the authorization server sent an invalid response") from None

    def _client(self) -> httpx2.AsyncClient:
        def on_request(what: str, result: str, ok: bool) -> None:
            self._on_message(SignInStep(what, result, ok))

        refusal = httpx2.Response(204) if self._request.mode == "refresh" else self._refusal
        guarded = GuardedTransport(self._rules, refusal, on_request, self._before, self._after)
        return httpx2.AsyncClient(transport=guarded, trust_env=False)

    def _before(self, request: httpx2.Request) -> None:
        """Check a request for a registration before it is sent.

        If the metadata name no registration endpoint, the SDK would register at an address that it makes up.
        """
        if self._context.client_info is not None or request.method != "POST":
            return
        issuer_metadata = self._context.oauth_metadata
        if issuer_metadata is not None and issuer_metadata.registration_endpoint is None:
            raise RookeryError(
                "needs-client-registration",
                f"{issuer_metadata.issuer} does not register clients",
                metadata.CLIENT_REGISTRATION_HELP,
            )
        if self._request.mode == "look":
            raise ProbeComplete

    def _after(self, request: httpx2.Request, status: int, body: bytes) -> bytes:
        """Check the metadata of a server here, because the SDK ignores metadata that it cannot read."""
        self._rejected |= request.method == "POST" and status in (400, 401)
        if request.method != "GET" or status != 200:
            return body
        metadata.check_metadata(body, self._rules)
        if "oauth-protected-resource" in request.url.path or b"authorization_servers" in body:
            return metadata.remove_wildcard_scopes(body)
        challenge = self._refusal.headers.get("www-authenticate", "")
        resource = self._context.protected_resource_metadata
        if "scope=" in challenge or (resource is not None and resource.scopes_supported):
            return body
        return metadata.remove_scopes(body)

    async def _on_authorization_url(self, url: str) -> None:
        """Check and report the address that a person must open."""
        client = self._context.client_info
        issuer_metadata = self._context.oauth_metadata
        if self._request.terms.client_id is not None and self._client_id() != self._request.terms.client_id:
            raise RookeryError(
                "sign-in-failed",
                f"the server now uses the authorization server {self._issuer()}, but its client belongs to another",
                "correct oauth.clientId and oauth.issuer in its definition",
            )
        if client is not None and client.client_secret and client.token_endpoint_auth_method is None:
            supported = (
                issuer_metadata.token_endpoint_auth_methods_supported if issuer_metadata is not None else None
            ) or _SECRET_METHODS
            client.token_endpoint_auth_method = next(
                (method for method in _SECRET_METHODS if method in supported), _SECRET_METHODS[0]
            )
        await self._rules.addresses(url)
        if self._request.mode == "look":
            raise ProbeComplete
        self._callback.expect_state(parse_qs(urlsplit(url).query)["state"][0])
        self._on_message(BrowserPrompt(url, self._callback.address.url, self._issuer()))

    async def _wait_for_response(self) -> AuthorizationCodeResult:
        """Wait for the response of the browser."""
        seconds = self._request.seconds
        try:
            async with asyncio.timeout(seconds):
                response = await self._callback.wait_for_response()
        except TimeoutError:
            message = f"nobody signed in within {seconds:g} s"
            raise RookeryError("timeout", message, "start again: rookery mcp login") from None
        return AuthorizationCodeResult(code=response.code, state=response.state, iss=response.iss)

    def _restore_grant(self) -> None:
        assert self._request.grant is not None
        restore_context(self._context, self._storage, self._request.grant)

    def _issuer(self) -> str:
        issuer_metadata = self._context.oauth_metadata
        return (
            str(issuer_metadata.issuer)
            if issuer_metadata is not None
            else self._context.get_authorization_base_url(self._request.url)
        )

    def _client_id(self) -> str:
        return self._context.client_info.client_id if self._context.client_info is not None else ""
