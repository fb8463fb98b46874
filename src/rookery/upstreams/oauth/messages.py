"""Messages between the daemon and the helper process: one JSON object per line."""

from typing import Any, Literal

import msgspec

from rookery.wire.http_client.proxy import ProxySettings

# login: with a person and a browser; look: check how a login would go; refresh and revoke: with the stored grant.
HelperMode = Literal["login", "look", "refresh", "revoke"]

# The limit for all network traffic of one request together.
NETWORK_SECONDS = 60.0


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `oauth` settings of a definition. If they name no client, one is registered."""

    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    redirect: str | None = None
    port: int | None = None
    issuer: str | None = None
    document: str | None = None


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sign-in to one server at one issuer; it is valid for no other server.

    `client`, `tokens`, `metadata` (of the issuer) and `resource` (of the server) have the field names of the standards.
    """

    server: str
    issuer: str
    client: dict[str, Any]
    tokens: dict[str, Any]
    metadata: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None
    expires_at: float | None = None

    def __repr__(self) -> str:
        return f"<Grant for {self.server} from {self.issuer}>"

    @property
    def access_token(self) -> str:
        return self.tokens["access_token"]

    @property
    def renewable(self) -> bool:
        return bool(self.tokens.get("refresh_token"))

    def secrets(self) -> list[str]:
        """Return the values that must not appear in any text that people read."""
        values = [self.tokens.get("access_token"), self.tokens.get("refresh_token"), self.client.get("client_secret")]
        return [value for value in values if value]


class HelperRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The first line sent to the helper.

    `status` and `challenge` are the server's refusal, `seconds` is how long a person may take.
    """

    mode: HelperMode
    url: str
    status: int = 401
    challenge: str = ""
    terms: Terms = Terms()
    grant: Grant | None = None
    seconds: float = 0.0
    proxies: ProxySettings = ProxySettings()


class BrowserRedirect(msgspec.Struct, frozen=True, tag="redirected"):
    """Sent to the helper: the address that the browser was redirected to, pasted by a person."""

    url: str


class SignInStep(msgspec.Struct, frozen=True, tag="step"):
    """Sent by the helper: a step and its result, without secrets."""

    what: str
    result: str
    ok: bool = True


class BrowserPrompt(msgspec.Struct, frozen=True, tag="asked"):
    """Sent by the helper: a person must open `url`; the browser returns to `redirect`."""

    url: str
    redirect: str
    issuer: str


class RedirectReply(msgspec.Struct, frozen=True, tag="taken"):
    """Sent by the helper: why a pasted address is rejected, None if it is accepted."""

    why: str | None = None


class GrantResult(msgspec.Struct, frozen=True, tag="granted"):
    """Sent by the helper: the grant of a login or a renewal."""

    grant: Grant


class ProbeResult(msgspec.Struct, frozen=True, tag="looked"):
    """Sent by the helper: how a login would go. `registrable` says whether it would have a client."""

    registrable: bool
    issuer: str | None = None


class RevokeResult(msgspec.Struct, frozen=True, tag="revoked"):
    """Sent by the helper: whether the issuer revoked the tokens."""

    revoked: bool


class FailureResult(msgspec.Struct, frozen=True, tag="failed"):
    """Sent by the helper: why the request failed."""

    code: str
    message: str
    remedy: str = ""


Outcome = GrantResult | ProbeResult | RevokeResult | FailureResult
HelperMessage = SignInStep | BrowserPrompt | RedirectReply | Outcome
