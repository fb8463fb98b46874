"""The access token of one server, and the files in which grants are stored.

A token is renewed before it expires, or when the server refuses it. Each grant is a file that only its owner can
read.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from rookery.system.causes import explain_os_error
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_secret, remove_file, write_secret
from rookery.system.fs.paths import ensure_private_folder
from rookery.system.log import REDACTOR
from rookery.system.tasks import TaskSet
from rookery.upstreams.oauth.messages import Grant, GrantResult, HelperRequest, Outcome, Terms
from rookery.wire.timing import compute_backoff

logger = logging.getLogger("rookery.mcp.servers")

# A token is renewed when a fifth of its lifetime is left, but not earlier than the maximum.
_RENEW_FRACTION = 0.2
_MAX_EARLY_SECONDS = 300.0


class SignInTarget(NamedTuple):
    """The server that a sign-in is for: its name and its address. Neither alone is enough."""

    name: str
    url: str


class _StoredGrant(msgspec.Struct):
    name: str
    grant: Grant


class GrantStore:
    """Stores grants in files. Each is read on first use; afterwards the copy in memory counts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._grants: dict[SignInTarget, Grant | None] = {}

    def get(self, target: SignInTarget) -> Grant | None:
        if target not in self._grants:
            self._grants[target] = grant = self._read(target)
            for secret in grant.secrets() if grant is not None else []:
                REDACTOR.add(secret)
        return self._grants[target]

    def put(self, target: SignInTarget, grant: Grant) -> None:
        """Store a grant. Raise if it is for another server than `target`."""
        if grant.server != target.url:
            raise RookeryError("sign-in-failed", "the sign-in is for a different address than the server's")
        for secret in grant.secrets():
            REDACTOR.add(secret)
        ensure_private_folder(self._folder, allow_link=False)
        try:
            write_secret(self._file(target), msgspec.json.encode(_StoredGrant(target.name, grant)))
        except OSError as error:
            raise self._storage_error("stored", target, error) from error
        before = self._grants.get(target)
        self._grants[target] = grant
        self._forget_secrets(before, grant)

    def remove(self, target: SignInTarget) -> None:
        try:
            remove_file(self._file(target))
        except OSError as error:
            raise self._storage_error("removed", target, error) from error
        self._grants[target] = None

    def _forget_secrets(self, old: Grant | None, new: Grant) -> None:
        """Remove renewed tokens from the redactor, which need not search the log for them for ever."""
        for secret in old.secrets() if old is not None else []:
            if secret not in new.secrets():
                REDACTOR.remove(secret)

    def _read(self, target: SignInTarget) -> Grant | None:
        try:
            data = read_secret(self._file(target))
            if data is None:
                return None
            stored = msgspec.json.decode(data, type=_StoredGrant)
        except (RookeryError, OSError, RecursionError, msgspec.DecodeError) as error:
            logger.warning('the sign-in of MCP server "%s" cannot be used: %s', target.name, error)
            return None
        # The file name does not prove which server a grant is for.
        return stored.grant if (stored.name, stored.grant.server) == target else None

    def _storage_error(self, what: str, target: SignInTarget, error: OSError) -> RookeryError:
        cause = explain_os_error(error, self._file(target))
        why, remedy = (cause.message, cause.remedy) if cause is not None else (error, "see: rookery doctor")
        return RookeryError(
            "sign-in-failed", f'the sign-in of MCP server "{target.name}" cannot be {what}: {why}', remedy
        )

    def _file(self, target: SignInTarget) -> Path:
        name = hashlib.sha256("\0".join(target).encode()).hexdigest()
        return self._folder / f"{name[:32]}.json"


@dataclass(frozen=True)
class AuthChallenge:
    """The last refusal of a server: its HTTP status and its challenge."""

    status: int = 401
    challenge: str = ""


