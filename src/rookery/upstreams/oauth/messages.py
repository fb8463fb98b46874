"""What the daemon and the process that signs in say to each other: one JSON object a line."""

from typing import Any, Literal

import msgspec

# login: with a person and a browser; look: only what a login would meet; refresh and revoke: with what is stored.
Mode = Literal["login", "look", "refresh", "revoke"]


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a definition says about signing in (`oauth`). Without a client one is registered."""

    client_id: str | None = None
    client_secret: str | None = None
    scope: str | None = None
    redirect: str | None = None
    port: int | None = None
    issuer: str | None = None
    document: str | None = None


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a sign-in came to, for one server and from one issuer; it is worth nothing anywhere else.

    `client`, `tokens`, `metadata` (of the issuer) and `resource` (of the server) are in the words of the standards.
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
        """What must stand in no text that anybody reads."""
        found = [self.tokens.get("access_token"), self.tokens.get("refresh_token"), self.client.get("client_secret")]
        return [one for one in found if one]


# For all servers that are asked during one errand.
SERVERS_SECONDS = 60.0


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """The first line to the helper. `status` and `challenge` are the server's refusal; `seconds` a person has."""

    mode: Mode
    url: str
    status: int = 401
    challenge: str = ""
    terms: Terms = Terms()
    grant: Grant | None = None
    seconds: float = 0.0


class Redirected(msgspec.Struct, frozen=True, tag="redirected"):
    """To the helper: the address that the browser was sent to, pasted by a person."""

    url: str


class Step(msgspec.Struct, frozen=True, tag="step"):
    """From the helper: what it did, and what came of it; never with a secret in it."""

    what: str
    told: str
    ok: bool = True


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """From the helper: a person is to open `url`; the browser comes back to `redirect`."""

    url: str
    redirect: str
    issuer: str


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """From the helper: why an address that was pasted is not used, None if it is."""

    why: str | None = None


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    grant: Grant


class Looked(msgspec.Struct, frozen=True, tag="looked"):
    """From the helper: how a login would go; `registrable` is whether it would have a client."""

    registrable: bool
    issuer: str | None = None


class Revoked(msgspec.Struct, frozen=True, tag="revoked"):
    """From the helper: whether the issuer took the tokens back."""

    revoked: bool


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    code: str
    message: str
    remedy: str = ""


Outcome = Granted | Looked | Revoked | Failed
Told = Step | Asked | Taken | Outcome
