"""What the SDK finds when it begins, and what it leaves."""

from typing import Any

from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata

from rookery.system.clock import SYSTEM_CLOCK
from rookery.upstreams.signin.messages import Errand, Grant


class Shelf:
    """The SDK's storage. A client that is configured stands before one that was registered."""

    def __init__(self, errand: Errand) -> None:
        known, terms = errand.grant, errand.terms
        self.tokens = OAuthToken.model_validate(known.tokens) if known is not None else None
        client: dict[str, Any] = known.client if known is not None else {}
        if terms.client_id is not None:
            same = client if client.get("client_id") == terms.client_id else {}
            given = {"client_id": terms.client_id, "client_secret": terms.client_secret}
            # Whoever says whose client it is knows better than what an earlier sign-in found.
            client = {**same, **given, "issuer": terms.issuer or same.get("issuer")}
        self.client = OAuthClientInformationFull.model_validate(client) if client else None
        self.renewed = False

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens, self.renewed = tokens, True

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def recall(context: OAuthContext, shelf: Shelf, known: Grant) -> None:
    """As if the sign-in had just been made, and the time of its token were over."""
    context.current_tokens, context.client_info = shelf.tokens, shelf.client
    context.oauth_metadata = OAuthMetadata.model_validate(known.metadata) if known.metadata else None
    if known.resource:
        context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(known.resource)
    context.token_expiry_time = 1.0


def grant_of(context: OAuthContext, shelf: Shelf, errand: Errand, issuer: str) -> Grant:
    tokens, client = shelf.tokens, context.client_info
    assert tokens is not None and client is not None
    kept = _dump(client)
    if errand.terms.client_id is not None:
        kept.setdefault("issuer", issuer)  # from now on it is for nobody else
    if errand.terms.client_secret is not None:
        kept.pop("client_secret", None)  # it stands where the user wrote it
    lasts, metadata, resource = tokens.expires_in, context.oauth_metadata, context.protected_resource_metadata
    return Grant(
        server=errand.url,
        issuer=issuer,
        client=kept,
        tokens=_dump(tokens),
        metadata=_dump(metadata) if metadata is not None else None,
        resource=_dump(resource) if resource is not None else None,
        expires_at=SYSTEM_CLOCK.wall() + lasts if lasts is not None else None,
    )


def _dump(model: Any) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_none=True)