class Credentials:
    """The credentials of one server, shared by all connections. `run_request` runs a request in a helper process."""

    def __init__(
        self,
        target: SignInTarget,
        terms: Terms,
        grants: GrantStore,
        run_request: Callable[[HelperRequest], Awaitable[Outcome]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.target = target
        self.terms = terms
        self.last_challenge: AuthChallenge | None = None
        # Whether a sign-in would have a client; None if that has not been checked yet.
        self.registrable: bool | None = None
        self._grants = grants
        self._send = run_request
        self._clock = clock
        self._tasks = TaskSet(f"sign-in {target.name}")
        self._renewing: asyncio.Task[bool] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._renew_at: float | None = None
        self._header: str | None = None
        self._schedule_renewal(self.grant)

    @property
    def grant(self) -> Grant | None:
        """The stored grant, unless another client got it than the one that is configured now."""
        grant = self._grants.get(self.target)
        if grant is None or self.terms.client_id in (None, grant.client.get("client_id")):
            return grant
        return None

    def set_grant(self, grant: Grant) -> None:
        """Store and use a new grant."""
        self._grants.put(self.target, grant)
        self.last_challenge = None
        self.registrable = True
        self._failures = 0
        self._retry_at = 0.0
        self._schedule_renewal(grant)

    def remove_grant(self) -> None:
        self._grants.remove(self.target)
        self._schedule_renewal(None)

    def reload(self) -> None:
        """Read the grant again after other credentials for the same server signed in or out."""
        self._schedule_renewal(self.grant)

    async def close(self) -> None:
        await self._tasks.close()

    # Interface for channels

    def header(self) -> str | None:
        """Return the Authorization header, or None. Start a renewal if one is due."""
        if self._renew_at is not None and self._clock.wall() >= self._renew_at:
            self._renew_at = None
            self._start_renewal()
        return self._header

    async def try_renew(self, sent: str | None, status: int, challenge: str) -> bool:
        """Handle a refusal of a request with the header `sent`. Return whether to repeat the request."""
        if self._header != sent:
            return self._header is not None  # renewed while the request was under way
        if status == 401 and await self._wait_for_renewal():
            return True
        self.last_challenge = AuthChallenge(status, challenge)
        return False

    # Renewal

    async def _wait_for_renewal(self) -> bool:
        """Renew the token, and return whether that worked.

        Concurrent callers share one renewal; the cancellation of one does not affect the others.
        """
        renewal = self._start_renewal()
        if renewal is None:
            return False
        await asyncio.wait([renewal])
        return not renewal.cancelled() and renewal.result()

    def _start_renewal(self) -> "asyncio.Task[bool] | None":
        if self._renewing is not None and not self._renewing.done():
            return self._renewing
        grant = self.grant
        if grant is None or not grant.renewable or self._clock.monotonic() < self._retry_at:
            return None
        self._renewing = self._tasks.start(self._renew(grant), "renew")
        return self._renewing

    async def _renew(self, grant: Grant) -> bool:
        request = HelperRequest(mode="refresh", url=self.target.url, terms=self.terms, grant=grant)
        try:
            outcome = await self._send(request)
        except RookeryError as error:
            self._failures += 1
            self._retry_at = self._clock.monotonic() + compute_backoff(self._failures)
            logger.warning('the sign-in of MCP server "%s" was not renewed: %s', self.target.name, error.message)
            if error.code == "needs-auth" and self.grant is grant:
                # The refresh token is no longer valid; the client is kept for the next sign-in.
                tokens = {name: value for name, value in grant.tokens.items() if name != "refresh_token"}
                self._grants.put(self.target, replace(grant, tokens=tokens))
            return False
        if not isinstance(outcome, GrantResult) or self.grant is not grant:
            return False  # somebody signed in or out in the meantime
        self.set_grant(outcome.grant)
        logger.info('the sign-in of MCP server "%s" was renewed', self.target.name)
        return True

    def _schedule_renewal(self, grant: Grant | None) -> None:
        """Set the header and the time of the next renewal."""
        self._header = f"Bearer {grant.access_token}" if grant is not None else None
        self._renew_at = None
        if grant is not None and grant.expires_at is not None and grant.renewable:
            remaining = grant.expires_at - self._clock.wall()
            self._renew_at = grant.expires_at - min(remaining * _RENEW_FRACTION, _MAX_EARLY_SECONDS)
