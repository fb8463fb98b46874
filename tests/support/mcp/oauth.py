"""An authorization server, an MCP server that trusts it, and the browser of the user who signs in."""

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import aiohttp

from tests.support.mcp.client import Handler, HttpRequest, HttpResponder, ScriptedHttpServer

RESOURCE = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server"


@dataclass
class Issuer:
    """Issues codes to everybody. `said` overrides its metadata; None removes a member."""

    said: dict[str, Any] = field(default_factory=dict[str, Any])
    # Put over the parameters of the redirect.
    returned: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    # Put over the answer to a registration; a number is the status of a refusal.
    registers: dict[str, Any] | int = field(default_factory=dict[str, Any])
    expires_in: int | None = 3600
    refuses_renewal: int | None = None
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    registered: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    exchanged: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    revoked: list[str] = field(default_factory=list[str])
    # Tokens that count, and the scopes and the resource that they are for.
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    _codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    _renewals: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return {name: value for name, value in (found | self.said).items() if value is not None}

    async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
        path, _, query = asked.path.partition("?")
        form = {
            name: values[0] for name, values in parse_qs(asked.body.decode() if path != "/register" else "").items()
        }
        if path == METADATA:
            await out.json(self.metadata())
        elif path == "/register":
            await self._register(json.loads(asked.body), out)
        elif path == "/authorize":
            await self._authorize(_flat(query), out)
        elif path == "/token":
            await self._token(asked, form, out)
        elif path == "/revoke":
            self.revoked.append(form["token"])
            self.tokens.pop(form["token"], None)
            await out.json({})
        else:
            await out.answer(404)

    async def _register(self, wanted: dict[str, Any], out: HttpResponder) -> None:
        self.registered.append(wanted)
        if isinstance(self.registers, int):
            await out.json({"error": "invalid_client_metadata"}, status=self.registers)
            return
        made = {"client_id": f"client-{len(self.registered)}", "token_endpoint_auth_method": "none"}
        await out.json(wanted | made | self.registers, status=201)

    async def _authorize(self, asked: dict[str, str], out: HttpResponder) -> None:
        self.asked.append(asked)
        code = secrets.token_urlsafe(12)
        self._codes[code] = asked
        back: dict[str, str | None] = {"code": code, "state": asked["state"], "iss": self.url, **self.returned}
        query = urlencode({name: value for name, value in back.items() if value is not None})
        await out.answer(302, headers={"Location": f"{asked['redirect_uri']}?{query}"})

    async def _token(self, asked: HttpRequest, form: dict[str, str], out: HttpResponder) -> None:
        header = asked.headers.get("authorization", "")
        if header:
            name, _, secret = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
            form = form | {"client_id": unquote(name), "client_secret": unquote(secret), "by": "basic"}
        self.exchanged.append(form)
        if form["grant_type"] == "refresh_token":
            known = self._renewals.get(form["refresh_token"])
            if known is None or self.refuses_renewal is not None:
                await out.json({"error": "invalid_grant"}, status=self.refuses_renewal or 400)
                return
        else:
            known = self._codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if known is None or known["code_challenge"] != challenge or known["redirect_uri"] != form["redirect_uri"]:
                await out.json({"error": "invalid_grant"}, status=400)
                return
        await out.json(self.give(known.get("scope", ""), form.get("resource", ""), known))

    def give(self, scope: str, resource: str, known: dict[str, str] | None = None) -> dict[str, Any]:
        """Return tokens that are valid from now on."""
        token, again = f"at-{secrets.token_urlsafe(12)}", f"rt-{secrets.token_urlsafe(12)}"
        self.tokens[token] = scope, resource
        self._renewals[again] = known or {"scope": scope}
        made: dict[str, Any] = {"access_token": token, "token_type": "Bearer", "refresh_token": again}
        return made | ({"expires_in": self.expires_in} if self.expires_in is not None else {}) | {"scope": scope}


@dataclass
class Protected:
    """Accepts tokens that the issuer issued for it, and refuses others with the address of the issuer."""

    inner: Handler
    issuer: Issuer
    # What a request needs: the tool that is called, or anything else.
    scopes: dict[str, str] = field(default_factory=dict[str, str])
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    challenge: str | None = None
    url: str = ""

    async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
        if asked.path == RESOURCE:
            found: dict[str, Any] = {"resource": self.url, "authorization_servers": [self.issuer.url], **self.said}
            await out.json({name: value for name, value in found.items() if value is not None})
            return
        if asked.path != "/mcp":
            await out.answer(404)
            return
        wanted = self.scopes.get(self._tool(asked)) or self.scopes.get("", "")
        scope, resource = self.issuer.tokens.get(
            asked.headers.get("authorization", "").removeprefix("Bearer "), ("", "")
        )
        where = f'resource_metadata="{urlsplit(self.url)._replace(path=RESOURCE).geturl()}"'
        more = f', scope="{wanted}"' if wanted else ""
        if resource != self.url:
            said = self.challenge if self.challenge is not None else f"Bearer {where}{more}"
            await out.answer(401, b"who are you?", headers={"WWW-Authenticate": said} if said else {})
        elif not set(wanted.split()) <= set(scope.split()):
            said = f'Bearer error="insufficient_scope", {where}{more}'
            await out.answer(403, b"not enough", headers={"WWW-Authenticate": said})
        else:
            await self.inner(asked, out)

    def _tool(self, asked: HttpRequest) -> str:
        if not asked.body:
            return ""
        return asked.message.get("params", {}).get("name", "") if asked.what == "tools/call" else ""


@dataclass
class OAuthServers:
    """Both servers, on their own ports."""

    issuer: Issuer
    server: Protected
    at_issuer: ScriptedHttpServer
    at_server: ScriptedHttpServer

    @property
    def url(self) -> str:
        return self.server.url


@asynccontextmanager
async def start_oauth_servers(
    inner: Handler, issuer: Issuer | None = None, **more: Any
) -> AsyncGenerator[OAuthServers]:
    issuer = issuer or Issuer()
    server = Protected(inner, issuer, **more)
    async with ScriptedHttpServer(issuer) as at_issuer, ScriptedHttpServer(server) as at_server:
        issuer.url, server.url = at_issuer.url.removesuffix("/mcp"), at_server.url
        yield OAuthServers(issuer, server, at_issuer, at_server)


def _flat(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}


async def browse(http: aiohttp.ClientSession, url: str) -> str:
    """Do what the browser of a consenting user does, and return the address of the final redirect."""
    async with http.get(url, allow_redirects=False) as answer:
        assert answer.status == 302, await answer.text()
        return answer.headers["Location"]


async def follow(http: aiohttp.ClientSession, location: str) -> tuple[int, str]:
    async with http.get(location, allow_redirects=False) as answer:
        return answer.status, await answer.text()
